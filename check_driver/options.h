// check_driver/options.h: the command line, and the option string of the driver and its shims.
#pragma once

#include <string>
#include <vector>

namespace backplane::check {

// "--skip ipc.*=the board has one process": checks by a pattern, and why.
struct Reasoned {
  std::string pattern;
  std::string reason;
};

struct Options {
  std::string driver;              // absolute path
  std::string config;              // as given: "devices=2,fault.alloc=17"
  std::vector<std::string> shims;  // names or paths, outermost first
  std::vector<std::string> only;   // patterns of check names; empty: all
  std::vector<Reasoned> expected;  // checks that are to fail
  std::vector<Reasoned> skipped;   // checks that are not run
  std::string junit;               // file to write; empty: none
  double limit_s = 20;             // a check that takes longer hangs
  bool list = false;
  bool help = false;
  std::string program_dir;  // where this program lies: SDK shims are looked for in ../lib
};

struct UsageError {
  std::string text;
};

const char* usage();

// The path without links and from the root; as given if there is no such file.
std::string absolute(const std::string& path);

// Throws UsageError.
Options parse_options(int argc, char** argv);

// True if the check's name matches one of the patterns, or there are none.
bool selected(const Options& options, const char* id);

// The reason of the first pattern that matches the check's name; NULL if there is none.
const std::string* reason_for(const std::vector<Reasoned>& list, const char* id);

}  // namespace backplane::check
