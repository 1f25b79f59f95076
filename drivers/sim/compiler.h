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

#include <backplane/driver/compiler.h>
#include <backplane/driver/cxx/driver.hpp>

#include "probe.h"
#include "targets.h"

namespace backplane::driver::sim {

/// The first line of a log that says what is wrong.
std::string first_error(const std::string& log);

class Compiler {
 public:
  /// wanted: a path, or a name on PATH, with arguments if need be; "" for $CC, cc, gcc or clang, whichever is there; "none" for none.
  /// items: as many a group has at most.
  Compiler(const Host& host, std::string wanted, uint32_t items);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  std::string id() const;
  /// Throws for a target that it does not know.
  const char* prelude_of(const char* target) const;
  uint64_t prelude_sum() const { return prelude_sum_; }

  struct Output {
    std::string code;  // "": the source is wrong
    std::string log;
  };
  /// Throws Error, unless it is the source that is wrong.
  std::unique_ptr<Output> compile(const bp_compile_request& request) const;

 private:
  /// The compiler of this machine, looked for when it is first needed.
  struct Found {
    std::vector<std::string> words;  // path and first arguments; empty: there is none
    std::string version;             // the first line of --version
    std::string looked_for;
  };
  const Found& found() const;
  std::unique_ptr<Found> look() const;
  /// What the compiler gets right, tried on this machine's own target when a kernel is first compiled.
  const Optimization& optimization() const;
  /// The compiler with the flags of every kernel.
  std::vector<std::string> command_for(const Target& target) const;

  const Host host_;
  const std::string wanted_;
  const uint32_t items_;
  const std::string prelude_;
  const uint64_t prelude_sum_;
  mutable std::atomic<const Found*> found_{nullptr};
  mutable std::atomic<const Optimization*> optimization_{nullptr};
};

}  // namespace backplane::driver::sim
