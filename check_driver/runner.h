// check_driver/runner.h: runs one check in its own process, so that a crash or a hang fails that check alone.
#pragma once

#include <string>

#include "check.h"
#include "options.h"

namespace backplane::check {

// expected: failed, as --expect says. unexpected: passed, although --expect says that it fails.
enum class Outcome { passed, failed, not_offered, not_run, skipped, expected, unexpected, load_error };

struct Result {
  const Check* check = nullptr;
  Outcome outcome = Outcome::passed;
  std::string text;    // why not passed
  std::string reason;  // of --expect or --skip
  std::string rule;    // the sentence of driver.h that is broken
  std::string output;  // what the driver printed
  double seconds = 0;

  std::string family() const;
};

long count_of(const std::vector<Result>& results, Outcome outcome);

// Families of which checks were not run, and none was: "wait (could not be held: ...)", in the order of the report.
std::vector<std::string> families_not_run(const std::vector<Result>& results);

// Nothing of the driver is ever loaded into the calling process.
Result run_check(const Options& options, const Check& check);

// What is under test, for the report's head. The text is empty if it could not be found out.
struct Account {
  std::string shims;    // files, outermost first, " over " between them
  std::string note;     // of the loader
  std::string devices;  // "2: sim (1.0 GiB), sim (1.0 GiB)"
};
Account describe(const Options& options);

}  // namespace backplane::check
