// drivers/sim/compiler.h: bp.compiler on the simulated device: the C compiler of the machine, in a process of its own.
//
// No lock and no thread: it works in a forked child, whatever other threads did at the fork. A compilation has a private folder, which is
// also where the compiler puts its own temporary files, and of which nothing is left, however it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <backplane/driver/cxx/code.hpp>
#include <backplane/driver/cxx/compiler.hpp>
#include <backplane/driver/cxx/driver.hpp>

#include "child.h"
#include "probe.h"
#include "settings.h"
#include "targets.h"
#include "translator.h"

namespace backplane::driver::sim {

class Compiler {
 public:
  /// The option compiler: a path, or a name on PATH, with arguments if need be; "" for $CC, cc, gcc or clang, whichever is there; "none"
  /// for none.
  Compiler(const Host& host, const Settings& settings);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // As CompilerEntries asks.
  std::string id() const;
  std::vector<bp_target_properties> targets() const;
  bp_target_properties target(int32_t device) const;
  const char* prelude(const char*) const { return prelude_.c_str(); }
  Compiled compile(const bp_compile_request& request) const;

  uint64_t prelude_sum() const { return prelude_sum_; }

 private:
  /// The compiler of this machine, looked for when it is first needed.
  struct Found {
    std::vector<std::string> words;  // path and first arguments; empty: there is none
    std::string version;             // the first line of --version
    std::string looked_for;
  };
  const Found& found() const;
  std::unique_ptr<Found> look() const;
  Compiled compile_ttir(const bp_compile_request& request, const PrivateFolder& folder) const;
  /// source: of the dialect.
  Compiled compile_unit(const bp_compile_request& request, const std::string& source, const PrivateFolder& folder) const;
  /// What the compiler gets right, tried on this machine's own target when a kernel is first compiled.
  const Optimization& optimization() const;
  /// The compiler with the flags of every kernel.
  std::vector<std::string> command_for(const Target& target) const;

  const Host host_;
  const Settings& settings_;
  const std::string prelude_;
  const uint64_t prelude_sum_;
  const Translator translator_{settings_.python};
  mutable std::atomic<const Found*> found_{nullptr};
  mutable std::atomic<const Optimization*> optimization_{nullptr};
};

}  // namespace backplane::driver::sim
