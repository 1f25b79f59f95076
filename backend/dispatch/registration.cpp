// dispatch/registration.cpp: runs the blocks of backplane/registration.h at load and keeps their errors for the import to raise.
#include "dispatch/registration.h"

#include <backplane/signature.h>
#include <backplane/structured.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "dispatch/core_kernels.h"
#include "runtime/errors.h"

namespace backplane {
namespace registration_impl {
namespace {

c10::OperatorName operator_name(std::string name) {
  if (name.find("::") == std::string::npos) name = "aten::" + name;
  const size_t dot = name.find('.');
  return {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)};
}

// A kernel that was registered before its operator was defined; torch compares the signatures at the definition.
struct Early {
  std::string op;
  std::string site;
  const char* python_module;  // or NULL
};

struct Needs {
  const char* text;
  bool (*can_run)();
};

struct State {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<Early> early;
  std::vector<PythonModule> modules;
  std::map<std::string, std::string> kernels;  // "key vendor::op" -> site
  std::set<std::string> names;
  std::map<std::string, std::vector<c10::ScalarType>> dtypes;  // that kernels declare to support
  std::map<std::string, Needs> needs;                          // what kernels require to run
  // Lives as long as the process: destroying one removes its kernels.
  std::vector<std::unique_ptr<torch::Library>> libraries;
  std::vector<c10::RegistrationHandleRAII> registrations;
  bool reported = false;
};

// The order of static initializers is undefined, so this is not a namespace-scope object.
State& state() {
  static State* const instance = new State;
  return *instance;
}

torch::Library& make_library(const detail::Site& site, const char* key) {
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, site.name_space, c10::parseDispatchKey(key), site.file, site.line);
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return *s.libraries.emplace_back(std::move(library));
}

std::string text(const detail::Site& site) { return std::string(site.file) + ":" + std::to_string(site.line); }

// As torch::Library::impl(), which also parses the name.
void register_function(const Kernels& kernels, const char* name, c10::KernelFunction function,
                       std::optional<c10::impl::CppSignature> signature, std::unique_ptr<c10::FunctionSchema> schema) {
  auto registration = c10::Dispatcher::singleton().registerImpl(operator_name(std::string(kernels.name_space()) + "::" + name),
                                                                c10::parseDispatchKey(kernels.key()), std::move(function), signature,
                                                                std::move(schema), "registered at " + text(kernels.site()));
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.registrations.push_back(std::move(registration));
}

std::string missing(const Early& kernel) {
  if (kernel.python_module == nullptr) {
    return c10::str(
        kernel.site, ": there is no operator ", kernel.op,
        ". Define it by BACKPLANE_LIBRARY (backplane/library.h), correct the name, or, if Python defines it, name the module at "
        "the block's start: m.python_module(\"package.module\")");
  }
  return c10::str(kernel.site, ": there is no operator ", kernel.op, ": ", kernel.python_module,
                  " was imported for it and has not defined it. Define it there, or correct the name");
}

}  // namespace
}  // namespace registration_impl

std::optional<std::vector<c10::ScalarType>> declared_dtypes(const std::string& op) {
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.dtypes.find(op);
  if (found == s.dtypes.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> unmet_needs(const std::string& op) {
  registration_impl::Needs needs{};
  {
    registration_impl::State& s = registration_impl::state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    const auto found = s.needs.find(op);
    if (found == s.needs.end()) return std::nullopt;
    needs = found->second;
  }
  if (needs.can_run()) return std::nullopt;
  return needs.text;
}

std::vector<std::string> registration_errors(bool before_python) {
  using namespace registration_impl;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.reported = true;
  std::vector<std::string> errors = s.errors;
  for (const Early& kernel : s.early) {
    if (before_python && kernel.python_module != nullptr) continue;
    if (!c10::Dispatcher::singleton().findSchema(operator_name(kernel.op))) errors.push_back(missing(kernel));
  }
  return errors;
}

std::vector<PythonModule> python_modules() {
  const std::lock_guard<std::mutex> lock(registration_impl::state().mutex);
  return registration_impl::state().modules;
}

Kernels::Kernels(const detail::Site& site, const char* key)
    : site_(site), key_(key), library_(registration_impl::make_library(site, key)) {}

void Kernels::python_module(const char* name) {
  python_module_ = name;
  detail::add_python_module(site_, name);
}

const char* Kernels::full_name(const char* name) const {
  if (site_.name_space == std::string_view("aten")) return name;
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return s.names.insert(std::string(site_.name_space) + "::" + name).first->c_str();
}

void Kernels::check(const char* name) const {
  using namespace registration_impl;
  const std::string op = std::string(site_.name_space) + "::" + name;
  const bool is_aten = site_.name_space == std::string_view("aten");
  const auto found = c10::Dispatcher::singleton().findSchema(operator_name(op));
  TORCH_CHECK(found || !is_aten, "there is no operator ", op, " in this torch; torch._C._dispatch_get_all_op_names() lists them");
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto [first, is_first] = s.kernels.emplace(key_ + (" " + op), text(site_));
  TORCH_CHECK(is_first, op, " has a kernel for ", key_, " already, registered at ", first->second, ". Keep one of the two");
  if (!found) s.early.push_back({op, text(site_), python_module_});
}

void CoreKernels::add_boxed(const char* name, c10::BoxedKernel kernel) {
  registration_impl::register_function(*this, name, c10::KernelFunction::makeFromBoxedKernel(std::move(kernel)), std::nullopt, nullptr);
}

namespace detail {

void add_python_module(const Site& site, const char* name) {
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (const PythonModule& module : s.modules) {
    if (module.name == name) return;
  }
  s.modules.push_back({name, registration_impl::text(site)});
}

void add_registration_error(const Site& site, const std::exception& error) {
  const std::string text = registration_impl::text(site) + ": " + text_of(error);
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.errors.push_back(text);
  if (s.reported) TORCH_WARN("not registered: ", text, ". torch_backplane.ops.load_library(path) raises this as an ImportError");
}

template <typename Block>
static void run_block(const Site& site, const char* key, void (*block)(Block&)) {
  try {
    Block kernels(site, key);
    block(kernels);
  } catch (const std::exception& error) {
    add_registration_error(site, error);
  }
}

Registration::Registration(const Site& site, const char* key, void (*block)(Kernels&)) { run_block(site, key, block); }

CoreRegistration::CoreRegistration(const Site& site, const char* key, void (*block)(CoreKernels&)) { run_block(site, key, block); }

void declare_dtypes(const Kernels& kernels, const char* name, const c10::ScalarType* dtypes, size_t count) {
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.dtypes[std::string(kernels.name_space()) + "::" + name] = {dtypes, dtypes + count};
}

void declare_needs(const Kernels& kernels, const char* name, const char* needs, bool (*can_run)()) {
  registration_impl::State& s = registration_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.needs[std::string(kernels.name_space()) + "::" + name] = {needs, can_run};
}

void register_kernel(const Kernels& kernels, const char* name, TypedKernel kernel) {
  auto schema = std::make_unique<c10::FunctionSchema>(c10::detail::infer_schema::make_function_schema(kernel.arguments, kernel.returns));
  registration_impl::register_function(kernels, name, std::move(kernel.function), kernel.signature, std::move(schema));
}

c10::OperatorHandle find_operator(const char* name) {
  const c10::OperatorName parsed = registration_impl::operator_name(name);
  return c10::Dispatcher::singleton().findSchemaOrThrow(parsed.name.c_str(), parsed.overload_name.c_str());
}

}  // namespace detail
}  // namespace backplane
