// check_driver/options.cpp: parses the command line; paths become absolute here, so that nothing depends on the loader's search path.
#include "options.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <string_view>

#include "check.h"

namespace backplane::check {

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) ? resolved : path;
}

namespace options_impl {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string program_path(const char* argv0) {
#if defined(__linux__)
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n > 0) return std::string(path, static_cast<size_t>(n));
#endif
  return absolute(argv0);
}

// "GLOB=WHY" of --expect and --skip. Nothing fails or is left out without a reason, nor by a name that no check has.
Reasoned reasoned(std::string_view flag, const std::string& value) {
  const size_t equals = value.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == value.size()) {
    throw UsageError{std::string(flag) + " needs GLOB=WHY, not \"" + value + "\""};
  }
  const Reasoned result{value.substr(0, equals), value.substr(equals + 1)};
  for (const Check& check : all_checks()) {
    if (fnmatch(result.pattern.c_str(), check.id, 0) == 0) return result;
  }
  throw UsageError{std::string(flag) + " " + result.pattern + " matches no check; --list prints them"};
}

}  // namespace options_impl

const char* usage() {
  return "usage: backplane-check-driver PATH [options]\n"
         "\n"
         "Checks that the driver PATH (a shared object that exports bp_driver_get) keeps the contract of backplane/driver.h.\n"
         "\n"
         "  --options STR      the driver's option string, \"key=value,key=value\"; a key \"shim.key\" goes to that shim\n"
         "  --shim NAME|PATH   a shim above the driver, outermost first; repeatable. A NAME is one of the SDK's (emulate, fault,\n"
         "                     trace)\n"
         "  --only GLOB        only the checks whose name matches, \"memory.*\"; repeatable\n"
         "  --expect GLOB=WHY  these checks are to fail; one that passes is reported, and fails the run; repeatable\n"
         "  --skip GLOB=WHY    these checks are not run; repeatable. Both reasons are in the report\n"
         "  --time-limit SEC   a check that takes longer has hung (default 20)\n"
         "  --junit FILE       write the result as JUnit XML, too\n"
         "  --list             print the checks and exit\n"
         "  --help             print this and exit\n"
         "\n"
         "exit: 0 all that is offered passed\n"
         "      1 a check failed, or one that is expected to fail passed\n"
         "      2 wrong usage, or a driver that cannot be loaded\n"
         "      3 none failed, but of a family that the driver offers no check could be run, and no --skip says why\n";
}

Options parse_options(int argc, char** argv) {
  Options options;
  options.program_dir = options_impl::directory_of(options_impl::program_path(argv[0]));
  bool flags_end = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (flags_end || arg.size() < 2 || arg[0] != '-') {
      if (!options.driver.empty()) throw UsageError{"more than one driver is given: " + options.driver + " and " + std::string(arg)};
      options.driver = arg;
      continue;
    }
    if (arg == "--") {
      flags_end = true;
      continue;
    }
    std::string value;
    bool has_value = false;
    if (const size_t equals = arg.find('='); equals != std::string_view::npos) {
      value = arg.substr(equals + 1);
      arg = arg.substr(0, equals);
      has_value = true;
    }
    const auto take = [&]() -> const std::string& {
      if (!has_value) {
        if (++i >= argc) throw UsageError{std::string(arg) + " needs a value"};
        value = argv[i];
        has_value = true;
      }
      return value;
    };
    const auto flag = [&](bool& out) {
      if (has_value) throw UsageError{std::string(arg) + " takes no value"};
      out = true;
    };
    if (arg == "--options") {
      options.config = take();
    } else if (arg == "--shim") {
      if (take().empty()) throw UsageError{"--shim needs a name or a path"};
      options.shims.push_back(value);
    } else if (arg == "--only") {
      options.only.push_back(take());
    } else if (arg == "--expect") {
      options.expected.push_back(options_impl::reasoned(arg, take()));
    } else if (arg == "--skip") {
      options.skipped.push_back(options_impl::reasoned(arg, take()));
    } else if (arg == "--junit") {
      if (take().empty()) throw UsageError{"--junit needs a file name"};
      options.junit = value;
    } else if (arg == "--time-limit") {
      char* end = nullptr;
      options.limit_s = strtod(take().c_str(), &end);
      if (value.empty() || *end || !(options.limit_s > 0)) throw UsageError{"--time-limit needs seconds, not \"" + value + "\""};
    } else if (arg == "--list") {
      flag(options.list);
    } else if (arg == "--help" || arg == "-h") {
      flag(options.help);
    } else {
      throw UsageError{"unknown option " + std::string(arg)};
    }
  }
  if (options.help) return options;
  if (!options.only.empty()) {
    bool any = false;
    for (const Check& check : all_checks()) any = any || selected(options, check.id);
    if (!any) throw UsageError{"--only " + options.only.front() + " matches no check; --list prints them"};
  }
  if (options.list) return options;
  if (options.driver.empty()) throw UsageError{"no driver is given"};
  if (access(options.driver.c_str(), F_OK) != 0) throw UsageError{"there is no file " + options.driver};
  options.driver = absolute(options.driver);
  return options;
}

bool selected(const Options& options, const char* id) {
  for (const std::string& pattern : options.only) {
    if (fnmatch(pattern.c_str(), id, 0) == 0) return true;
  }
  return options.only.empty();
}

const std::string* reason_for(const std::vector<Reasoned>& list, const char* id) {
  for (const Reasoned& one : list) {
    if (fnmatch(one.pattern.c_str(), id, 0) == 0) return &one.reason;
  }
  return nullptr;
}

}  // namespace backplane::check
