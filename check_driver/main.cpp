// check_driver/main.cpp: backplane-check-driver, the contract checker. Needs neither torch nor Python.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "report.h"

namespace backplane::check {
namespace {

enum ExitCode { all_passed = 0, some_failed = 1, unusable = 2, incomplete = 3 };  // usage() says what they mean

int run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const Table table(options);
  const Account account = describe(options);
  table.head(account);
  std::vector<Result> results;
  ExitCode code = all_passed;
  for (const Check& check : all_checks()) {
    const bool loads = std::string_view(check.id).substr(0, 5) == "load.";
    const bool wanted = selected(options, check.id);
    if (!wanted && !loads) continue;
    const Result result = run_check(options, check);
    if (result.outcome == Outcome::load_error) {
      fprintf(stderr, "error: %s\n", result.text.c_str());
      return unusable;
    }
    const bool failed = result.outcome == Outcome::failed || result.outcome == Outcome::unexpected;
    // Without --only load.* its rows are silent as long as they pass.
    if (wanted || failed) {
      results.push_back(result);
      table.row(result);
    }
    if (failed) code = some_failed;
    if (result.outcome == Outcome::failed && loads && account.devices.empty()) {
      code = unusable;
      break;
    }
  }
  table.foot(results, seconds());
  const std::vector<std::string> missing = families_not_run(results);
  for (const std::string& family : missing) printf("  Not run at all: %s.\n", family.c_str());
  if (!missing.empty() && code == all_passed) code = incomplete;
  const auto is_dialect = [](const Result& result) {
    return std::string_view(result.check->id).substr(0, 8) == "dialect." && result.outcome == Outcome::passed;
  };
  if (code == all_passed && std::any_of(results.begin(), results.end(), is_dialect)) {
    printf("  Next: `torch-backplane conformance --suite compiled`, which holds whole operators that this compiler makes.\n");
  }
  if (code == unusable) printf("  The driver cannot be loaded: nothing else was checked.\n");
  if ((code == all_passed || code == incomplete) && account.devices == "0") {
    printf("  The driver has no device: only what needs none was checked.\n");
    code = unusable;
  }
  if (!options.junit.empty() && !write_junit(options, results, seconds())) {
    fprintf(stderr, "error: cannot write %s: %s\n", options.junit.c_str(), strerror(errno));
    code = unusable;
  }
  return code;
}

}  // namespace
}  // namespace backplane::check

int main(int argc, char** argv) {
  using namespace backplane::check;
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      fputs(usage(), stdout);
      return 0;
    }
    if (options.list) {
      for (const Check& check : all_checks()) {
        if (selected(options, check.id)) printf("%-24s %s\n", check.id, check.what);
      }
      return 0;
    }
    return run(options);
  } catch (const UsageError& error) {
    fprintf(stderr, "error: %s\n\n%s", error.text.c_str(), usage());
    return 2;
  }
}
