// tests/driver/engine_test.cpp: the stream engine and the drivers over it, in one program that sanitizers can see through.
//
// sim, emulate, the minimal driver and one with buffer handles are linked in (built with -Dbp_driver_get=<name>). Threads, waits and faults
// run on each configuration below; check-driver has the rest of the contract. The exit status is the number of failures.
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine_test/emulated.h"
#include "engine_test/helpers.h"
#include "engine_test/single.h"
#include "engine_test/streams.h"
#include "engine_test/support.h"
#include "engine_test/transfers.h"
#include "report.h"

namespace {

struct Configuration {
  const char* name;
  std::function<const bp_driver*()> make;
  bool discrete = false;
};

const std::vector<std::pair<const char*, void (*)(Instance&)>> kCases = {
#define ON_EACH(name) {#name, name}
    ON_EACH(a_stream_waits_for_another),
    ON_EACH(a_second_record_replaces_the_first),
    ON_EACH(many_threads_wait_for_one_event),
    ON_EACH(destroying_a_stream_completes_its_work),
    ON_EACH(closing_completes_what_is_queued),
    ON_EACH(threads_share_streams),
    ON_EACH(copies_of_every_kind),
    ON_EACH(a_fault_is_sticky),
#undef ON_EACH
};

}  // namespace

int main(int argc, char** argv) {
  choose(argc, argv);
  const std::vector<Configuration> configurations = {
      {"sim inline", [] { return get(bp_sim_get, "stream=inline,memory=64MiB"); }},
      {"sim async", [] { return get(bp_sim_get, "stream=async,memory=64MiB"); }},
      {"sim inline discrete", [] { return get(bp_sim_get, "stream=inline,kind=discrete,memory=64MiB"); }},
      {"sim async discrete", [] { return get(bp_sim_get, "stream=async,kind=discrete,memory=64MiB"); }},
      {"minimal emulated inline", [] { return get(bp_emulate_get, "", get(bp_minimal_get, "devices=2")); }},
      {"minimal emulated async", [] { return get(bp_emulate_get, "stream=async", get(bp_minimal_get, "devices=2")); }},
      {"handles emulated", [] { return get(bp_emulate_get, "", get(bp_handle_get, "")); }},
      {"sim without events, emulated", sim_without_events},
      {"sim serialized, emulated", serialized_sim},
  };
  for (const Configuration& configuration : configurations) {
    for (const auto& [name, body] : kCases) {
      report(std::string(configuration.name) + ": " + name, [&, run = body] {
        Instance instance(configuration.make());
        run(instance);
      });
    }
  }
  report("the lock of emulate", [] { CHECK(overlaps == 0); });
  CASE(awkward_driver);
  CASE(opening_starts_no_thread);
  CASE(memory_has_a_limit);
  report("a stray host access faults", [] { a_stray_host_access_faults("stream=inline,memory=64MiB,kind=discrete", true); });
  report("unified memory is the host's", [] { a_stray_host_access_faults("stream=inline,memory=64MiB,kind=unified", false); });
  CASE(options_list_what_is_known);
  CASE(peers_can_be_switched);
  CASE(a_half_group_is_named);
  CASE(another_abi_is_an_error_that_lists_the_changes);
  CASE(streams_need_no_callbacks);
  CASE(registered_memory_is_known_as_such);
  CASE(what_is_thrown_has_a_status_and_a_text);
  CASE(a_freed_place_is_forgotten);
  CASE(places_do_not_overlap);
  CASE(a_polling_wait_ends_in_time);
  CASE(addresses_of_the_runtime_are_found);
  CASE(ranges_lie_in_one_allocation);
  CASE(a_callback_ends_a_wait);
  CASE(a_late_callback_finds_what_it_needs);
  CASE(a_callback_holds_the_queue);
  CASE(a_callback_that_is_refused_holds_nothing);
  CASE(what_is_left_is_destroyed);
  return failures;
}
