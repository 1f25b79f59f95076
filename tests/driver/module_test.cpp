// tests/driver/module_test.cpp: kernels on the simulated device: what compile() makes of a source, load() takes, and launch() runs.
//
// Every case of `everywhere` runs with one item in a group and with many, in both orders. Prints one line a case; the exit status is the
// number of failures.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "module_test/code.h"
#include "module_test/groups.h"
#include "module_test/kernels.h"
#include "report.h"

namespace {

using Case = std::pair<const char*, void (*)(Kernels&)>;

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
#define CASE(name) \
  {                \
    #name, name    \
  }
  const std::vector<Case> everywhere = {
      CASE(kernels_know_where_they_are),
      CASE(a_group_shares_memory),
      CASE(words_compute_what_they_say),
      CASE(atomics_count_everything),
      CASE(an_assertion_makes_the_device_fault),
      CASE(work_is_in_the_order_of_the_stream),
      CASE(pointers_and_values_of_every_number),
      CASE(local_memory_is_as_large_as_said),
      CASE(wrong_launches_are_named),
  };
  const std::vector<Case> one_item = {
      CASE(code_that_is_not_whole_is_refused), CASE(kernels_are_found_by_name_and_signature),
      CASE(modules_are_not_confused),          CASE(wrong_sources_have_a_log),
      CASE(every_flag_gives_code_that_runs),   CASE(pointers_are_the_devices),
      CASE(threads_and_children_compile),      CASE(ids_are_cut_and_stable),
      CASE(options_of_kernels_are_checked),    CASE(a_device_is_an_older_level_of_the_machine),
  };
  const std::vector<Case> many_items = {CASE(memory_that_nobody_wrote_is_no_number), CASE(smaller_groups_run_too),
                                        CASE(pointers_are_the_devices)};
#undef CASE
  const auto all = [&](const std::string& options, const std::vector<Case>& cases) {
    for (const auto& [name, body] : cases) {
      const std::string title = options + ": " + name;
      if (title.find(only) == std::string::npos) continue;
      report(title, [&, run = body] {
        Kernels k(options);
        run(k);
      });
    }
  };
  for (const char* options : {"stream=async", "stream=inline,kind=discrete", "items=64,order=up", "items=8,order=down,kind=discrete"}) {
    all(options, everywhere);
  }
  all("kind=unified", one_item);
  all("kind=discrete", {{"pointers_are_the_devices", pointers_are_the_devices}});
  for (const char* options : {"items=64,order=up", "items=64,order=down"}) all(options, many_items);
  const std::vector<std::pair<const char*, void (*)()>> single = {
      {"a missing barrier is seen", a_missing_barrier_is_seen},
      {"items come in the order that is asked", items_come_in_the_order_that_is_asked},
      {"items that part make the device fault", items_that_part_make_the_device_fault},
      {"groups run on many threads", groups_run_on_many_threads},
  };
  for (const auto& [name, body] : single) {
    if (std::string(name).find(only) != std::string::npos) report(name, body);
  }
  return failures;
}
