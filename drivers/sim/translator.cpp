// drivers/sim/translator.cpp: finds Python, runs the lowering, and reads the file that it writes.
#include "translator.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "child.h"

namespace backplane::driver::sim {
namespace {

constexpr const char* kModule = "torch_backplane.triton.translate";

// sys.executable of the interpreter in this process, "" without one.
std::string own_python() {
  const auto initialized = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  const auto path = reinterpret_cast<const wchar_t* (*)()>(::dlsym(RTLD_DEFAULT, "Py_GetProgramFullPath"));
  const wchar_t* wide = initialized && path && initialized() ? path() : nullptr;
  std::array<char, 4096> text{};
  return wide && std::wcstombs(text.data(), wide, text.size() - 1) != static_cast<size_t>(-1) ? text.data() : "";
}

}  // namespace

std::string Translator::find_python() const {
  if (!python_.empty()) return find_program(python_);
  const char* variable = std::getenv("PYTHON");
  for (const std::string& name : {own_python(), std::string(variable ? variable : ""), std::string("python3")}) {
    if (std::string found = find_program(name); !found.empty()) return found;
  }
  return "";
}

const std::string& Translator::id() const {
  if (const std::string* known = id_.load(std::memory_order_acquire)) return *known;
  std::string text = "without Python";
  if (const std::string python = find_python(); !python.empty()) {
    const PrivateFolder folder;
    const std::string file = folder.path() + "/id";
    run_child({python, "-m", kModule, "--id", "--out", file}, "", folder.path());
    text = read_file(file);
    if (text.empty()) text = "without " + std::string(kModule);
  }
  auto* mine = new std::string(text);
  const std::string* first = nullptr;
  if (id_.compare_exchange_strong(first, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;  // another thread was faster
  return *first;
}

Translated Translator::translate(const bp_compile_request& request, const bp_target_properties& target, const std::string& folder) const {
  const auto broke = [&](bp_status status, const std::string& why) {
    throw Error(status, "compiler.compile: " + std::string(request.name) + ": " + why);
  };
  const std::string python = find_python();
  const std::string looked_for = python_.empty() ? "the Python of this process, $PYTHON and python3" : python_ + " (the option python)";
  if (python.empty()) broke(BP_UNSUPPORTED, "TTIR needs Python on this machine: looked for " + looked_for);
  const std::string file = folder + "/unit";
  const Ended ended = run_child({python, "-m", kModule, "--items", std::to_string(target.group_size), "--subgroup",
                                 std::to_string(target.subgroup_size), "--out", file},
                                request.source, folder);
  std::istringstream text(read_file(file));
  std::string outcome;
  Translated out;
  text >> outcome;
  if (outcome == "right") text >> out.local_bytes >> out.parameters;
  std::string rest{std::istreambuf_iterator<char>(text.ignore(1)), {}};
  if (outcome == "right") {
    if (out.parameters == "-") out.parameters.clear();
    out.unit = std::move(rest);
  } else if (outcome == "wrong") {
    out.log = std::move(rest);
  } else if (outcome == "broken") {
    broke(BP_INTERNAL, rest);
  } else {
    broke(BP_UNSUPPORTED, python + " -m " + kModule + " does not run: " + ended.output.substr(0, 600) +
                              "; install torch-backplane there, or name another Python by the option python=");
  }
  return out;
}

}  // namespace backplane::driver::sim
