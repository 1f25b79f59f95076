// drivers/shims/trace/line.h: one line of the trace, in memory of its own size: values as text, and the structs that entries take or fill.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include <backplane/driver/cxx/groups.hpp>

namespace backplane::driver::trace {

/// The kernels that bp.module has given out, by handle, so that a launch is written with its name. A handle that is used again is a new
/// one.
class Kernels {
 public:
  struct Kernel {
    std::string name;
    uint32_t pointers;
  };

  void learn(const bp_function* function, const char* name, uint32_t pointers) {
    std::lock_guard lock(mutex_);
    known_.insert_or_assign(function, Kernel{name, pointers});
  }
  /// Calls f with the kernel, if it is known.
  template <class F>
  void find(const bp_function* function, F&& f) const {
    std::lock_guard lock(mutex_);
    if (const auto found = known_.find(function); found != known_.end()) f(found->second);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const bp_function*, Kernel> known_;
};

class Line {
 public:
  static constexpr size_t kRoom = 512;

  explicit Line(const Kernels& kernels) : kernels_(kernels) {}

  std::string_view text() const { return {text_, size_}; }
  const Kernels& kernels() const { return kernels_; }

  Line& operator<<(std::string_view text) {
    const size_t fits = std::min(text.size(), kEnd - size_);
    std::memcpy(text_ + size_, text.data(), fits);
    size_ += fits;
    cut_ = cut_ || fits < text.size();
    return *this;
  }
  template <class Number, class = std::enable_if_t<std::is_integral_v<Number>>>
  Line& operator<<(Number value) {
    return number(value, 10);
  }
  Line& hex(uint64_t value) {
    if (value) *this << "0x";
    return number(value, 16);
  }
  Line& address(const void* pointer) { return hex(reinterpret_cast<uint64_t>(pointer)); }
  /// Nanoseconds, in microseconds.
  Line& time(int64_t ns) { return *this << ns / 1000 << "." << ns / 100 % 10; }
  /// Text of somebody else's, in quotes, on this line; `most` characters are looked at.
  Line& quoted(const char* text, size_t most = 200) {
    if (!text) return *this << "NULL";
    *this << "\"";
    for (; most && *text; --most, ++text) {
      const char one = static_cast<unsigned char>(*text) < ' ' ? ' ' : *text == '"' ? '\'' : *text;
      *this << std::string_view(&one, 1);
    }
    return *this << "\"";
  }
  /// Ends the line; what did not fit is three dots.
  void end() {
    if (cut_) *this << "...";
    std::memcpy(text_ + size_, cut_ ? "...\n" : "\n", cut_ ? 4 : 1);
    size_ += cut_ ? 4 : 1;
  }

 private:
  static constexpr size_t kEnd = kRoom - 4;  // leaves room for the end

  template <class Number>
  Line& number(Number value, int base) {
    char digits[24];
    return *this << std::string_view(digits, static_cast<size_t>(std::to_chars(digits, digits + sizeof digits, value, base).ptr - digits));
  }

  const Kernels& kernels_;
  size_t size_ = 0;
  bool cut_ = false;
  char text_[kRoom];
};

/// A struct of the caller's as far as its struct_size goes, the rest 0.
template <class Struct>
Struct whole(const Struct& given) {
  Struct copy{};
  std::memcpy(static_cast<void*>(&copy), &given, std::min<uint64_t>(given.struct_size, sizeof copy));
  return copy;
}

// What is written of each struct. A struct without such a function is written as its address.

inline void describe(Line& line, const bp_device_properties& given) {
  const bp_device_properties of = whole(given);
  line << "name=";
  line.quoted(of.name, sizeof of.name) << " total_memory=" << of.total_memory;
}

inline void describe(Line& line, const bp_pointer_info& given) {
  const bp_pointer_info of = whole(given);
  static constexpr const char* kinds[] = {"unknown", "device", "pinned", "registered"};
  line << "kind=" << (of.kind >= 0 && of.kind < 4 ? kinds[of.kind] : "?") << " device=" << of.device << " base=";
  line.hex(of.base) << " bytes=" << of.bytes;
}

inline void describe(Line& line, const bp_target_properties& given) {
  const bp_target_properties of = whole(given);
  line << "target=";
  line.quoted(of.target, sizeof of.target) << " group_size=" << of.group_size << " max_group_size=" << of.max_group_size;
}

inline void describe(Line& line, const bp_compile_request& given) {
  const bp_compile_request of = whole(given);
  line << "name=";
  line.quoted(of.name) << " target=";
  line.quoted(of.target) << " source_bytes=" << (of.source ? std::strlen(of.source) : 0) << " options=";
  line.quoted(of.options) << " flags=";
  line.hex(of.flags);
  if (of.language != BP_LANGUAGE_DIALECT) line << " language=" << of.language << " triton=";
  if (of.language != BP_LANGUAGE_DIALECT) line.quoted(of.triton) << " num_warps=" << of.num_warps << " num_stages=" << of.num_stages;
}

inline void describe(Line& line, const bp_compile_result& given) {
  const bp_compile_result of = whole(given);
  line << "code=";
  line.address(of.code) << " bytes=" << of.bytes;
  if (of.kernel) line << " group_size=" << of.group_size << " local_bytes=" << of.local_bytes;
}

inline void describe(Line& line, const bp_signature& given) {
  const bp_signature of = whole(given);
  line << "pointers=" << of.pointers << " value_bytes=" << of.value_bytes << " written=";
  line.hex(of.written);
}

inline void describe(Line& line, const bp_function_properties& given) {
  const bp_function_properties of = whole(given);
  line << "max_group_size=" << of.max_group_size << " local_bytes=" << of.local_bytes << " registers=" << of.registers
       << " spill_bytes=" << of.spill_bytes;
}

inline void describe(Line& line, const bp_collective_properties& given) {
  const bp_collective_properties of = whole(given);
  line << "id_bytes=" << of.id_bytes << " sums=";
  line.hex(of.reduces[BP_REDUCE_SUM]) << " max_size=" << of.max_size;
}

inline void describe(Line& line, const bp_comm_config& given) {
  const bp_comm_config of = whole(given);
  line << "name=";
  line.quoted(of.name) << " rank=" << of.rank << " size=" << of.size << " timeout_ns=" << of.timeout_ns;
}

inline void describe(Line& line, const bp_launch& given) {
  const bp_launch of = whole(given);
  uint64_t pointers = 0;
  line << "function=";
  line.address(of.function);
  line.kernels().find(of.function, [&](const Kernels::Kernel& kernel) {
    line << " kernel=" << kernel.name;
    pointers = kernel.pointers;
  });
  line << " grid=" << of.grid[0] << "x" << of.grid[1] << "x" << of.grid[2];
  line << " group=" << of.group[0] << "x" << of.group[1] << "x" << of.group[2];
  if (of.local_bytes) line << " local_bytes=" << of.local_bytes;
  if (of.flags) line << " flags=", line.hex(of.flags);
  line << " args_bytes=" << of.args_bytes;
  if (!of.args) return;
  for (uint64_t i = 0; i < std::min<uint64_t>(pointers, of.args_bytes / sizeof(uint64_t)); ++i) {
    uint64_t address = 0;
    std::memcpy(&address, static_cast<const char*>(of.args) + i * sizeof address, sizeof address);
    line << (i ? "," : " pointers=");
    line.hex(address);
  }
}

}  // namespace backplane::driver::trace
