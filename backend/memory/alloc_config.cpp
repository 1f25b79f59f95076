// memory/alloc_config.cpp: parses the allocator's settings; a setting that is unknown, or not supported here, is an error.
#include "memory/alloc_config.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "memory/block.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "torch/compat.h"

namespace backplane::memory {
namespace alloc_config_impl {
namespace {

constexpr size_t kIntervals = 16;  // from 1 MiB, 2 MiB, ... 32 GiB on

std::string without_spaces(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) result += c;
  }
  return result;
}

template <typename Number>
Number number(std::string_view key, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size(), "allocator setting ", key, ": expected a number, got '", text,
                    "'");
  return value;
}

// Splits at commas outside brackets.
std::vector<std::string_view> items(std::string_view text) {
  std::vector<std::string_view> found;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > begin) found.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return found;
}

size_t division(std::string_view text) {
  const auto value = number<size_t>("roundup_power2_divisions", text);
  TORCH_CHECK_VALUE(std::has_single_bit(value), "allocator setting roundup_power2_divisions: ", value, " is not a power of two");
  return value;
}

// The interval that contains a size: the i-th begins at 2^i MiB, the first at 0.
size_t interval(size_t bytes) {
  const size_t mib = bytes >> 20;
  return std::min<size_t>(mib == 0 ? 0 : std::bit_width(mib) - 1, kIntervals - 1);
}

// "4" for all sizes, or "[64:8,256:4,>:2]", as c10 reads it (its documentation is one interval off): a size names the interval that it
// begins, the first one also all intervals below, ">" all above the last. Sizes in other intervals are not rounded.
std::vector<size_t> parse_divisions(std::string_view text) {
  if (text.empty() || text.front() != '[') return std::vector<size_t>(kIntervals, division(text));
  TORCH_CHECK_VALUE(text.back() == ']', "allocator setting roundup_power2_divisions: missing ']' in '", text, "'");
  std::vector<size_t> divisions(kIntervals, 0);
  size_t next = 0;  // after the interval that was named last
  for (const auto item : items(text.substr(1, text.size() - 2))) {
    const auto colon = item.find(':');
    TORCH_CHECK_VALUE(colon != std::string_view::npos,
                      "allocator setting roundup_power2_divisions: expected [size_mb:divisions,...], got '", text, "'");
    const auto value = division(item.substr(colon + 1));
    if (item.substr(0, colon) == ">") {
      std::fill(divisions.begin() + static_cast<ptrdiff_t>(next), divisions.end(), value);
      next = kIntervals;
      continue;
    }
    const auto mib = number<size_t>("roundup_power2_divisions", item.substr(0, colon));
    TORCH_CHECK_VALUE(std::has_single_bit(mib), "allocator setting roundup_power2_divisions: size ", mib, " is not a power of two");
    const size_t at = std::min<size_t>(std::bit_width(mib) - 1, kIntervals - 1);
    TORCH_CHECK_VALUE(at >= next, "allocator setting roundup_power2_divisions: sizes must increase, and be in different intervals; got '",
                      text, "'");
    std::fill(divisions.begin() + static_cast<ptrdiff_t>(next == 0 ? 0 : at), divisions.begin() + static_cast<ptrdiff_t>(at) + 1, value);
    next = at + 1;
  }
  return divisions;
}

size_t mebibytes(std::string_view key, std::string_view text) {
  return std::min(number<size_t>(key, text), std::numeric_limits<size_t>::max() >> 20) << 20;
}

bool boolean(std::string_view key, std::string_view text) {
  const bool yes = text == "True" || text == "true";
  TORCH_CHECK_VALUE(yes || text == "False" || text == "false", "allocator setting ", key, ": expected True or False, got '", text, "'");
  return yes;
}

double fraction(std::string_view key, std::string_view text, bool with_ends) {
  const auto value = number<double>(key, text);
  const bool inside = with_ends ? value >= 0 && value <= 1 : value > 0 && value < 1;
  TORCH_CHECK_VALUE(inside, "allocator setting ", key, ": must be between 0 and 1, got ", text);
  return value;
}

void needs_pinned_limits(std::string_view key) {
  TORCH_CHECK_VALUE(compat::kPinnedCacheHasLimits, "allocator setting ", key,
                    ": torch before 2.13 rounds all pinned memory and keeps it; leave the setting out, or install a newer torch");
}

// A setting of CUDA's that has one supported value here.
void must_be(std::string_view key, std::string_view value, bool kept, std::string_view only, std::string_view reason) {
  TORCH_CHECK_VALUE(kept, "allocator setting ", key, ": ", device_name(), " supports only ", only, ", got '", value, "': ", reason);
}

using Set = void (*)(AllocConfig& config, std::string_view key, std::string_view value);

const std::map<std::string_view, Set>& setters() {
  static const auto* all = new std::map<std::string_view, Set>{
      {"backend",
       [](AllocConfig&, std::string_view key, std::string_view value) {
         must_be(key, value, value == "native", "native", "the others are allocators of the CUDA runtime");
       }},
      {"expandable_segments",
       [](AllocConfig& config, std::string_view key, std::string_view value) { config.expandable_segments = boolean(key, value); }},
      {"garbage_collection_threshold",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         config.garbage_collection_threshold = fraction(key, value, /*with_ends=*/false);
       }},
      {"graph_capture_record_stream_reuse",
       [](AllocConfig&, std::string_view key, std::string_view value) {
         must_be(key, value, !boolean(key, value), "False", "memory of recorded streams waits for their events");
       }},
      {"large_segment_size_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         config.large_segment = mebibytes(key, value);
         TORCH_CHECK_VALUE(config.large_segment > kSmallSegment && config.large_segment <= size_t{64} << 30, "allocator setting ", key,
                           ": must be greater than ", kSmallSegment >> 20, " and at most 65536, got ", value);
       }},
      {"max_non_split_rounding_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         config.non_split_rounding = mebibytes(key, value);
         TORCH_CHECK_VALUE(config.non_split_rounding > 0, "allocator setting ", key, ": must be positive, got ", value);
       }},
      {"max_split_size_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) { config.max_split_size = mebibytes(key, value); }},
      {"per_process_memory_fraction", [](AllocConfig& config, std::string_view key,
                                         std::string_view value) { config.memory_fraction = fraction(key, value, /*with_ends=*/true); }},
      {"pinned_max_cached_size_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         needs_pinned_limits(key);
         config.pinned_max_cached = mebibytes(key, value);
       }},
      {"pinned_max_round_threshold_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         needs_pinned_limits(key);
         config.pinned_max_round = mebibytes(key, value);
         TORCH_CHECK_VALUE(std::has_single_bit(config.pinned_max_round), "allocator setting ", key, ": must be a power of two, got ",
                           value);
       }},
      {"pinned_num_register_threads",
       [](AllocConfig& config, std::string_view key, std::string_view value) {
         config.pinned_register_threads = number<size_t>(key, value);
         TORCH_CHECK_VALUE(std::has_single_bit(config.pinned_register_threads) && config.pinned_register_threads <= 128,
                           "allocator setting ", key, ": must be a power of two of at most 128, got ", value);
       }},
      {"pinned_reserve_segment_size_mb",
       [](AllocConfig& config, std::string_view key, std::string_view value) { config.pinned_segment = mebibytes(key, value); }},
      {"pinned_use_background_threads",
       [](AllocConfig&, std::string_view key, std::string_view value) {
         must_be(key, value, !boolean(key, value), "False",
                 "torch's thread would query events after the driver is closed, and not in a forked child; events are queried when memory "
                 "is pinned");
       }},
      {"pinned_use_cuda_host_register",
       [](AllocConfig& config, std::string_view key, std::string_view value) { config.pinned_register = boolean(key, value); }},
      {"release_lock_on_cudamalloc",
       [](AllocConfig&, std::string_view key, std::string_view value) {
         must_be(key, value, boolean(key, value), "True", "no lock is held during a call of the driver");
       }},
      {"roundup_power2_divisions",
       [](AllocConfig& config, std::string_view, std::string_view value) { config.divisions = parse_divisions(value); }},
      {"throw_on_cudamalloc_oom",
       [](AllocConfig&, std::string_view key, std::string_view value) {
         must_be(key, value, !boolean(key, value), "False",
                 "out of memory is raised after the cache was released and the allocation retried");
       }},
  };
  return *all;
}

std::string known() {
  std::string names;
  for (const auto& entry : setters()) names += (names.empty() ? "" : ", ") + std::string(entry.first);
  return names;
}

void read_into(AllocConfig& config, const std::string& given) {
  const std::string text = without_spaces(given);
  for (const auto item : items(text)) {
    const auto colon = item.find(':');
    TORCH_CHECK_VALUE(colon != std::string_view::npos, "allocator settings: expected key:value, got '", item, "'; the keys are ", known());
    const auto key = item.substr(0, colon);
    const auto found = setters().find(key);
    TORCH_CHECK_VALUE(found != setters().end(), "allocator setting '", key, "' is not supported by ", device_name(),
                      "'s allocator; the keys are ", known());
    found->second(config, key, item.substr(colon + 1));
  }
  config.text += (config.text.empty() || text.empty() ? "" : ",") + text;
}

// Checks what depends on two settings, or on the driver.
std::unique_ptr<AllocConfig> checked(std::unique_ptr<AllocConfig> config) {
  TORCH_CHECK_VALUE(config->max_split_size > config->large_segment, "allocator setting max_split_size_mb: must be greater than ",
                    config->large_segment >> 20, " (large_segment_size_mb), got ", config->max_split_size >> 20);
  const Driver* driver = loaded_driver();
  TORCH_CHECK_VALUE(!config->expandable_segments || driver == nullptr || driver->vmm != nullptr,
                    "allocator setting expandable_segments: the driver of ", device_name(),
                    " cannot map memory into reserved addresses (it has no bp.vmm): leave it False");
  TORCH_CHECK_VALUE(config->pinned_register || config->pinned_register_threads == 1,
                    "allocator setting pinned_num_register_threads: requires pinned_use_cuda_host_register:True");
  if (config->pinned_register && driver != nullptr) check_host_register(*driver);
  return config;
}

std::unique_ptr<AllocConfig> from_environment() {
  auto config = std::make_unique<AllocConfig>();
  if (const char* general = std::getenv("PYTORCH_ALLOC_CONF")) read_into(*config, general);
  read_into(*config, env("ALLOC_CONF").value_or(""));
  return checked(std::move(config));
}

std::atomic<const AllocConfig*> current{nullptr};

// Old settings are kept: threads may still read them. The environment's settings apply until the first call that sets some: a thread that
// reads the environment never replaces settings that were set meanwhile.
const AllocConfig* install(std::unique_ptr<AllocConfig> config, bool only_first) {
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<AllocConfig>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const AllocConfig* known = current.load(std::memory_order_relaxed);
  if (only_first && known != nullptr) return known;
  all->push_back(std::move(config));
  current.store(all->back().get(), std::memory_order_release);
  return all->back().get();
}

}  // namespace
}  // namespace alloc_config_impl

size_t AllocConfig::round(size_t bytes) const {
  if (C10_UNLIKELY(!divisions.empty())) {
    const size_t steps = divisions[alloc_config_impl::interval(bytes)];
    if (steps > 1 && bytes > kMinBlock * steps && !std::has_single_bit(bytes)) {
      const size_t step = std::max(std::bit_floor(bytes) / steps, kMinBlock);
      return (bytes + step - 1) & ~(step - 1);
    }
  }
  return (bytes + kMinBlock - 1) & ~(kMinBlock - 1);
}

void check_host_register(const Driver& driver) {
  TORCH_CHECK_VALUE(driver.table.host_register != nullptr, "allocator setting pinned_use_cuda_host_register: the driver of ", device_name(),
                    " cannot pin memory that it did not allocate (it has no host_register): leave it False");
}

const AllocConfig& alloc_config() {
  const AllocConfig* config = alloc_config_impl::current.load(std::memory_order_acquire);
  if (C10_UNLIKELY(config == nullptr)) config = alloc_config_impl::install(alloc_config_impl::from_environment(), /*only_first=*/true);
  return *config;
}

void set_alloc_config(const std::string& text) {
  auto config = std::make_unique<AllocConfig>();
  alloc_config_impl::read_into(*config, text);
  alloc_config_impl::install(alloc_config_impl::checked(std::move(config)), /*only_first=*/false);
}

namespace alloc_config_impl {
namespace {

// torch._C._accelerator_setAllocatorSettings is for the accelerator in use: c10 requires the names that it does not parse itself, and
// passes the settings on. A torch with CUDA keeps its own hook.
const bool registered = [] {
  using c10::CachingAllocator::AcceleratorAllocatorConfig;
  for (const auto& entry : setters()) AcceleratorAllocatorConfig::getMutableKeys().insert(std::string(entry.first));
  auto& hook = AcceleratorAllocatorConfig::getConfigParserHook();
  if (!hook) hook = [](const std::string& text) { set_alloc_config(text); };
  return true;
}();

}  // namespace
}  // namespace alloc_config_impl

}  // namespace backplane::memory
