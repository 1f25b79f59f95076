// check_driver/kernels.h: small kernels in the words of docs/dialect.md: put together, compiled, loaded, launched, read back.
#pragma once

#include <string.h>

#include <algorithm>
#include <backplane/driver/cxx/compiler.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"

namespace backplane::check {

constexpr uint32_t any_language = UINT32_MAX;  // the dialect, or else TTIR

// out[i] = in[i] * (int)scale + (more >> 32) for i < n, 16 elements a program.
inline constexpr std::string_view ttir_head = R"(module {
  tt.func public @scale(%out: !tt.ptr<i32>, %n: i32, %in: !tt.ptr<i32>, %scale: f32, %more: i64) attributes {noinline = false} {
    %c16_i32 = arith.constant 16 : i32
    %c32_i64 = arith.constant 32 : i64
    %x = tt.get_program_id x : i32
    %y = tt.get_program_id y : i32
    %z = tt.get_program_id z : i32
    %of_x = tt.get_num_programs x : i32
    %of_y = tt.get_num_programs y : i32
    %0 = arith.muli %z, %of_y : i32
    %1 = arith.addi %0, %y : i32
    %2 = arith.muli %1, %of_x : i32
    %3 = arith.addi %2, %x : i32
    %4 = arith.muli %3, %c16_i32 : i32
    %5 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %6 = tt.splat %4 : i32 -> tensor<16xi32>
    %7 = arith.addi %6, %5 : tensor<16xi32>
    %8 = tt.splat %n : i32 -> tensor<16xi32>
    %9 = arith.cmpi slt, %7, %8 : tensor<16xi32>
    %10 = tt.splat %in : !tt.ptr<i32> -> tensor<16x!tt.ptr<i32>>
    %11 = tt.addptr %10, %7 : tensor<16x!tt.ptr<i32>>, tensor<16xi32>
)";
inline constexpr std::string_view ttir_tail = R"(    %12 = tt.load %11, %9 : tensor<16x!tt.ptr<i32>>
    %13 = arith.fptosi %scale : f32 to i32
    %14 = tt.splat %13 : i32 -> tensor<16xi32>
    %15 = arith.muli %12, %14 : tensor<16xi32>
    %16 = arith.shrsi %more, %c32_i64 : i64
    %17 = arith.trunci %16 : i64 to i32
    %18 = tt.splat %17 : i32 -> tensor<16xi32>
    %19 = arith.addi %15, %18 : tensor<16xi32>
    %20 = tt.splat %out : !tt.ptr<i32> -> tensor<16x!tt.ptr<i32>>
    %21 = tt.addptr %20, %7 : tensor<16x!tt.ptr<i32>>, tensor<16xi32>
    tt.store %21, %19, %9 : tensor<16x!tt.ptr<i32>>
    tt.return
  }
}
)";

// What a source is compiled for.
struct Tile {
  uint32_t group;     // BP_GROUP
  uint32_t per_item;  // BP_PER_ITEM
  uint32_t size() const { return group * per_item; }
  uint32_t groups(uint64_t n) const { return static_cast<uint32_t>((n + size() - 1) / size()); }  // that cover n elements
};

using Code = std::vector<uint8_t>;

// The compiler of a driver, for one target.
class Compiler {
 public:
  // device: -1 - n is the n-th target of the list. Throws NotOffered if the target does not support the language.
  Compiler(Context& context, int32_t device, uint32_t language = BP_LANGUAGE_DIALECT);

  const bp_compiler& group() const { return group_; }
  const bp_target_properties& target() const { return target_; }
  const std::string& prelude() const { return prelude_; }
  bool has_f64() const { return target_.dtypes & BP_DTYPE_FLOAT64; }

  Tile tile() const { return {target_.group_size, target_.group_size == 1 ? 16u : 4u}; }  // as the target prefers
  std::vector<Tile> tiles() const;                                                        // that one, and the others that it allows

  // A unit as the core puts it together: definitions, prelude, kernels. EACH(i, n) in a kernel's body is a loop over the elements i of an
  // item, of n; HAS_ASSERT is 1 where the prelude has BP_ASSERT, which does nothing elsewhere.
  std::string unit(const Tile& tile, const std::string& kernels) const;

  // A source in its language that is right, with `more` in it: of the dialect behind the kernel, of TTIR in the function.
  std::string sample(const std::string& more = "") const;
  bool is_ttir() const { return language_ == BP_LANGUAGE_TTIR; }

  bp_compile_request request(const char* source, uint32_t flags = 0) const;

  // `status` is BP_OK or, for a source that is wrong, BP_INVALID_ARGUMENT. The driver's result is released. Throws NotRun where the machine
  // has no compiler.
  struct Compiled {
    int32_t status;
    Code code;
    std::string log;
    std::string kernel, parameters;  // of TTIR, as the rest
    uint32_t group_size, local_bytes;
  };
  Compiled try_compile(const std::string& source, uint32_t flags = 0) const;

  // Of a source that is right.
  Code compile(const std::string& source, uint32_t flags = 0) const;

 private:
  Context& c_;
  bp_compiler group_;
  bp_target_properties target_{};
  uint32_t language_;
  std::string prelude_;
};

// The block of bytes of a launch: the pointers, then the struct.
template <class Value>
std::vector<uint8_t> arguments(const std::vector<uint64_t>& pointers, const Value& value) {
  static_assert(sizeof(Value) % 8 == 0, "a kernel's struct is a multiple of 8 bytes");
  std::vector<uint8_t> bytes(pointers.size() * 8 + sizeof value);
  memcpy(bytes.data(), pointers.data(), pointers.size() * 8);
  memcpy(bytes.data() + pointers.size() * 8, &value, sizeof value);
  return bytes;
}

// Code on a device. It is not unloaded with the object: a check that fails leaves its things to the end of the process.
class Module {
 public:
  Module(Context& context, int32_t device, const Code& code);

  const bp_module& group() const { return group_; }
  bp_module_code* handle() const { return module_; }
  bp_function* function(const std::string& name, uint32_t pointers, uint32_t value_bytes, uint64_t written = 1) const;
  void unload() const;

  // Of one-dimensional kernels that a source for `tile` has. `name` is for messages.
  bp_launch prepare(bp_function* function, const Tile& tile, uint32_t groups, const std::vector<uint8_t>& args) const;
  int32_t try_launch(bp_stream* stream, const bp_launch& launch, const std::string& name = "") const;
  void launch(bp_stream* stream, const bp_launch& launch, const std::string& name = "") const;
  // Launches a kernel once, on the default stream. `shown` names it in messages, else its own name does.
  template <class Value>
  void run(const std::string& kernel, const Tile& tile, uint32_t groups, const std::vector<uint64_t>& pointers, const Value& value,
           uint64_t written = 1, const std::string& shown = "") const {
    const auto args = arguments(pointers, value);
    const auto count = static_cast<uint32_t>(pointers.size());
    launch(nullptr, prepare(function(kernel, count, sizeof value, written), tile, groups, args), shown.empty() ? kernel : shown);
  }

 private:
  Context& c_;
  bp_module group_;
  int32_t device_;
  bp_module_code* module_ = nullptr;
};

// Elements in device memory; whole units of copies, so that any device can move them.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Context& context, int32_t device, uint64_t n)
      : c_(context), device_(device), n_(n), bytes_(rounded(context, device, n)), address_(context.alloc(device, bytes_)) {
    set(std::vector<T>(n_));
  }
  DeviceArray(Context& context, int32_t device, const std::vector<T>& values) : DeviceArray(context, device, values.size()) { set(values); }

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t size() const { return n_; }

  void set(const std::vector<T>& values) const {
    HostBuffer host(bytes_);
    memcpy(host.data(), values.data(), std::min(n_, values.size()) * sizeof(T));
    c_.upload(device_, address_, host.data(), bytes_);
  }
  // Behind the work of the stream.
  std::vector<T> get(bp_stream* stream = nullptr) const {
    HostBuffer host(bytes_);
    c_.download(device_, address_, host.data(), bytes_, stream);
    std::vector<T> values(n_);
    memcpy(values.data(), host.data(), n_ * sizeof(T));
    return values;
  }
  void free() const { c_.free(device_, address_); }

 private:
  static uint64_t rounded(Context& context, int32_t device, uint64_t n) {
    const uint64_t unit = std::max<uint64_t>(context.unit(device), 8);
    return (n * sizeof(T) + unit - 1) / unit * unit;
  }

  Context& c_;
  int32_t device_;
  uint64_t n_, bytes_, address_;
};

// Sentences of compiler.h and module.h that several families quote.
namespace rules {
inline constexpr char compile[] =
    "The result is filled on BP_OK, and on INVALID_ARGUMENT if the source is wrong: code is NULL and log has the reason";
inline constexpr char no_compiler[] = "UNSUPPORTED: there is no compiler on this machine, last_error names the one that was looked for";
inline constexpr char load[] = "Loads code, which compile() of a driver with the same id() made, for this device's target";
inline constexpr char function[] = "Returns a kernel by its name in the source";
inline constexpr char launch[] =
    "Queues a kernel on the stream; returns when args is read and never waits for the kernel. order: the stream's";
}  // namespace rules

}  // namespace backplane::check
