// check_driver/loaded.h: the kernels that checks of bp.module run, loaded on a device.
#pragma once

#include "busy_stream.h"
#include "kernels.h"

namespace backplane::check {
namespace module_impl {

inline constexpr char unload_rule[] = "Destroys a module and its functions. The caller has waited for their work";
inline constexpr char refuse_rule[] =
    "INVALID_ARGUMENT: bytes that are not such code, truncated or modified as far as the driver can detect";
inline constexpr char signature_rule[] =
    "INVALID_ARGUMENT: no kernel of that name, a signature out of range, or one that is not the kernel's";
inline constexpr char args_rule[] = "pointers * 8 + value_bytes, as bp_signature says; read before the call returns";
inline constexpr char address_rule[] = "an address of 0 is allowed and is never accessed";
inline constexpr char sizes_rule[] = "errors: INVALID_ARGUMENT: sizes, grid, group or flags";
inline constexpr char grid_rule[] = "groups, none 0, within the target's max_grid";
inline constexpr char fault_rule[] = "A kernel that fails (an invalid address, BP_ASSERT) makes the device FAULT";

// What most checks run.
inline constexpr char kernels[] = R"(
typedef struct { i64 n; i32 factor; i32 term; } Affine;
BP_KERNEL(affine, 2, Affine, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  EACH(i, bp_arg.n) out[i] = bp_arg.factor * in[i] + bp_arg.term;
}
BP_KERNEL(advance, 1, Affine, BP_GLOBAL i32* BP_RESTRICT out) {
  BP_ASSERT(bp_arg.n >= 0);
  EACH(i, bp_arg.n) out[i] = bp_arg.factor * out[i] + bp_arg.term;
}

typedef struct { i32 a; u32 b; i64 c; u64 d; f32 e; i32 f; i64 use; } Mixed;
BP_KERNEL(mixed, 4, Mixed, BP_GLOBAL i64* BP_RESTRICT out, BP_GLOBAL f32* BP_RESTRICT real, BP_GLOBAL const i32* BP_RESTRICT in,
          BP_GLOBAL const i32* BP_RESTRICT maybe) {
  if (BP_GROUP_ID(0) == 0 && BP_ITEM == 0) {
    out[0] = bp_arg.a; out[1] = (i64)bp_arg.b; out[2] = bp_arg.c; out[3] = (i64)bp_arg.d; out[4] = bp_arg.f; out[5] = in[0] + in[1];
    out[6] = bp_arg.use != 0 ? maybe[0] : -1;
    real[0] = bp_arg.e;
  }
}
BP_KERNEL(has_assert, 1, Affine, BP_GLOBAL i32* BP_RESTRICT out) { out[0] = HAS_ASSERT; }

typedef struct { i64 unused; } Nothing;
BP_KERNEL(visit, 1, Nothing, BP_GLOBAL i32* BP_RESTRICT out) {
  const i64 at = ((i64)BP_GROUP_ID(2) * BP_GROUPS(1) + BP_GROUP_ID(1)) * BP_GROUPS(0) + BP_GROUP_ID(0);
  if (BP_ITEM == 0) {
    out[2 * at] += 1;
    out[2 * at + 1] = BP_GROUP_ID(0) + 1000 * BP_GROUP_ID(1) + 1000000 * BP_GROUP_ID(2);
  }
}
)";

struct Affine {
  int64_t n;
  int32_t factor, term;
};

struct Mixed {
  int32_t a;
  uint32_t b;
  int64_t c;
  uint64_t d;
  float e;
  int32_t f;
  int64_t use;
};

struct Nothing {
  int64_t unused = 0;
};

// The kernels of above on a device.
struct Loaded {
  Loaded(Context& context, int32_t device, uint32_t flags = 0)
      : c(context),
        compiler(context, device),
        code(compiler.compile(compiler.unit(tile, kernels), BP_COMPILE_LIGHT | flags)),
        module(context, device, code) {}

  // The same code, loaded once more.
  Loaded(const Loaded& like, int32_t device) : c(like.c), compiler(like.compiler), code(like.code), module(c, device, code) {}

  // out = factor * in + term, and the same in place.
  void run(bp_stream* stream, const DeviceArray<int32_t>& out, const DeviceArray<int32_t>& in, int32_t factor, int32_t term) const {
    const auto args = arguments({out.address(), in.address()}, Affine{static_cast<int64_t>(out.size()), factor, term});
    module.launch(stream, module.prepare(affine, tile, tile.groups(out.size()), args), "affine");
  }
  void run(bp_stream* stream, const DeviceArray<int32_t>& out, int32_t factor, int32_t term) const {
    const auto args = arguments({out.address()}, Affine{static_cast<int64_t>(out.size()), factor, term});
    module.launch(stream, module.prepare(advance, tile, tile.groups(out.size()), args), "advance");
  }

  Context& c;
  Compiler compiler;
  Tile tile = compiler.tile();
  Code code;
  Module module;
  bp_function* affine = module.function("affine", 2, sizeof(Affine));
  bp_function* advance = module.function("advance", 1, sizeof(Affine));
};

inline std::vector<int32_t> counted(uint64_t n) {
  std::vector<int32_t> values(n);
  for (uint64_t i = 0; i < n; ++i) values[i] = static_cast<int32_t>(i * 7 - 50);
  return values;
}

template <class T>
void same(Context& c, const std::vector<T>& got, const std::vector<T>& want, const char* rule, const char* what) {
  for (size_t i = 0; i < want.size(); ++i) {
    c.require(got[i] == want[i], rule, "%s: element %zu of %zu is %g, expected %g", what, i, want.size(), static_cast<double>(got[i]),
              static_cast<double>(want[i]));
  }
}

// The kernels give what they should, on a stream that is waited for by a copy.
inline void works(Context& c, const Loaded& k, int32_t device, const char* rule) {
  const DeviceArray<int32_t> in(c, device, counted(1001)), out(c, device, 1001);
  k.run(nullptr, out, in, 3, 4);
  std::vector<int32_t> want = counted(1001);
  for (int32_t& value : want) value = 3 * value + 4;
  same(c, out.get(), want, rule, "3 * x + 4");
  in.free();
  out.free();
}

// checks_module_launch.cpp
void values(Context& c);
void most(Context& c);
void read_at_once(Context& c);
void order(Context& c);
void pending(Context& c);
void events(Context& c);
void grid(Context& c);
void sizes(Context& c);

}  // namespace module_impl
}  // namespace backplane::check
