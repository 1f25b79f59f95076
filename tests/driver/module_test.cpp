// tests/driver/module_test.cpp: kernels on the simulated device: what compile() makes of a source, load() takes, and launch() runs.
//
// Every case of `everywhere` runs with one item in a group and with many, in both orders. The exit status is the number of failures.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "module_test/code.h"
#include "module_test/groups.h"
#include "module_test/kernels.h"
#include "report.h"

using Cases = std::vector<std::pair<const char*, void (*)(Kernels&)>>;
#define NAMED(name) {#name, name}

int main(int argc, char** argv) {
  choose(argc, argv);
  const Cases everywhere = {
      NAMED(a_group_shares_memory),
      NAMED(an_assertion_makes_the_device_fault),
      NAMED(local_memory_is_as_large_as_said),
      NAMED(wrong_launches_are_named),
  };
  const Cases one_item = {
      NAMED(code_that_is_not_whole_is_refused),
      NAMED(kernels_are_found_by_name_and_signature),
      NAMED(modules_are_not_confused),
      NAMED(wrong_sources_have_a_log),
      NAMED(every_flag_gives_code_that_runs),
      NAMED(a_caller_of_version_1_is_served),
      NAMED(a_language_is_refused_that_the_target_does_not_support),
      NAMED(pointers_are_the_devices),
      NAMED(ids_are_cut_and_stable),
      NAMED(options_of_kernels_are_checked),
      NAMED(a_device_is_an_older_level_of_the_machine),
  };
  const Cases many_items = {
      NAMED(memory_that_nobody_wrote_is_no_number),
      NAMED(smaller_groups_run_too),
      NAMED(pointers_are_the_devices),
  };
  const auto all = [&](const std::string& options, const Cases& cases) {
    for (const auto& [name, body] : cases) {
      report(options + ": " + name, [&, run = body] {
        Kernels k(options);
        run(k);
      });
    }
  };
  for (const char* options : {"stream=async", "stream=inline,kind=discrete", "items=64,order=up", "items=8,order=down,kind=discrete"}) {
    all(options, everywhere);
  }
  all("kind=unified", one_item);
  all("kind=discrete", {NAMED(pointers_are_the_devices)});
  for (const char* options : {"items=64,order=up", "items=64,order=down"}) all(options, many_items);
  CASE(a_missing_barrier_is_seen);
  CASE(items_come_in_the_order_that_is_asked);
  CASE(items_that_part_make_the_device_fault);
  CASE(groups_run_on_many_threads);
  return failures;
}
