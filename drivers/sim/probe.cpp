// drivers/sim/probe.cpp: the loops, as the core's kernels write them, with a program that computes them and knows the result.
#include "probe.h"

#include <algorithm>
#include <iterator>

#include "child.h"

namespace backplane::driver::sim {
namespace {

// With the first, a loop that copies is not replaced by a call of memcpy, which takes 20 times as long on some processors where the
// destination lies a few bytes after the source, modulo a page; and a condition that is the same for all of a loop is moved out of longer
// loops, which are then vectorised. The second leaves short loops in loops until those around are vectorised. Both are GCC's. These and the
// third cost no speed, and are not reported.
constexpr const char* kOptimizations[] = {"-O3 -fno-tree-loop-distribute-patterns --param max-unswitch-insns=200",
                                          "-O3 -fno-tree-loop-distribute-patterns --param max-unswitch-insns=200 -fdisable-tree-cunrolli",
                                          "-O3", "-O3 -fno-tree-vectorize", "-O1"};
constexpr size_t kFast = 3;  // so many are not reported

// Seen with GCC 12.2. Its loop vectoriser takes the mask of a comparison, -1, for its value, 1, as the place of a gather. And its ivopts
// addresses a local array from another pointer, whereupon a later pass reads the array before it is written. Of a short loop that is
// unrolled in another it takes the mask of the first elements for those of all, where a condition on 16 bits decides what of 32 is read.
constexpr const char* kProbe = R"c(
#ifndef BP_OPAQUE_ZERO
#define BP_OPAQUE_ZERO ((i64)0)
#endif
typedef struct { i64 n; } Places;
BP_KERNEL(places, 3, Places, BP_GLOBAL const f32* BP_RESTRICT x, BP_GLOBAL const f32* BP_RESTRICT table, BP_GLOBAL f32* BP_RESTRICT y) {
  const i64 hidden = BP_OPAQUE_ZERO;
  BP_IVDEP for (i32 j = 0; j < 64; ++j) {
    const u8 positive = x[j] > 0.0f;
    y[j] = table[(i64)positive ^ hidden];
  }
}

typedef struct { i64 n, threshold, groups; } Dropout;
BP_FN u32 high_part(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
BP_KERNEL(dropout, 3, Dropout, BP_GLOBAL f32* x, BP_GLOBAL f32* y, BP_GLOBAL f32* drawn) {
  const i32 n = (i32)bp_arg.n;
  const f32 threshold = bp_as_f32((u32)bp_arg.threshold);
  for (i64 at = BP_GROUP_ID(0); at < bp_arg.groups; at += BP_GROUPS(0)) {
    const i32 first = (i32)at * 128;
    BP_GLOBAL f32* const from = x + (i64)first;
    BP_GLOBAL f32* const numbers = drawn + (i64)first;
    BP_GLOBAL f32* const to = y + (i64)first;
    BP_LOCAL_ARRAY(f32, values, 128);
    BP_LOCAL_ARRAY(f32, kept, 128);
    BP_IVDEP for (i32 j = 0; j < 128; ++j) {
      const i32 there = first + j < n;
      values[j] = there ? from[(i64)j] : 0.0f;
    }
    BP_IVDEP for (i32 j = 0; j < 128; ++j) {
      i32 a = first + j, b = 0, c = 0, d = 0, k = n, l = n >> 5;
      for (i32 round = 0; round < 10; ++round) {
        const i32 e = (i32)high_part(0xCD9E8D57u, (u32)c) ^ b ^ k, f = (i32)((u32)c * 0xCD9E8D57u);
        const i32 g = (i32)high_part(0xD2511F53u, (u32)a) ^ d ^ l, h = (i32)((u32)a * 0xD2511F53u);
        a = e;
        b = f;
        c = g;
        d = h;
        k += (i32)0x9E3779B9u;
        l += (i32)0xBB67AE85u;
      }
      const f32 one = (f32)(a < 0 ? -a - 1 : a) * 4.6566126e-10f;
      kept[j] = one;
      if (first + j < n) numbers[(i64)j] = one;
    }
    BP_IVDEP for (i32 j = 0; j < 128; ++j) {
      const f32 result = kept[j] > threshold ? values[j] / (1.0f - threshold) : 0.0f;
      if (first + j < n) to[(i64)j] = result;
    }
  }
}

typedef struct { i64 rows; } Masked;
BP_KERNEL(masked, 3, Masked, BP_GLOBAL const i16* BP_RESTRICT kinds, BP_GLOBAL const f32* BP_RESTRICT x, BP_GLOBAL f32* BP_RESTRICT y) {
  BP_LOCAL_ARRAY(i16, others, 64);
  BP_LOCAL_ARRAY(f32, values, 64);
  for (i32 i = 0; i < 4; ++i) {
    for (i32 j = 0; j < 16; ++j) others[i * 16 + j] = (i16)2;
  }
  for (i32 i = 0; i < 4; ++i) {
    BP_GLOBAL const f32* const from = x + (i64)i * 16;
    BP_IVDEP for (i32 j = 0; j < 16; ++j) {
      const i16 kind = kinds[i * 16 + j], other = others[i * 16 + j];
      values[i * 16 + j] = kind != other ? from[(i64)j] : 2.0f;
    }
  }
  for (i32 i = 0; i < (i32)bp_arg.rows; ++i) {
    for (i32 j = 0; j < 16; ++j) y[i * 16 + j] = values[i * 16 + j];
  }
}

long write(int, const void*, u64);
static int say(const char* text) {
  write(1, text, __builtin_strlen(text));
  return 0;
}
static f32 x[1024], y[1024], z[1024];
static i16 kinds[64];
int main(void) {
  const u32 grid[3] = {1, 1, 1};
  for (i32 i = 0; i < 64; ++i) x[i] = (f32)(i % 3 - 1);
  y[512] = 10.0f;
  y[513] = 20.0f;
  const u64 places[] = {(u64)x, (u64)(y + 512), (u64)z, 64};
  bp_kernel_places.run(places, grid, 0);
  for (i32 i = 0; i < 64; ++i) {
    if (z[i] != (x[i] > 0.0f ? 20.0f : 10.0f)) return say("a loop reads the wrong element where a comparison is its place");
  }
  for (i32 i = 0; i < 1024; ++i) x[i] = 1.0f;
  const u64 dropout[] = {(u64)x, (u64)y, (u64)z, 1000, bp_as_u32(0.25f), 8};
  bp_kernel_dropout.run(dropout, grid, 0);
  for (i32 i = 0; i < 1000; ++i) {
    if ((y[i] != 0.0f) != (z[i] > 0.25f)) return say("a loop reads a local array before it is written");
  }
  for (i32 i = 0; i < 64; ++i) kinds[i] = (i16)(i * 7 % 5), x[i] = 10.0f;
  const u64 masked[] = {(u64)kinds, (u64)x, (u64)z, 4};
  bp_kernel_masked.run(masked, grid, 0);
  for (i32 i = 0; i < 64; ++i) {
    if (z[i] != (kinds[i] != 2 ? 10.0f : 2.0f)) return say("a loop reads under the condition of another element");
  }
  return say("right");
}
)c";

}  // namespace

Optimization probe(const std::vector<std::string>& command, const std::string& prelude) {
  Optimization out;
  std::string wrong;
  for (size_t i = 0; i < std::size(kOptimizations); ++i) {
    const char* const flags = kOptimizations[i];
    const PrivateFolder folder;
    const std::string program = folder.path() + "/probe";
    std::vector<std::string> words = command;
    for (std::string& word : words_of(flags)) words.push_back(std::move(word));
    for (const std::string& word :
         {std::string("-o"), program, std::string("-x"), std::string("c"), std::string("-"), std::string("-lm")}) {
      words.push_back(word);
    }
    out.flags = flags;
    const Ended compiled = run_child(words, "#define BP_GROUP 1\n" + prelude + kProbe, folder.path());
    if (compiled.start_error || compiled.signal || find_program(program).empty()) {
      if (i + 1 != kFast) continue;  // it is another compiler's option
      const size_t error = std::min(compiled.output.find("error"), compiled.output.size());
      const std::string what =
          compiled.start_error ? "it does not start" : compiled.output.substr(error, compiled.output.find('\n', error) - error);
      out.report =
          "does not compile the probe of its loops (" + what + "); kernels are compiled with " + out.flags + ", which is unchecked";
      return out;
    }
    const Ended ended = run_child({program}, "", folder.path());
    if (ended.output == "right") {
      if (i < kFast) return out;
      break;
    }
    if (wrong.empty()) wrong = ended.output.empty() ? "the program of the probe does not run to its end" : ended.output;
  }
  out.report = "miscompiles kernels at -O3 (" + wrong + "); they are compiled with " + out.flags + ", which is slower";
  return out;
}

std::string probe_id() {
  std::string out = kProbe;
  for (const char* flags : kOptimizations) out += flags;
  return out;
}

}  // namespace backplane::driver::sim
