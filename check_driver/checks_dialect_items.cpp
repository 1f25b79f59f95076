// check_driver/checks_dialect_items.cpp: groups and items, and what they have in common: local memory, atomics, shuffles.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {

constexpr char items_rule[] =
    "BP_ITEM, BP_GROUP_ID(d), BP_GROUPS(d): item in the group; group and number of groups of dimension d (0, 1, 2)";

void groups(Context& c) {
  const Compiler compiler(c, 0);
  for (const Tile& tile : compiler.tiles()) {
    const char* words = "BP_ITEM, BP_GROUP_ID, BP_GROUPS";
    const Module module = load(c, compiler, tile, words, R"(
typedef struct { i64 unused; } Nothing;
BP_KERNEL(places, 1, Nothing, BP_GLOBAL i32* BP_RESTRICT out) {
  const i64 group = ((i64)BP_GROUP_ID(2) * BP_GROUPS(1) + BP_GROUP_ID(1)) * BP_GROUPS(0) + BP_GROUP_ID(0);
  const i64 at = 8 * (group * BP_GROUP + BP_ITEM);
  out[at] = BP_ITEM;
  out[at + 1] = BP_GROUP_ID(0); out[at + 2] = BP_GROUP_ID(1); out[at + 3] = BP_GROUP_ID(2);
  out[at + 4] = BP_GROUPS(0); out[at + 5] = BP_GROUPS(1); out[at + 6] = BP_GROUPS(2);
  out[at + 7] += 1;
}
)");
    constexpr int32_t grid[3] = {4, 3, 2};
    std::vector<int32_t> want;
    for (int32_t z = 0; z < grid[2]; ++z) {
      for (int32_t y = 0; y < grid[1]; ++y) {
        for (int32_t x = 0; x < grid[0]; ++x) {
          for (int32_t item = 0; item < static_cast<int32_t>(tile.group); ++item) {
            want.insert(want.end(), {item, x, y, z, grid[0], grid[1], grid[2], 1});
          }
        }
      }
    }
    const DeviceArray<int32_t> out(c, 0, want.size());
    const auto args = arguments({out.address()}, Count{0});
    bp_launch launch = module.prepare(module.function("places", 1, sizeof(Count)), tile, grid[0], args);
    launch.grid[1] = grid[1];
    launch.grid[2] = grid[2];
    module.launch(nullptr, launch, "places");
    same(c, out.get(), want, tile, words, items_rule);
    module.unload();
  }
}

// Items write what others read, in local memory and in memory of the device, more than once; then the largest array there may be.
void local(Context& c) {
  const char* words = "BP_LOCAL_ARRAY, BP_BARRIER";
  const char* rule = "BP_BARRIER(): all items of the group are here, and see what was written to local and global memory before";
  const Compiler compiler(c, 0);
  const uint32_t largest = compiler.target().local_bytes / 4;
  for (const Tile& tile : compiler.tiles()) {
    const Module module = load(c, compiler, tile, words, format("#define LARGEST %u\n", largest) + R"(
typedef struct { i64 n; } Count;
#define TILE (BP_GROUP * BP_PER_ITEM)
BP_KERNEL(reverse, 2, Count, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  BP_LOCAL_ARRAY(i32, s, BP_GROUP * BP_PER_ITEM);
  BP_LOCAL_ARRAY(i64, sums, BP_GROUP);
  const i64 first = (i64)BP_GROUP_ID(0) * TILE;
  i64 sum = 0;
  for (i32 round = 1; round <= 5; ++round) {
    for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) s[e] = in[first + e] * round;
    BP_BARRIER();
    for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) sum += (i64)s[TILE - 1 - e] * (e + 1);
    BP_BARRIER();
  }
  sums[BP_ITEM] = sum;
  BP_BARRIER();
  i64 all = 0;
  for (i32 item = 0; item < BP_GROUP; ++item) all += sums[item];
  for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) out[first + e] = in[first + TILE - 1 - e] + (i32)all;
}
BP_KERNEL(neighbour, 2, Count, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL i32* BP_RESTRICT shared) {
  const i64 first = (i64)BP_GROUP_ID(0) * BP_GROUP;
  for (i32 round = 0; round < 5; ++round) {
    shared[first + BP_ITEM] = BP_ITEM * 10 + round;
    BP_BARRIER();
    out[first + BP_ITEM] += shared[first + (BP_ITEM + 1) % BP_GROUP];
    BP_BARRIER();
  }
}
BP_KERNEL(largest, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {
  BP_LOCAL_ARRAY(i32, s, LARGEST);
  for (i32 e = BP_ITEM; e < LARGEST; e += BP_GROUP) s[e] = 3 * e + BP_GROUP_ID(0);
  BP_BARRIER();
  for (i32 e = BP_ITEM; e < LARGEST; e += BP_GROUP) out[(i64)BP_GROUP_ID(0) * LARGEST + e] = s[LARGEST - 1 - e];
}
)");
    constexpr uint32_t several = 4;
    const auto tile_size = static_cast<int32_t>(tile.size()), items = static_cast<int32_t>(tile.group);
    std::vector<int32_t> in(several * tile.size()), want(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 31 % 1009) - 500;
    for (size_t first = 0; first < in.size(); first += tile.size()) {
      int64_t sum = 0;
      for (int32_t e = 0; e < tile_size; ++e) sum += 15 * int64_t{in[first + static_cast<size_t>(tile_size - 1 - e)]} * (e + 1);
      for (size_t e = 0; e < tile.size(); ++e) want[first + e] = in[first + tile.size() - 1 - e] + static_cast<int32_t>(sum);
    }
    const DeviceArray<int32_t> out(c, 0, in.size()), input(c, 0, in);
    module.run("reverse", tile, several, {out.address(), input.address()}, Count{0});
    same(c, out.get(), want, tile, words, rule);

    const DeviceArray<int32_t> seen(c, 0, several * tile.group), shared(c, 0, several * tile.group);
    module.run("neighbour", tile, several, {seen.address(), shared.address()}, Count{0}, 3);
    want.clear();
    for (uint32_t group = 0; group < several; ++group) {
      for (int32_t item = 0; item < items; ++item) want.push_back((item + 1) % items * 50 + 10);
    }
    same(c, seen.get(), want, tile, "BP_BARRIER", rule);

    const DeviceArray<int32_t> whole(c, 0, 2 * largest);
    module.run("largest", tile, 2, {whole.address()}, Count{0});
    want.assign(2 * largest, 0);
    for (uint32_t i = 0; i < 2 * largest; ++i) want[i] = static_cast<int32_t>(3 * (largest - 1 - i % largest) + i / largest);
    same(c, whole.get(), want, tile, "BP_LOCAL_ARRAY of local_bytes", "local_bytes: work-group memory of a group");
    module.unload();
  }
}

// Each launch tags a local array of its own for a while: on several streams at once, of one kernel, which a runtime may keep once.
void local_of_launches(Context& c) {
  const char* rule = "BP_LOCAL_ARRAY: each group has its own, beside those of launches on other streams, too";
  const Compiler compiler(c, 0);
  for (const Tile& tile : compiler.tiles()) {
    const Module module = load(c, compiler, tile, "BP_LOCAL_ARRAY", R"(
typedef struct { i64 tag; } Tag;
#define LENGTH 1024
#define ROUNDS (BP_GROUP == 1 ? 5000 : 500)
BP_KERNEL(tagged, 1, Tag, BP_GLOBAL i32* BP_RESTRICT out) {
  BP_LOCAL_ARRAY(i32, s, LENGTH);
  i32 wrong = 0;
  for (i32 round = 0; round < ROUNDS; ++round) {
    const i32 tag = (i32)bp_arg.tag + round;
    for (i32 e = BP_ITEM; e < LENGTH; e += BP_GROUP) s[e] = tag + e;
    BP_BARRIER();
    for (i32 e = BP_ITEM; e < LENGTH; e += BP_GROUP) wrong += s[LENGTH - 1 - e] != tag + LENGTH - 1 - e;
    BP_BARRIER();
  }
  out[(i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM] = wrong;
}
)");
    constexpr uint32_t groups = 4, launches = 4;
    bp_function* const tagged = module.function("tagged", 1, sizeof(Count));
    std::vector<bp_stream*> streams{nullptr};
    for (int i = 0; i < 3 && c.table().stream_create; ++i) streams.push_back(c.stream(0));
    std::vector<DeviceArray<int32_t>> outs;
    for (size_t i = 0; i < streams.size() * launches; ++i) outs.emplace_back(c, 0, std::vector<int32_t>(groups * tile.group, -1));
    for (size_t i = 0; i < outs.size(); ++i) {
      const auto args = arguments({outs[i].address()}, Count{static_cast<int64_t>(1000 * i)});
      module.launch(streams[i % streams.size()], module.prepare(tagged, tile, groups, args), "tagged");
    }
    for (size_t i = 0; i < outs.size(); ++i) {
      same(c, outs[i].get(streams[i % streams.size()]), std::vector<int32_t>(groups * tile.group, 0), tile,
           "BP_LOCAL_ARRAY: in launches on several streams, wrong elements", rule);
    }
    module.unload();
  }
}

void atomics(Context& c) {
  const char* rule = "where the target's `atomics` say so: adds to device memory; compare and swap gives what was there before";
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  constexpr uint32_t groups = 300;
  constexpr size_t cells = 5;
  const uint32_t named = compiler.target().atomics;
  if (!named) throw NotOffered{std::string("target \"") + compiler.target().target + "\" names no atomics"};
  // Each item adds its number, which is small, to one of five cells. Sums of f32 stay whole numbers that have a place in it.
  const auto hold_adds = [&](auto type, uint32_t bit, const char* word, const std::string& statement) {
    using T = decltype(type);
    if (!(named & bit)) return;
    const char* element = type_name<T>;
    const Module module = load(c, compiler, tile, word,
                               std::string("typedef struct { i64 unused; } Nothing;\nBP_KERNEL(add, 1, Nothing, BP_GLOBAL ") + element +
                                   "* BP_RESTRICT out) {\n  const i32 cell = (BP_GROUP_ID(0) + BP_ITEM) % 5;\n  const " + element +
                                   " v = (" + element + ")(BP_ITEM % 3 + 1);\n  " + statement + "\n}\n");
    std::vector<T> want(cells, T(100));
    const DeviceArray<T> out(c, 0, want);
    module.run("add", tile, groups, {out.address()}, Count{0}, 1, word);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t item = 0; item < tile.group; ++item) want[(group + item) % cells] += static_cast<T>(item % 3 + 1);
    }
    same(c, out.get(), want, tile, word, rule);
    module.unload();
  };
  const auto swap = [](const char* word, const char* type) {
    return std::string(type) + " seen = out[cell], before;\n  while ((before = " + word +
           "(out + cell, seen, seen + v)) != seen) seen = before;";
  };
  hold_adds(int32_t(), BP_ATOMIC_ADD_I32, "BP_ATOMIC_ADD_I32", "BP_ATOMIC_ADD_I32(out + cell, v);");
  hold_adds(int64_t(), BP_ATOMIC_ADD_I64, "BP_ATOMIC_ADD_I64", "BP_ATOMIC_ADD_I64(out + cell, v);");
  hold_adds(float(), BP_ATOMIC_ADD_F32, "BP_ATOMIC_ADD_F32", "BP_ATOMIC_ADD_F32(out + cell, v);");
  hold_adds(uint32_t(), BP_ATOMIC_CAS_32, "BP_ATOMIC_CAS_32", swap("BP_ATOMIC_CAS_32", "u32"));
  hold_adds(uint64_t(), BP_ATOMIC_CAS_64, "BP_ATOMIC_CAS_64", swap("BP_ATOMIC_CAS_64", "u64"));
}

void shuffle(Context& c) {
  const Compiler compiler(c, 0);
  const uint32_t subgroup = compiler.target().subgroup_size;
  if (!subgroup) throw NotOffered{std::string("target \"") + compiler.target().target + "\" has no subgroups"};
  const Tile tile = {std::max(compiler.target().group_size, subgroup), 1};
  std::string body =
      "  const u32 own = (u32)BP_ITEM * 2654435761u + (u32)BP_GROUP_ID(0);\n"
      "  const i64 first = (i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM;\n";
  std::vector<uint32_t> masks;
  for (uint32_t mask = 1; mask < subgroup; mask = mask < subgroup / 2 ? mask * 2 : subgroup - (mask == subgroup - 1 ? 0 : 1))
    masks.push_back(mask);
  constexpr uint32_t groups = 3;
  std::vector<uint32_t> want;
  for (size_t i = 0; i < masks.size(); ++i) {
    body += format("  out[first + %zu * BP_GROUP * %u] = BP_SHUFFLE_XOR(own, %u);\n", i, groups, masks[i]);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t item = 0; item < tile.group; ++item) want.push_back((item ^ masks[i]) * 2654435761u + group);
    }
  }
  const Module module =
      load(c, compiler, tile, "BP_SHUFFLE_XOR",
           "typedef struct { i64 unused; } Nothing;\nBP_KERNEL(exchange, 1, Nothing, BP_GLOBAL u32* BP_RESTRICT out) {\n" + body + "}\n");
  const DeviceArray<uint32_t> out(c, 0, want.size());
  module.run("exchange", tile, groups, {out.address()}, Count{0}, 1, "BP_SHUFFLE_XOR");
  same(c, out.get(), want, tile, "BP_SHUFFLE_XOR",
       "where subgroup_size is not 0: the u32 x of the item whose number in the subgroup is the own one xor mask");
}

}  // namespace dialect_impl
}  // namespace backplane::check
