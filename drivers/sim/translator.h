// drivers/sim/translator.h: TTIR becomes a unit of the dialect, by torch_backplane.triton.translate in a process of Python.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <backplane/driver/compiler.h>

namespace backplane::driver::sim {

struct Translated {
  std::string unit;  // behind the prelude; "": the module is wrong
  std::string log;
  std::string parameters;
  uint32_t local_bytes = 0;
};

class Translator {
 public:
  /// The option python: a path, or a name on PATH; "" for the Python of this process, $PYTHON or python3.
  explicit Translator(const std::string& python) : python_(python) {}
  ~Translator() { delete id_.load(); }
  Translator(const Translator&) = delete;
  Translator& operator=(const Translator&) = delete;

  /// Names the lowering and its release.
  const std::string& id() const;
  /// For one target. Throws if there is no Python, or none with torch_backplane. folder: a private one.
  Translated translate(const bp_compile_request& request, const bp_target_properties& target, const std::string& folder) const;

 private:
  std::string find_python() const;

  const std::string python_;
  mutable std::atomic<const std::string*> id_{nullptr};
};

}  // namespace backplane::driver::sim
