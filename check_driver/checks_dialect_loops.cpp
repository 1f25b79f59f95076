// check_driver/checks_dialect_loops.cpp: the loops that the core's and torch.compile's kernels are made of: whole tiles, and tails.
#include <set>

#include "words.h"

namespace backplane::check {
namespace dialect_impl {
namespace {

// As the core adds them: backend/kernels/portable/dialect/core.bpc and generated.bpc.
constexpr char core_words[] = R"(
typedef struct { i64 n; } Count;
#define BP_TILE (BP_GROUP * BP_PER_ITEM)
#define BP_LANES(j) BP_IVDEP for (i32 j = 0; j < BP_PER_ITEM; ++j)
#define BP_AT(j) ((j) * BP_GROUP + BP_ITEM)
#define BP_TAIL(j, first, end) for (i32 j = 0; j < BP_PER_ITEM && (first) + BP_AT(j) < (end); ++j)
#define BP_LANES_FROM(first, end) \
  ((end) - (first) >= BP_TILE ? BP_PER_ITEM \
                              : (end) - (first) <= BP_ITEM ? 0 : (i32)(((end) - (first) - BP_ITEM + BP_GROUP - 1) / BP_GROUP))
#if BP_GROUP == 1
#define BP_EACH_LANE(j, lanes) BP_IVDEP for (i32 j = 0; j < (lanes); ++j)
#else
#define BP_EACH_LANE(j, lanes) BP_UNROLL for (i32 j = 0; j < BP_PER_ITEM; ++j) if (j < (lanes))
#endif
)";

// Kernels whose names end with `name`, with indices of a type and a length that is an expression.
std::string loops_of(const std::string& name, const std::string& index, const std::string& length) {
  std::string text = R"(
BP_KERNEL(tails_NAME, 3, Count, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL i32* BP_RESTRICT left, BP_GLOBAL const i32* BP_RESTRICT in) {
  const i64 first_ = (i64)BP_GROUP_ID(0) % ((LENGTH + BP_TILE - 1) / BP_TILE) * BP_TILE; /* 0, known, where one tile has a literal length */
  const i32 lanes_ = BP_LANES_FROM(first_, LENGTH);
  if (lanes_ == BP_PER_ITEM) {
    BP_LANES(j) { const INDEX i = (INDEX)(first_ + BP_AT(j)); out[i] = 3 * in[i] + 1; }
  } else {
    BP_EACH_LANE(j, lanes_) { const INDEX i = (INDEX)(first_ + BP_AT(j)); out[i] = 3 * in[i] + 1; }
  }
  const INDEX begin = (INDEX)first_;
  BP_TAIL(j, begin, (INDEX)LENGTH) left[begin + BP_AT(j)] = 3 * in[begin + BP_AT(j)] + 1;
}
BP_KERNEL(folds_NAME, 2, Count, BP_GLOBAL i64* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  BP_LOCAL_ARRAY(i64, parts, BP_GROUP);
  const INDEX row = BP_GROUP_ID(0);
  i64 sums[BP_PER_ITEM];
  BP_LANES(j) { sums[j] = 0; }
  i64 first_ = 0;
  for (; first_ + BP_TILE <= LENGTH; first_ += BP_TILE) {
    BP_LANES(j) { const INDEX i = (INDEX)(first_ + BP_AT(j)); sums[j] += in[row * (INDEX)LENGTH + i]; }
  }
  if (first_ < LENGTH) {
    const i32 lanes_ = BP_LANES_FROM(first_, LENGTH);
    BP_EACH_LANE(j, lanes_) { const INDEX i = (INDEX)(first_ + BP_AT(j)); sums[j] += in[row * (INDEX)LENGTH + i]; }
  }
  i64 sum = 0;
  for (i32 j = 0; j < BP_PER_ITEM; ++j) sum += sums[j];
  parts[BP_ITEM] = sum;
  BP_BARRIER();
  if (BP_ITEM == 0) {
    sum = 0;
    for (i32 item = 0; item < BP_GROUP; ++item) sum += parts[item];
    out[row] = sum;
  }
}
)";
  for (const auto& [word, replacement] : {std::pair("NAME", name), std::pair("INDEX", index), std::pair("LENGTH", length)}) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += replacement.size()) {
      text.replace(at, strlen(word), replacement);
    }
  }
  return text;
}

}  // namespace

// Of lengths around those of a group and of its tile, as a number of the launch; and of one that is known when the kernel is compiled.
void loops(Context& c) {
  const char* rule = "BP_ITEM: i32: item in the group; arithmetic and comparisons of i32 and i64, and of one with the other, as in C";
  constexpr uint32_t rows = 3, literal = 65;
  const Compiler compiler(c, 0);
  for (const Tile& tile : compiler.tiles()) {
    if (tile.group == compiler.target().max_group_size && tile.group != compiler.tile().group) continue;  // minutes of some compilers
    const uint32_t group = tile.group, size = tile.size();
    std::set<uint32_t> lengths = {1, group - 1, group, group + 1, size - 1, size, size + 1, 2 * size - 1, 2 * size + 1, literal};
    lengths.erase(0);
    std::string kernels = core_words;
    for (const std::string index : {"i32", "i64"}) kernels += loops_of(index, index, "bp_arg.n");
    kernels += loops_of("literal", "i64", format("(i64)%u", literal));
    const Module module = load(c, compiler, tile, "BP_LANES_FROM, BP_EACH_LANE", kernels);
    const uint32_t most = (tile.groups(*lengths.rbegin()) + 1) * size;
    std::vector<int32_t> in(rows * most);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 37 % 1013) - 400;
    const DeviceArray<int32_t> input(c, 0, in), out(c, 0, most), left(c, 0, most);
    const DeviceArray<int64_t> sums(c, 0, rows);
    for (const uint32_t length : lengths) {
      std::vector<int32_t> want(most, 77);
      std::vector<int64_t> want_sums(rows);
      for (uint32_t i = 0; i < length; ++i) want[i] = 3 * in[i] + 1;
      for (uint32_t i = 0; i < rows * length; ++i) want_sums[i / length] += in[i];
      for (const std::string name : {"i32", "i64", "literal"}) {
        if (name == "literal" && length != literal) continue;
        const std::string of =
            format(" of %u elements (%s)", length, name == "literal" ? "a literal length" : ("indices of " + name).c_str());
        const auto run = [&](const std::string& kernel, const std::vector<uint64_t>& pointers, uint32_t groups) {
          bp_function* const function =
              module.function(kernel, static_cast<uint32_t>(pointers.size()), sizeof(Count), pointers.size() == 3 ? 3 : 1);
          module.launch(nullptr, module.prepare(function, tile, groups, arguments(pointers, Count{length})), kernel);
        };
        for (const auto* array : {&out, &left}) array->set(std::vector<int32_t>(most, 77));
        run("tails_" + name, {out.address(), left.address(), input.address()}, tile.groups(length));
        same(c, out.get(), want, tile, ("BP_LANES_FROM, BP_EACH_LANE in a tail" + of).c_str(), rule);
        same(c, left.get(), want, tile, ("BP_TAIL" + of).c_str(), rule);
        run("folds_" + name, {sums.address(), input.address()}, rows);
        same(c, sums.get(), want_sums, tile, ("BP_LANES_FROM, BP_EACH_LANE in a fold" + of).c_str(), rule);
      }
    }
    for (const uint64_t address : {input.address(), out.address(), left.address(), sums.address()}) c.free(0, address);
    module.unload();
  }
}

}  // namespace dialect_impl
}  // namespace backplane::check
