// tests/driver/engine_test.cpp: the stream engine and the drivers over it, in one program that sanitizers can see through.
//
// sim, emulate, the minimal driver and one with buffer handles are linked in (built with -Dbp_driver_get=<name>), and every case runs on
// each configuration below. Prints one line a case; the exit status is the number of failures.
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
#define CASE(name) {#name, name}
    CASE(work_runs_in_order),
    CASE(a_stream_waits_for_another),
    CASE(a_second_record_replaces_the_first),
    CASE(an_unrecorded_event_is_complete),
    CASE(many_threads_wait_for_one_event),
    CASE(destroying_a_stream_completes_its_work),
    CASE(closing_completes_what_is_queued),
    CASE(threads_share_streams),
    CASE(copies_of_every_kind),
    CASE(fills_of_every_pattern),
    CASE(wrong_arguments_are_named),
    CASE(the_stream_limit_is_kept),
    CASE(a_native_stream_gives_its_handle_back),
    CASE(unknown_flags_are_refused),
    CASE(a_fault_is_sticky),
    CASE(device_work_reaches_memory),
#undef CASE
};

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
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
      const std::string title = std::string(configuration.name) + ": " + name;
      if (title.find(only) == std::string::npos) continue;
      report(title, [&, run = body] {
        Instance instance(configuration.make());
        run(instance);
      });
    }
  }
  const std::vector<std::pair<const char*, std::function<void()>>> single = {
      {"the lock of emulate", [] { CHECK(overlaps == 0); }},
      {"awkward driver", awkward_driver},
      {"opening starts no thread", opening_starts_no_thread},
      {"memory has a limit", memory_has_a_limit},
      {"a stray host access faults", [] { a_stray_host_access_faults("stream=inline,memory=64MiB,kind=discrete", true); }},
      {"unified memory is the host's", [] { a_stray_host_access_faults("stream=inline,memory=64MiB,kind=unified", false); }},
      {"options list what is known", options_list_what_is_known},
      {"peers can be switched", peers_can_be_switched},
      {"a half group is named", a_half_group_is_named},
      {"another ABI is told what changed", another_abi_is_told_what_changed},
      {"streams need no callbacks", streams_need_no_callbacks},
      {"registered memory is known as such", registered_memory_is_known_as_such},
      {"what is thrown has a status and a text", what_is_thrown_has_a_status_and_a_text},
      {"a freed place is forgotten", a_freed_place_is_forgotten},
      {"places do not overlap", places_do_not_overlap},
      {"a polling wait ends in time", a_polling_wait_ends_in_time},
      {"addresses of the runtime's are found", addresses_of_the_runtime_are_found},
      {"ranges lie in one allocation", ranges_lie_in_one_allocation},
      {"a callback ends a wait", a_callback_ends_a_wait},
      {"a late callback finds what it needs", a_late_callback_finds_what_it_needs},
      {"a callback holds the queue", a_callback_holds_the_queue},
      {"a callback that is refused holds nothing", a_callback_that_is_refused_holds_nothing},
      {"what is left is destroyed", what_is_left_is_destroyed},
  };
  for (const auto& [name, body] : single) {
    if (std::string(name).find(only) != std::string::npos) report(name, body);
  }
  return failures;
}
