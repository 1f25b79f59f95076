// tests/driver/nccl_test.cpp: what check-driver does not hold of bp.collective over NCCL: which calls of NCCL an entry makes, what older
// versions lack, NCCL's errors one by one, and ends that NCCL holds up. nccl_test DRIVER CUDA NCCL; prints a line for each case.
#include <cstdlib>

#include "nccl_test/calls.h"
#include "nccl_test/errors.h"
#include "nccl_test/loading.h"
#include "nccl_test/ranks.h"
#include "report.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  driver_path = argv[1], fake_path = argv[2], nccl_path = argv[3];
  setenv("FAKE_CUDA", fake_path.c_str(), 1);
  report("absent", absent);
  report("versions", versions);
  report("configs", configs);
  report("life", life);
  report("recorded", recorded);
  report("reductions", reductions);
  report("moves", moves);
  report("groups", groups);
  report("refused", refused);
  report("captured", captured);
  report("both ranks", both_ranks);
  report("aborts", aborts);
  report("errors", errors);
  report("failures of communicators", failures_of_communicators);
  report("peers that do not come", peers_that_do_not_come);
  report("late ranks", late_ranks);
  report("left", left);
  return failures;
}
