// check_driver/checks_module.cpp: family "module": code on a device, and kernels in stream order.
#include <future>
#include <thread>

#include "busy_stream.h"
#include "kernels.h"

namespace backplane::check {
namespace module_impl {

constexpr char unload_rule[] = "Ends a module and its functions. The caller has seen their work complete";
constexpr char refuse_rule[] = "INVALID_ARGUMENT: bytes that are no such code, cut off or changed as far as the driver can tell";
constexpr char signature_rule[] = "INVALID_ARGUMENT: no kernel of that name, or a signature that it does not take";
constexpr char args_rule[] = "pointers * 8 + value_bytes, as bp_signature says; read before the call returns";
constexpr char address_rule[] = "an address of 0 is allowed and is never read through";
constexpr char sizes_rule[] = "errors: INVALID_ARGUMENT: sizes, grid, group or flags";
constexpr char grid_rule[] = "groups, none 0, within the target's max_grid";
constexpr char fault_rule[] = "A kernel that fails (a bad address, BP_ASSERT) makes the device FAULT";

// What most checks run.
constexpr char kernels[] = R"(
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
        tile(compiler.tile()),
        code(compiler.compile(compiler.unit(tile, kernels), BP_COMPILE_LIGHT | flags)),
        module(context, device, code),
        affine(module.function("affine", 2, sizeof(Affine))),
        advance(module.function("advance", 1, sizeof(Affine))) {}

  // The same code, loaded once more.
  Loaded(const Loaded& like, int32_t device)
      : c(like.c),
        compiler(like.compiler),
        tile(like.tile),
        code(like.code),
        module(c, device, code),
        affine(module.function("affine", 2, sizeof(Affine))),
        advance(module.function("advance", 1, sizeof(Affine))) {}

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
  Tile tile;
  Code code;
  Module module;
  bp_function *affine, *advance;
};

std::vector<int32_t> counted(uint64_t n) {
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
void works(Context& c, const Loaded& k, int32_t device, const char* rule) {
  const DeviceArray<int32_t> in(c, device, counted(1001)), out(c, device, 1001);
  k.run(nullptr, out, in, 3, 4);
  std::vector<int32_t> want = counted(1001);
  for (int32_t& value : want) value = 3 * value + 4;
  same(c, out.get(), want, rule, "3 * x + 4");
  in.free();
  out.free();
}

// Where nothing stays pending, what comes later is all there is to see.
void hold_if_possible(std::optional<BusyStream>& hold, Context& c, bp_stream* stream) {
  try {
    hold.emplace(c, 0, stream);
  } catch (const NotOffered&) {
  } catch (const NotRun&) {
  }
}

void load(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const Loaded first(c, d);
    Code passing = first.code;
    const Module short_lived(c, d, passing);
    memset(passing.data(), 0xee, passing.size());  // the bytes may go when the call returns
    short_lived.function("affine", 2, sizeof(Affine));
    const Loaded second(first, d);
    c.require(second.module.handle() != first.module.handle(), rules::load, "two loads of the same code gave the same module");
    works(c, first, d, rules::load);
    first.module.unload();
    works(c, second, d, unload_rule);
    second.module.unload();
    const Loaded third(first, d);
    works(c, third, d, rules::load);
    third.module.unload();
    short_lived.unload();
  }
  const Code code = Loaded(c, 0).code;
  const bp_module group = *c.group<bp_module>();
  for (int32_t bad : {c.devices(), -1}) {
    bp_module_code* out = nullptr;
    c.expect(CALL_GROUP(group, load, bad, code.data(), code.size(), &out), BP_INVALID_DEVICE, rules::no_such_device);
    c.require(!out, rules::errors, "load failed and yet set *out");
  }
}

void function(Context& c) {
  const Loaded k(c, 0);
  const bp_module& group = k.module.group();
  const bp_signature two = {sizeof two, 2, sizeof(Affine), 1};
  bp_function* out = nullptr;
  bp_function_properties properties;
  memset(&properties, 0, sizeof properties);
  properties.struct_size = sizeof properties;
  c.expect(CALL_GROUP(group, function, 0, k.module.handle(), "affine", &two, &out, &properties), BP_OK, rules::function);
  c.require(!properties.max_group_size || properties.max_group_size >= k.tile.group, "max_group_size: as compiled; 0: the target's",
            "max_group_size is %u of a kernel compiled for %u", properties.max_group_size, k.tile.group);
  memset(&properties, 0xaa, sizeof properties);
  properties.struct_size = offsetof(bp_function_properties, registers);
  c.expect(CALL_GROUP(group, function, 0, k.module.handle(), "affine", &two, &out, &properties), BP_OK, rules::function);
  c.require(properties.registers == 0xaaaaaaaa && properties.spill_bytes == 0xaaaaaaaa,
            "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it",
            "function wrote beyond the struct_size of properties");
  Loaded again = k;
  again.affine = out;
  works(c, again, 0, "Asking again gives the same function or another one of the same kernel");
  works(c, k, 0, "A kernel by its name in the source; lives as long as the module");

  const auto refused = [&](const char* name, const bp_signature& signature, const char* what) {
    bp_function* none = nullptr;
    c.expect(CALL_GROUP(group, function, 0, k.module.handle(), name, &signature, &none, nullptr), BP_INVALID_ARGUMENT, signature_rule);
    c.require(!none, rules::errors, "function refused %s and yet set *out", what);
    c.require(!c.last_error().empty(), rules::errors, "function refused %s and last_error gives an empty text", what);
  };
  refused("no_such_kernel", two, "an unknown name");
  refused("", two, "an empty name");
  refused("affin", two, "the start of a name");
  refused("affine", {sizeof two, 0, sizeof(Affine), 0}, "no pointers");
  refused("affine", {sizeof two, 65, sizeof(Affine), 1}, "65 pointers");
  refused("affine", {sizeof two, 3, sizeof(Affine), 1}, "a pointer more than the kernel has");
  refused("affine", {sizeof two, 2, sizeof(Affine) - 4, 1}, "a value_bytes that is no multiple of 8");
  refused("affine", {sizeof two, 2, 0, 1}, "a value_bytes of 0");
}

void refused(Context& c) {
  const Loaded k(c, 0);
  const bp_module& group = k.module.group();
  const auto try_load = [&](const Code& code, uint64_t bytes, std::initializer_list<int32_t> want, const char* what) {
    bp_module_code* out = nullptr;
    const int32_t status = CALL_GROUP(group, load, 0, code.data(), bytes, &out);
    c.expect_one_of(status, want, refuse_rule);
    c.require((out != nullptr) == (status == BP_OK), rules::errors, "load of %s gave %s and set *out to %p", what,
              status_text(status).c_str(), static_cast<void*>(out));
    if (out) {
      c.expect(CALL_GROUP(group, unload, 0, out), BP_OK, unload_rule);
    } else {
      c.require(!c.last_error().empty(), rules::errors, "load refused %s and last_error gives an empty text", what);
    }
  };
  Code foreign(4096);
  for (size_t i = 0; i < foreign.size(); ++i) foreign[i] = static_cast<uint8_t>(i * 37 + 11);
  try_load(foreign, foreign.size(), {BP_INVALID_ARGUMENT}, "foreign bytes");
  try_load(foreign, 1, {BP_INVALID_ARGUMENT}, "one byte");
  try_load(foreign, 0, {BP_INVALID_ARGUMENT}, "no bytes");
  try_load(k.code, k.code.size() / 2, {BP_INVALID_ARGUMENT}, "half of some code");
  try_load(k.code, 8, {BP_INVALID_ARGUMENT}, "the first 8 bytes of some code");
  Code changed = k.code;
  for (size_t i = 0; i < 8; ++i) changed[i] = static_cast<uint8_t>(~changed[i]);
  try_load(changed, changed.size(), {BP_INVALID_ARGUMENT}, "code whose first 8 bytes were changed");
  for (size_t part : {1, 2, 3}) {
    changed = k.code;
    changed[changed.size() * part / 4] ^= 0x55;
    try_load(changed, changed.size(), {BP_OK, BP_INVALID_ARGUMENT}, "code of which one byte was changed");
  }
  works(c, k, 0, refuse_rule);
}

void values(Context& c) {
  const Loaded k(c, 0);
  bp_function* mixed = k.module.function("mixed", 4, sizeof(Mixed), 3);
  const DeviceArray<int64_t> out(c, 0, 7);
  const DeviceArray<float> real(c, 0, 1);
  const DeviceArray<int32_t> in(c, 0, std::vector<int32_t>{40, 2}), maybe(c, 0, std::vector<int32_t>{5});
  const Mixed value = {-3, 0xfedcba98u, INT64_MIN + 5, 0x8899aabbccddeeffull, 0.1f, 77, 1};
  std::vector<int64_t> want = {value.a, value.b, value.c, static_cast<int64_t>(value.d), value.f, 42, 5};
  const auto run = [&](uint64_t optional, int64_t use, const char* rule, const char* what) {
    Mixed now = value;
    now.use = use;
    want[6] = use ? 5 : -1;
    const auto args = arguments({out.address(), real.address(), in.address(), optional}, now);
    k.module.launch(nullptr, k.module.prepare(mixed, k.tile, 1, args), "mixed");
    same(c, out.get(), want, rule, what);
    same(c, real.get(), {value.e}, rule, what);
  };
  run(maybe.address(), 1, args_rule, "what a kernel saw of its arguments");
  run(0, 0, address_rule, "what a kernel with an address of 0 saw of its arguments");
}

// As many bytes of arguments as are allowed: a struct of one i64 after the other.
void most(Context& c) {
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  const uint32_t members = (compiler.target().parameter_bytes / 8) - 1;
  std::string members_text, sum = "0";
  for (uint32_t m = 0; m < members; ++m) {
    members_text += format(" i64 m%u;", m);
    sum += format(" + %u * bp_arg.m%u", m % 13 + 1, m);
  }
  const Module module(c, 0,
                      compiler.compile(compiler.unit(tile, "typedef struct {" + members_text +
                                                               " } Most;\nBP_KERNEL(most, 1, Most, BP_GLOBAL i64* BP_RESTRICT out) {\n"
                                                               "  if (BP_ITEM == 0) out[0] = " +
                                                               sum + ";\n}\n"),
                                       BP_COMPILE_LIGHT));
  const DeviceArray<int64_t> out(c, 0, 1);
  std::vector<uint64_t> block = {out.address()};
  int64_t want = 0;
  for (uint32_t m = 0; m < members; ++m) {
    block.push_back(uint64_t{m} * m + 3);
    want += static_cast<int64_t>(m % 13 + 1) * static_cast<int64_t>(block.back());
  }
  std::vector<uint8_t> args(block.size() * 8);
  memcpy(args.data(), block.data(), args.size());
  module.launch(nullptr, module.prepare(module.function("most", 1, members * 8), tile, 1, args), "most");
  same(c, out.get(), {want}, "parameter_bytes: most bytes of a launch's arguments", "the weighted sum of all arguments");
}

// The caller's block changes as soon as the launch is back, and long before the kernel runs where the stream can be held.
void read_at_once(Context& c) {
  const Loaded k(c, 0);
  bp_stream* stream = c.table().stream_create ? c.stream(0) : nullptr;
  const DeviceArray<int32_t> out(c, 0, counted(5000));
  const auto other = arguments({out.address()}, Affine{5000, 0, -1});
  std::vector<std::vector<uint8_t>> blocks;
  for (int32_t i = 0; i < 20; ++i) blocks.push_back(arguments({out.address()}, Affine{5000, 3, i}));
  std::vector<int32_t> want = counted(5000);
  std::optional<BusyStream> hold;
  hold_if_possible(hold, c, stream);
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    k.module.launch(stream, k.module.prepare(k.advance, k.tile, k.tile.groups(5000), blocks[i]), "advance");
    memcpy(blocks[i].data(), other.data(), other.size());
    for (int32_t& value : want) value = static_cast<int32_t>(static_cast<uint32_t>(value) * 3u + i);
  }
  hold.reset();
  same(c, out.get(stream), want, args_rule, "kernels whose arguments were overwritten after the launch");
}

void order(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const Loaded k(c, d);
    bp_stream* stream = c.stream(d);
    const uint64_t n = c.some_bytes(d) / 4, bytes = n * 4;
    const DeviceArray<int32_t> a(c, d, n), b(c, d, n);
    uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
    for (int32_t round = 0; round < 10; ++round) {
      std::vector<int32_t> values(n, round), got(n);
      memcpy(sent, values.data(), bytes);
      memset(back, 0, bytes);
      c.expect(CALL(c, copy_async, d, stream, a.address(), d, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK,
               rules::copy_async);
      k.run(stream, a, 3, 1);
      c.expect(CALL(c, copy_async, d, stream, b.address(), d, a.address(), d, bytes, 0u), BP_OK, rules::copy_async);
      k.run(stream, b, 5, 2);
      const int32_t pattern = 7;  // of the second half, between two kernels
      c.expect(CALL(c, fill, d, stream, b.address() + n / 2 * 4, &pattern, 4u, n - n / 2, 0u), BP_OK, rules::ok);
      k.run(stream, a, b, 2, -1);
      c.expect(CALL(c, copy_async, d, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, a.address(), d, bytes, 0u), BP_OK,
               rules::copy_async);
      c.synchronize(d, stream);
      memcpy(got.data(), back, bytes);
      for (uint64_t i = 0; i < n; ++i) values[i] = 2 * (i < n / 2 ? 5 * (3 * round + 1) + 2 : pattern) - 1;
      same(c, got, values, rules::stream_order, "copy, kernel, copy, kernel, fill, kernel, copy");
    }
  }
}

void pending(Context& c) {
  const Loaded k(c, 0);
  bp_stream* stream = c.stream(0);
  const DeviceArray<int32_t> out(c, 0, counted(5000));
  c.synchronize(0);
  BusyStream hold(c, 0, stream);
  k.run(stream, out, 2, 1);
  hold.not_waited_for(rules::launch);
  stays_pending(c, hold, rules::stream_order, [&] { return CALL(c, stream_query, 0, stream); });
  hold.release();
  std::vector<int32_t> want = counted(5000);
  for (int32_t& value : want) value = 2 * value + 1;
  same(c, out.get(stream), want, rules::launch, "a kernel behind other work");
}

// A kernel on one stream, one on another that waits for its event; the event is asked and waited for by the host, too.
void events(Context& c) {
  const char* rule = "The event completes when all work queued so far on the stream has";
  const Loaded k(c, 0);
  bp_stream *first = c.stream(0), *second = c.stream(0);
  bp_event *made = c.event(0), *done = c.event(0);
  const DeviceArray<int32_t> a(c, 0, 20000), b(c, 0, 20000);
  c.synchronize(0);
  for (int32_t round = 0; round < 10; ++round) {
    std::optional<BusyStream> hold;
    if (round == 0) hold_if_possible(hold, c, first);
    k.run(first, a, 0, round);
    c.expect(CALL(c, event_record, 0, first, made, 0u), BP_OK, rule);
    if (hold) stays_pending(c, *hold, rule, [&] { return CALL(c, event_query, 0, made); });
    c.expect(CALL(c, stream_wait, 0, second, made), BP_OK, "Work queued later on the stream waits for the event's latest record");
    k.run(second, b, a, 10, 3);
    c.expect(CALL(c, event_record, 0, second, done, 0u), BP_OK, rule);
    hold.reset();
    c.expect(CALL(c, event_synchronize, 0, done, BP_NO_TIMEOUT), BP_OK, "Waits for the latest record at the time of the call");
    c.expect(CALL(c, event_query, 0, made), BP_OK, "BP_OK: complete");
    same(c, b.get(second), std::vector<int32_t>(b.size(), 10 * round + 3), rule, "a kernel that waited for another stream's");
    c.expect(CALL(c, stream_wait, 0, first, done), BP_OK, "Work queued later on the stream waits for the event's latest record");
  }
}

// Each group runs once and knows where it lies, in three dimensions and in as many groups as each must take.
void grid(Context& c) {
  const Compiler compiler(c, 0);
  const Tile tile = {1, 1};
  const Module module(c, 0, compiler.compile(compiler.unit(tile, kernels), BP_COMPILE_LIGHT));
  bp_function* visit = module.function("visit", 1, sizeof(Nothing));
  struct Grid {
    uint32_t x, y, z;
  };
  for (const Grid& g : {Grid{1, 1, 1}, Grid{5, 3, 7}, Grid{1, 4, 2}, Grid{65535, 1, 1}, Grid{1, 65535, 1}, Grid{1, 1, 65535}}) {
    const uint64_t groups = uint64_t{g.x} * g.y * g.z;
    const DeviceArray<int32_t> out(c, 0, groups * 2);
    const auto args = arguments({out.address()}, Nothing{});
    bp_launch launch = module.prepare(visit, tile, g.x, args);
    launch.grid[1] = g.y;
    launch.grid[2] = g.z;
    module.launch(nullptr, launch, "visit");
    const std::vector<int32_t> got = out.get();
    const std::string what = format("grid (%u, %u, %u)", g.x, g.y, g.z);
    for (uint64_t i = 0; i < groups; ++i) {
      const auto x = static_cast<uint32_t>(i % g.x), y = static_cast<uint32_t>(i / g.x % g.y), z = static_cast<uint32_t>(i / g.x / g.y);
      c.require(got[2 * i] == 1, grid_rule, "%s: group (%u, %u, %u) ran %d times, expected 1", what.c_str(), x, y, z, got[2 * i]);
      const auto want = static_cast<int32_t>(x + 1000 * y + 1000000 * z);
      c.require(got[2 * i + 1] == want, grid_rule, "%s: group (%u, %u, %u) took itself for another one: %d, expected %d", what.c_str(), x,
                y, z, got[2 * i + 1], want);
    }
    out.free();
  }
}

// What cannot be launched is refused, and leaves no trace.
void sizes(Context& c) {
  const Loaded k(c, 0);
  const DeviceArray<int32_t> out(c, 0, counted(100));
  const auto args = arguments({out.address()}, Affine{100, 2, 1});
  const bp_launch sound = k.module.prepare(k.advance, k.tile, k.tile.groups(100), args);
  const auto refused = [&](const char* what, auto change) {
    bp_launch launch = sound;
    change(launch);
    const int32_t status = k.module.try_launch(nullptr, launch, std::string("advance with ") + what);
    c.expect(status, BP_INVALID_ARGUMENT, sizes_rule);
    c.require(!c.last_error().empty(), rules::errors, "launch refused %s and last_error gives an empty text", what);
  };
  refused("no groups in x", [](bp_launch& l) { l.grid[0] = 0; });
  refused("no groups in y", [](bp_launch& l) { l.grid[1] = 0; });
  refused("no groups in z", [](bp_launch& l) { l.grid[2] = 0; });
  for (int d = 0; d < 3; ++d) {
    const uint64_t most = k.compiler.target().max_grid[d];
    if (most < UINT32_MAX) refused("more groups than max_grid", [&](bp_launch& l) { l.grid[d] = static_cast<uint32_t>(most + 1); });
  }
  refused("no items", [](bp_launch& l) { l.group[0] = 0; });
  refused("items in y", [](bp_launch& l) { l.group[1] = 2; });
  refused("no items in z", [](bp_launch& l) { l.group[2] = 0; });
  refused("more items than max_group_size", [&](bp_launch& l) { l.group[0] = k.compiler.target().max_group_size + 1; });
  refused("no arguments", [](bp_launch& l) { l.args_bytes = 0; });
  refused("too few arguments", [](bp_launch& l) { l.args_bytes -= 8; });
  refused("a byte more", [](bp_launch& l) { l.args_bytes += 1; });
  refused("a flag", [](bp_launch& l) { l.flags = 1; });
  refused("4 GiB of local memory", [](bp_launch& l) { l.local_bytes = UINT32_MAX; });
  c.synchronize(0);
  same(c, out.get(), counted(100), sizes_rule, "memory after launches that were refused");
  c.expect(CALL_GROUP(k.module.group(), launch, c.devices(), nullptr, &sound), BP_INVALID_DEVICE, rules::no_such_device);
  works(c, k, 0, sizes_rule);
}

// Code is of a target, not of a device.
void devices(Context& c) {
  const Loaded k(c, 0);
  for (int32_t d = 1; d < c.devices(); ++d) {
    if (Compiler(c, d).target().target == std::string(k.compiler.target().target)) {
      const Loaded there(k, d);
      works(c, there, d, rules::load);
      works(c, k, 0, "The function is of this device");
      there.module.unload();
    } else {
      bp_module_code* out = nullptr;
      c.expect(CALL_GROUP(k.module.group(), load, d, k.code.data(), k.code.size(), &out), BP_INVALID_ARGUMENT,
               "INVALID_ARGUMENT: another target's (the core compiles anew)");
    }
  }
}

void unload(Context& c) {
  const Loaded lasting(c, 0);
  for (int round = 0; round < 30; ++round) {
    const Loaded passing(lasting, 0);
    works(c, passing, 0, rules::load);
    passing.module.unload();
  }
  works(c, lasting, 0, unload_rule);
  c.expect(CALL_GROUP(lasting.module.group(), unload, c.devices(), lasting.module.handle()), BP_INVALID_DEVICE, rules::no_such_device);
  lasting.module.unload();
  c.smoke(0, unload_rule);
  c.close();
}

// One function from several threads, to a stream each and to memory each, while others load and unload.
void threads(Context& c) {
  const Loaded k(c, 0);
  c.properties(0);
  std::vector<std::future<void>> all;
  for (int32_t i = 0; i < 4; ++i) {
    all.push_back(std::async(std::launch::async, [&, i] {
      bp_stream* stream = c.table().stream_create && i % 2 ? c.stream(0) : nullptr;
      const DeviceArray<int32_t> out(c, 0, 3000);
      uint32_t want = 0;
      for (int32_t round = 0; round < 50; ++round) {
        k.run(stream, out, 3, i + round);
        want = want * 3 + static_cast<uint32_t>(i + round);
        if (round % 10 == i) {
          const Module passing(c, 0, k.code);
          passing.function("mixed", 4, sizeof(Mixed), 3);
          passing.unload();
        }
      }
      same(c, out.get(stream), std::vector<int32_t>(3000, static_cast<int32_t>(want)), rules::threads,
           "kernels beside those of other threads");
    }));
  }
  for (std::future<void>& one : all) one.get();
}

// A kernel that fails, and what comes after it.
void fault(Context& c) {
  const Loaded k(c, 0, BP_COMPILE_DEBUG);
  const DeviceArray<int32_t> out(c, 0, counted(100));
  const auto failing = arguments({out.address()}, Affine{-1, 2, 1}), sound = arguments({out.address()}, Affine{100, 2, 1});
  const auto launch = [&](const std::vector<uint8_t>& args) {
    return k.module.try_launch(nullptr, k.module.prepare(k.advance, k.tile, 2, args), "advance");
  };
  c.expect(launch(sound), BP_OK, rules::launch);
  c.expect_one_of(launch(failing), {BP_OK, BP_FAULT}, fault_rule);  // an inline stream may tell of it at once
  c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, fault_rule);
  c.require(!c.last_error().empty(), rules::errors, "synchronize gave BP_FAULT and last_error gives an empty text");
  for (int again = 0; again < 2; ++again) {
    c.expect(launch(sound), BP_FAULT, "BP_FAULT: sticky; it comes back from launches");
    bp_module_code* none = nullptr;
    c.expect(CALL_GROUP(k.module.group(), load, 0, k.code.data(), k.code.size(), &none), BP_FAULT, "load: errors: sticky ones");
    c.require(!none, rules::errors, "load failed and yet set *out");
  }
  if (c.devices() > 1) works(c, Loaded(c, 1), 1, "FAULT and DEVICE_LOST are sticky for that device");
  c.expect(CALL_GROUP(k.module.group(), unload, 0, k.module.handle()), BP_OK, "Works after a FAULT, BP_OK after DEVICE_LOST");
  c.expect(CALL(c, free, 0, out.address()), BP_OK, "Works after a FAULT");
  c.close();
}

// By way of the fault shim. What it counts before are the loads, the memory and the copies of the beginning.
void lost(Context& c) {
  const char* rule = "BP_DEVICE_LOST: sticky: the device is gone; it comes back from launches";
  c.load();
  c.require_needs(needs_compiler | needs_module);
  c.close();
  c.load_with_fault("fault.lost=@40,fault.device=0");
  c.open();
  const Loaded k(c, 0);
  const DeviceArray<int32_t> out(c, 0, 100);
  int32_t status = BP_OK;
  for (int i = 0; i < 40 && status == BP_OK; ++i) {
    uint64_t address = 0;
    status = CALL(c, alloc, 0, 4096, 0u, &address);
  }
  c.expect(status, BP_DEVICE_LOST, rule);
  const auto args = arguments({out.address()}, Affine{100, 2, 1});
  for (int again = 0; again < 2; ++again) {
    c.expect(k.module.try_launch(nullptr, k.module.prepare(k.advance, k.tile, 2, args), "advance"), BP_DEVICE_LOST, rule);
    bp_module_code* none = nullptr;
    c.expect(CALL_GROUP(k.module.group(), load, 0, k.code.data(), k.code.size(), &none), BP_DEVICE_LOST, "load: errors: sticky ones");
    c.require(!none, rules::errors, "load failed and yet set *out");
  }
  c.expect(CALL_GROUP(k.module.group(), unload, 0, k.module.handle()), BP_OK, "Works after a FAULT, BP_OK after DEVICE_LOST");
  c.expect(CALL(c, free, 0, out.address()), BP_OK, "BP_OK after DEVICE_LOST");
  c.close();
}

}  // namespace module_impl

Checks module_checks() {
  using namespace module_impl;
  constexpr uint32_t needs = needs_compiler | needs_module;
  constexpr uint32_t streams = needs | needs_streams;
  return {
      {"module.load", "code is loaded, more than once, and unloaded", needs, load},
      {"module.function", "kernels are found by name and signature", needs, function},
      {"module.refused", "bytes that are no code are refused", needs, refused},
      {"module.values", "kernels see pointers, 0 too, and a struct", needs, values},
      {"module.most", "as many arguments as the target allows", needs, most},
      {"module.read_at_once", "arguments are read before a launch returns", needs, read_at_once},
      {"module.order", "kernels, copies and fills keep their order", streams | needs_pinned | needs_fill, order},
      {"module.pending", "launch does not wait, a kernel not run early", streams, pending},
      {"module.events", "two streams and an event", streams | needs_events, events},
      {"module.grid", "each group runs once, in three dimensions", needs, grid},
      {"module.sizes", "wrong sizes are refused", needs, sizes},
      {"module.devices", "code of one device runs on the next", needs | needs_two_devices, devices},
      {"module.unload", "what is unloaded leaves the rest alone", needs, unload},
      {"module.threads", "several threads load and launch", needs | needs_threads, threads},
      {"module.fault", "a kernel that fails makes the device FAULT", needs, fault},
      {"module.lost", "a device that is gone: launch tells, unload works", starts_unloaded, lost},
  };
}

}  // namespace backplane::check
