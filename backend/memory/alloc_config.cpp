// memory/alloc_config.cpp: parses the allocator's settings; what is not known, or not done here, is an error.
#include "memory/alloc_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <charconv>
#include <memory>
#include <mutex>
#include <string_view>

#include "memory/block.h"
#include "runtime/options.h"

namespace backplane::memory {
namespace alloc_config_impl {
namespace {

constexpr const char* kKnown = "max_split_size_mb, garbage_collection_threshold, roundup_power2_divisions";
constexpr size_t kIntervals = 17;  // 1 MiB, 2 MiB, ... 64 GiB

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

// Splits at commas outside of brackets.
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

// Which of the intervals a size lies in: the i-th ends at 2^i MiB.
size_t interval(size_t bytes) {
  const size_t mib = bytes >> 20;
  return std::min<size_t>(mib == 0 ? 0 : std::bit_width(mib) - 1, kIntervals - 1);
}

// "4" for all sizes, or "[256:1,512:2,>:8]": 1 below 256 MiB, 2 below 512 MiB, 8 from there on. 1 is no rounding, also for what is not
// named.
std::vector<size_t> parse_divisions(std::string_view text) {
  if (text.empty() || text.front() != '[') return std::vector<size_t>(kIntervals, division(text));
  TORCH_CHECK_VALUE(text.back() == ']', "allocator setting roundup_power2_divisions: missing ']' in '", text, "'");
  std::vector<size_t> divisions(kIntervals, 1);
  size_t next = 0;
  for (const auto item : items(text.substr(1, text.size() - 2))) {
    const auto colon = item.find(':');
    TORCH_CHECK_VALUE(colon != std::string_view::npos,
                      "allocator setting roundup_power2_divisions: expected [size_mb:divisions,...], got '", text, "'");
    const auto value = division(item.substr(colon + 1));
    size_t end = kIntervals;
    if (item.substr(0, colon) != ">") {
      const auto mib = number<size_t>("roundup_power2_divisions", item.substr(0, colon));
      TORCH_CHECK_VALUE(std::has_single_bit(mib), "allocator setting roundup_power2_divisions: size ", mib, " is not a power of two");
      end = interval(mib << 20);
      TORCH_CHECK_VALUE(end >= next, "allocator setting roundup_power2_divisions: sizes must rise");
    }
    while (next < end) divisions[next++] = value;
  }
  return divisions;
}

std::unique_ptr<AllocConfig> parse(const std::string& given) {
  auto config = std::make_unique<AllocConfig>();
  config->text = without_spaces(given);
  for (const auto item : items(config->text)) {
    const auto colon = item.find(':');
    TORCH_CHECK_VALUE(colon != std::string_view::npos, "allocator settings: expected key:value, got '", item, "'; the keys are ", kKnown);
    const auto key = item.substr(0, colon);
    const auto value = item.substr(colon + 1);
    if (key == "max_split_size_mb") {
      const auto mib = number<size_t>(key, value);
      TORCH_CHECK_VALUE(mib > kMidSegment >> 20, "allocator setting max_split_size_mb: must be greater than ", kMidSegment >> 20, ", got ",
                        mib);
      config->max_split_size = std::min(mib, std::numeric_limits<size_t>::max() >> 20) << 20;
    } else if (key == "garbage_collection_threshold") {
      config->garbage_collection_threshold = number<double>(key, value);
      TORCH_CHECK_VALUE(config->garbage_collection_threshold > 0 && config->garbage_collection_threshold < 1,
                        "allocator setting garbage_collection_threshold: must lie between 0 and 1, got ", value);
    } else if (key == "roundup_power2_divisions") {
      config->divisions = parse_divisions(value);
    } else {
      TORCH_CHECK_VALUE(false, "allocator setting '", key, "' is not known to ", device_name(), "'s allocator; the keys are ", kKnown);
    }
  }
  return config;
}

std::atomic<const AllocConfig*> current{nullptr};

// Old settings are kept: threads may still read them.
const AllocConfig* install(std::unique_ptr<AllocConfig> config) {
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<AllocConfig>>();
  const std::lock_guard<std::mutex> lock(mutex);
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

const AllocConfig& alloc_config() {
  const AllocConfig* config = alloc_config_impl::current.load(std::memory_order_acquire);
  if (C10_UNLIKELY(config == nullptr)) config = alloc_config_impl::install(alloc_config_impl::parse(env("ALLOC_CONF").value_or("")));
  return *config;
}

void set_alloc_config(const std::string& text) { alloc_config_impl::install(alloc_config_impl::parse(text)); }

}  // namespace backplane::memory
