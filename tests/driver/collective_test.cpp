// tests/driver/collective_test.cpp: bp.collective of the simulated device: random programs of ranks in threads and in processes, ranks that
// are killed at random times, and how communicators fail.
// The exit status is the number of failures.
#include "collective_test/calls.h"
#include "collective_test/failures.h"
#include "collective_test/programs.h"
#include "collective_test/shims.h"
#include "report.h"

int main(int argc, char** argv) {
  programs = 6;
  choose(argc, argv);
  // Processes first: a process with threads does not fork.
  report_seeds("program in processes", a_program_in_processes);
  report_seeds("rank is killed", a_rank_is_killed);
  CASE(a_child_of_a_killed_rank_is_no_rank);
  CASE(a_rank_that_is_taken_is_refused);
  CASE(another_size_is_refused);
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
  CASE(trace_writes_the_calls);
  CASE(emulate_passes_it_where_it_can);
  report_seeds("program in threads", a_program_in_threads);
  return failures;
}
