// modules/unit.cpp: units by their text, each compiled under its own lock; the background threads.
#include "modules/unit.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "modules/progress.h"
#include "modules/sources.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"

namespace backplane {
namespace unit_impl {
namespace {

constexpr size_t kLogLines = 20;

struct Counters {
  std::atomic<uint64_t> compiled{0}, from_cache{0}, failed{0}, waiting{0};
};
Counters counters;

std::string options() { return env("COMPILER_OPTIONS").value_or(""); }

std::string text_of(const Target& target, const KernelSource& source) {
  if (!source.triton.empty()) return source.text;
  const bp_target_properties& p = target.properties;
  std::string text = source.definitions;
  const auto define = [&](const char* name, uint64_t value) { text += c10::str("#define ", name, " ", value, "\n"); };
  define("BP_GROUP", p.group_size);
  define("BP_PER_ITEM", source.per_item);
  define("BP_HAS_F64", (p.dtypes & BP_DTYPE_FLOAT64) != 0 ? 1 : 0);
  define("BP_VECTOR_BYTES", p.vector_bytes);
  text += target.prelude;
  text += '\n';
  text += source_text("core.bpc");
  for (const char* file : source.files) {
    text += '\n';
    text += source_text(file);
  }
  text += source.text;
  return text;
}

std::string key_of(const Target& target, const KernelSource& source, const std::string& text) {
  const std::string user_options = options();
  if (source.triton.empty()) return cache_key({target.compiler, target.properties.target, user_options, text});
  const std::string hints = c10::str("ttir ", source.triton, " ", source.num_warps, " ", source.num_stages);
  return cache_key({target.compiler, target.properties.target, user_options, hints, text});
}

std::string first_lines(const std::string& log) {
  size_t end = 0;
  for (size_t line = 0; line < kLogLines && end != std::string::npos; ++line) end = log.find('\n', end == 0 ? 0 : end + 1);
  return end == std::string::npos || end + 1 >= log.size() ? log : log.substr(0, end) + "\n...";
}

struct Compiled {
  int32_t status;
  Code code;
  std::string reason;  // if there is no code
};

Compiled run_compiler(const bp_compiler& compiler, const std::string& target, const KernelSource& source, const std::string& text) {
  const CompilingLine line(source.name);
  const std::string user_options = options();
  bp_compile_request request{};
  request.struct_size = sizeof request;
  request.target = target.c_str();
  request.source = text.c_str();
  request.name = source.name.c_str();
  request.options = user_options.c_str();
  const bool ttir = !source.triton.empty();
  if (ttir) {
    request.language = BP_LANGUAGE_TTIR;
    request.triton = source.triton.c_str();
    request.num_warps = source.num_warps;
    request.num_stages = source.num_stages;
  }
  bp_compile_result result{};
  result.struct_size = sizeof result;
  Compiled made{compiler.compile(compiler.head.self, &request, &result), {}, ""};
  if (made.status == BP_OK) {
    const auto* bytes = static_cast<const char*>(result.code);
    made.code = ttir ? with_ttir_facts(result) : Code(bytes, bytes + result.bytes);
  } else if (made.status == BP_INVALID_ARGUMENT && result.log != nullptr) {
    made.reason = first_lines(result.log);
  } else if (made.status == BP_UNSUPPORTED) {
    made.reason = last_error_text();
  } else {
    made.reason = status_message(made.status, "bp.compiler.compile", -1, last_error_text());
  }
  if (result.log != nullptr) compiler.release(compiler.head.self, &result);
  return made;
}

// The loaded driver, which is not opened.
const bp_compiler& compiler_without_device() {
  const Driver* driver = loaded_driver();
  TORCH_CHECK(driver != nullptr && driver->compiler != nullptr, "The driver of ", device_name(),
              " compiles no kernels: it has no bp.compiler");
  return *driver->compiler;
}

// A kernel for a target that need not be present, and its key.
struct Text {
  std::string text, key;
};
Text text_for(const std::string& target_name, const KernelSource& source) {
  compiler_without_device();  // raises its own error before that of an unknown target
  const Target target = target_named(target_name);
  std::string text = text_of(target, source);
  std::string key = key_of(target, source, text);
  return {std::move(text), std::move(key)};
}

// One text for one target.
class Unit {
 public:
  Unit(KernelSource source, std::string target, std::string key, std::string text)
      : source_(std::move(source)), target_(std::move(target)), key_(std::move(key)), text_(std::move(text)) {}

  const KernelSource& source() const { return source_; }
  const std::string& name() const { return name_; }
  bool is_settled() const { return settled_.load(std::memory_order_acquire); }
  std::string failure() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }

  // Compiles, or reads from the cache, unless that is done. Does not throw if the compiler fails.
  void settle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_settled()) return;
    make_code();
    settled_.store(true, std::memory_order_release);
  }

  // Loads it on a device. NULL if there is no code.
  const Function* function(c10::DeviceIndex device, const KernelSource& source, const Target& target) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) return nullptr;
    Loaded& loaded = loaded_.at(static_cast<size_t>(device));
    const auto known = loaded.functions.find(source.kernel);
    if (known != loaded.functions.end()) return &known->second;
    if (loaded.module == nullptr) loaded.module = load(device);
    const bool ttir = !source_.triton.empty();
    const TtirFacts facts = ttir ? ttir_facts_of(code_) : TtirFacts{source.kernel, "", target.properties.group_size};
    bp_function* handle = nullptr;
    call<&bp_module::function>(device, loaded.module, facts.kernel.c_str(), &source.signature, &handle,
                               static_cast<bp_function_properties*>(nullptr));
    return &loaded.functions.emplace(source.kernel, Function{handle, facts.group_size, name_.c_str()}).first->second;
  }

  // Of TTIR that is settled.
  TtirFacts facts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(failure_.empty(), failure_);
    return ttir_facts_of(code_);
  }

 private:
  void make_code() {
    if (take(read_offered(key_)) || take(read_bundle(key_)) || take(read_cache(key_))) return;
    const CacheLock lock(key_);
    if (take(read_cache(key_))) return;  // another process was first
    compile();
    if (failure_.empty()) write_cache(key_, code_);
  }

  bool take(std::optional<Code> known) {
    if (!known) return false;
    code_ = std::move(*known);
    is_cached_ = true;
    ++counters.from_cache;
    return true;
  }

  void compile() {
    is_cached_ = false;
    Compiled compiled = run_compiler(*open_driver().compiler, target_, source_, text_);
    if (compiled.status == BP_OK) {
      code_ = std::move(compiled.code);
      ++counters.compiled;
    } else if (compiled.status == BP_UNSUPPORTED) {  // a tier 0 device; not an error
      failure_ = "there is no compiler: " + compiled.reason;
    } else {
      fail(compiled.reason);
    }
  }

  void fail(const std::string& reason) {
    ++counters.failed;
    const std::string kept = keep_failed_source(key_, text_, source_.triton.empty() ? ".c" : ".ttir");
    failure_ = c10::str("The kernel ", name_, " of ", device_name(), " could not be compiled for ", target_, ":\n", reason,
                        kept.empty() ? "" : "\nIts source is kept in " + kept);
    if (kernel_policy() != KernelPolicy::strict && source_.text.empty()) {
      TORCH_WARN(failure_, "\nThe operator is computed without it. " BACKPLANE_ENV_PREFIX
                           "_KERNELS=strict makes this an error, =off disables "
                           "compiled kernels");
    }
  }

  bp_module_code* load(c10::DeviceIndex device) {
    bp_module_code* module = nullptr;
    const auto load_code = [&] {
      const size_t facts = source_.triton.empty() ? 0 : ttir_facts_of(code_).size;
      return try_call<&bp_module::load>(device, code_.data() + facts, static_cast<uint64_t>(code_.size() - facts), &module);
    };
    int32_t status = load_code();
    if (status == BP_INVALID_ARGUMENT && is_cached_) {  // the cached code is not valid for this driver
      forget_cached(key_);
      compile();
      TORCH_CHECK(failure_.empty(), failure_);
      write_cache(key_, code_);
      status = load_code();
    }
    if (status != BP_OK) throw_status(status, "bp.module.load", device, last_error_text());
    return module;
  }

  const KernelSource source_;
  const std::string& name_ = source_.name;
  const std::string target_, key_, text_;
  std::mutex mutex_;  // held while it compiles: other threads that need it wait
  std::atomic<bool> settled_{false};
  std::string failure_;
  Code code_;
  bool is_cached_ = false;
  struct Loaded {  // on one device
    bp_module_code* module = nullptr;
    std::map<std::string, Function> functions;  // by the kernel's name; references into a map stay valid
  };
  std::array<Loaded, kMaxDevices> loaded_;
};

struct Units {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Unit>> by_key;
};
Units& units() {
  static auto& instance = *new Units;  // functions live until the end of the process
  return instance;
}

Unit& unit_of(const Target& target, const KernelSource& source) {
  std::string text = text_of(target, source);
  std::string key = key_of(target, source, text);
  const std::lock_guard<std::mutex> lock(units().mutex);
  auto& unit = units().by_key[key];
  if (!unit) unit = std::make_unique<Unit>(source, target.properties.target, key, std::move(text));
  return *unit;
}

// The threads that compile in the background: as many as there are processors if each compilation is a process, else one. They end with the
// process; a forked child has none.
class Background {
 public:
  static Background& instance() {
    static auto& background = *new Background;
    return background;
  }

  void add(Unit& unit, const bp_compiler& compiler) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Unit* queued : queued_) {
      if (queued == &unit) return;
    }
    queued_.push_back(&unit);
    todo_.push_back(&unit);
    ++counters.waiting;
    const unsigned most = (compiler.head.flags & BP_COMPILER_SUBPROCESS) != 0 ? std::max(1u, std::thread::hardware_concurrency()) : 1;
    if (threads_ < most && todo_.size() > idle_) {
      ++threads_;
      std::thread([this] { work(); }).detach();
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queued_.empty(); });
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !todo_.empty(); });
      --idle_;
      Unit* const unit = todo_.front();
      todo_.pop_front();
      lock.unlock();
      try {
        unit->settle();
      } catch (const std::exception& error) {  // a lost device: the next request for the kernel raises it
        LOG(WARNING) << "The kernel " << unit->name() << " was not compiled in the background: " << error.what();
      }
      lock.lock();
      --counters.waiting;
      queued_.erase(std::find(queued_.begin(), queued_.end(), unit));
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Unit*> todo_;
  std::vector<const Unit*> queued_;  // waiting, or being compiled
  size_t idle_ = 0;
  unsigned threads_ = 0;
};

std::atomic<KernelPolicy>& policy() {
  static std::atomic<KernelPolicy> instance = [] {
    const std::string word = env("KERNELS").value_or("wait");
    const auto found = kernel_policy_named(word);
    TORCH_CHECK(found, BACKPLANE_ENV_PREFIX "_KERNELS=", word, " is not supported: use wait, background, off or strict");
    return *found;
  }();
  return instance;
}

}  // namespace
}  // namespace unit_impl

std::optional<KernelPolicy> kernel_policy_named(std::string_view word) {
  const auto* const found = std::find(std::begin(kKernelPolicies), std::end(kKernelPolicies), word);
  return found == std::end(kKernelPolicies) ? std::nullopt : std::optional(static_cast<KernelPolicy>(found - std::begin(kKernelPolicies)));
}

KernelPolicy kernel_policy() { return unit_impl::policy().load(std::memory_order_relaxed); }
void set_kernel_policy(KernelPolicy policy) { unit_impl::policy().store(policy, std::memory_order_relaxed); }

const Function* find_function(c10::DeviceIndex device, const KernelSource& source, bool* later) {
  using namespace unit_impl;
  *later = false;
  const Target& target = target_of(device);
  Unit& unit = unit_of(target, source);
  const KernelPolicy now = kernel_policy();
  if (!unit.is_settled()) {
    if (now == KernelPolicy::background) {
      Background::instance().add(unit, *open_driver().compiler);
      *later = true;
      return nullptr;
    }
    unit.settle();
  }
  const Function* function = unit.function(device, source, target);
  if (function == nullptr && now == KernelPolicy::strict) TORCH_CHECK(false, unit.failure());
  return function;
}

const Function& require_function(c10::DeviceIndex device, const KernelSource& source) {
  const Target& target = target_of(device);
  unit_impl::Unit& unit = unit_impl::unit_of(target, source);
  unit.settle();
  const Function* function = unit.function(device, source, target);
  TORCH_CHECK(function != nullptr, unit.failure());
  return *function;
}

TtirFacts ttir_facts(c10::DeviceIndex device, const KernelSource& source) {
  unit_impl::Unit& unit = unit_impl::unit_of(target_of(device), source);
  unit.settle();
  return unit.facts();
}

void finish_compiling() { unit_impl::Background::instance().wait(); }

KernelCounts kernel_counts() {
  const auto& now = unit_impl::counters;
  return {now.compiled, now.from_cache, now.failed, now.waiting};
}

std::vector<KernelSource> wanted_kernels() {
  auto& units = unit_impl::units();
  const std::lock_guard<std::mutex> lock(units.mutex);
  std::vector<KernelSource> sources;
  for (const auto& [key, unit] : units.by_key) sources.push_back(unit->source());
  return sources;
}

std::string precompile(const std::string& target, const KernelSource& source, const std::string& folder) {
  using namespace unit_impl;
  const Text text = text_for(target, source);
  const Compiled made = run_compiler(compiler_without_device(), target, source, text.text);
  if (made.status != BP_OK) return made.reason;
  write_bundle(folder, text.key, made.code);
  return "";
}

std::pair<std::string, Code> code_for(const std::string& target, const KernelSource& source) {
  using namespace unit_impl;
  const Text text = text_for(target, source);
  if (std::optional<Code> known = read_cache(text.key)) return {text.key, std::move(*known)};
  Compiled made = run_compiler(compiler_without_device(), target, source, text.text);
  TORCH_CHECK(made.status == BP_OK, "The kernel ", source.name, " could not be compiled for ", target, ":\n", made.reason);
  write_cache(text.key, made.code);
  return {text.key, std::move(made.code)};
}

std::string why_no_kernel(const std::string& name) {
  auto& units = unit_impl::units();
  const std::lock_guard<std::mutex> lock(units.mutex);
  for (const auto& [key, unit] : units.by_key) {
    if (unit->name() != name || !unit->is_settled()) continue;
    if (std::string failure = unit->failure(); !failure.empty()) return failure;
  }
  return "";
}

}  // namespace backplane
