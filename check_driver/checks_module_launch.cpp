// check_driver/checks_module_launch.cpp: arguments, grid and order of launches.
#include "loaded.h"

namespace backplane::check {
namespace module_impl {

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
  same(c, out.get(), {want}, "parameter_bytes: maximum bytes of a launch's arguments", "the weighted sum of all arguments");
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

}  // namespace module_impl
}  // namespace backplane::check
