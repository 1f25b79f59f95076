// tests/driver/collective_test.cpp: bp.collective of the simulated device: random programs of ranks in threads and in processes, ranks that
// are killed at random times, and how communicators fail.
//
// "collective_test [--only <text>] [--programs <n>] [--seed <n>]". Prints one line a case; the exit status is the number of failures.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collective_test/calls.h"
#include "collective_test/failures.h"
#include "collective_test/programs.h"
#include "collective_test/shims.h"
#include "report.h"

int main(int argc, char** argv) {
  std::string only;
  uint32_t programs = 6, seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
    if (std::string(argv[i]) == "--programs") programs = static_cast<uint32_t>(std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--seed") seed = static_cast<uint32_t>(std::atoi(argv[i + 1]));
  }
  std::vector<std::pair<std::string, std::function<void()>>> cases;
  for (uint32_t i = seed; i < seed + programs; ++i) {
    // Processes first: a process with threads does not fork.
    cases.emplace_back("program in processes, seed " + std::to_string(i), [i] { a_program_in_processes(i); });
    cases.emplace_back("rank is killed, seed " + std::to_string(i), [i] { a_rank_is_killed(i); });
  }
#define CASE(name) cases.emplace_back(#name, name)
  CASE(a_child_of_a_killed_rank_is_no_rank);
  CASE(an_absent_rank_is_a_timeout);
  CASE(a_rank_that_is_taken_is_refused);
  CASE(another_size_is_refused);
  CASE(ranks_that_disagree_fail);
  CASE(ranks_of_an_all_to_all_compare_sizes);
  CASE(a_work_timeout_fails_all);
  CASE(closing_ends_pending_work);
  CASE(a_device_in_error_is_gone_for_the_others);
  CASE(a_rank_that_left_is_gone);
  CASE(parts_of_parts);
  CASE(wrong_calls_are_refused);
  CASE(fault_makes_a_communicator_fail);
  CASE(fault_makes_work_hang_until_it_is_aborted);
  CASE(fault_of_a_device_is_seen_by_the_peers);
  CASE(trace_tells_the_calls);
  CASE(emulate_passes_it_where_it_can);
#undef CASE
  for (uint32_t i = seed; i < seed + programs; ++i) {
    cases.emplace_back("program in threads, seed " + std::to_string(i), [i] { a_program_in_threads(i); });
  }
  for (const auto& [name, body] : cases) {
    if (name.find(only) != std::string::npos) report(name, body);
  }
  return failures;
}
