// check_driver/words.cpp: words of the dialect become a unit; if it does not compile, halves of it show which word is wrong.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {

namespace {

std::string kernel_of(const Word& word, size_t number) {
  const std::string input = std::string("BP_GLOBAL const ") + word.argument + "* BP_RESTRICT ";
  const std::string value = std::string("    const ") + word.argument + " ";
  return format("BP_KERNEL(word_%zu, 4, Count, BP_GLOBAL %s* BP_RESTRICT out, ", number, word.result) + input + "xs, " + input + "ys, " +
         input + "zs) {\n  EACH(i, bp_arg.n) {\n" + value + "x = xs[i];\n" + value + "y = ys[i];\n" + value + "z = zs[i];\n" +
         "    out[i] = " + word.code + ";\n  }\n}\n";
}

std::string unit_of(const Compiler& compiler, const Tile& tile, const std::vector<Word>& words) {
  std::string kernels = "typedef struct { i64 n; } Count;\n";
  for (size_t i = 0; i < words.size(); ++i) kernels += kernel_of(words[i], i);
  return compiler.unit(tile, kernels);
}

[[noreturn]] void blame(Context& c, const Compiler& compiler, const Tile& tile, std::vector<Word> words, std::string log) {
  while (words.size() > 1) {
    const auto middle = words.begin() + static_cast<std::ptrdiff_t>(words.size() / 2);
    std::vector<Word> halves[] = {{words.begin(), middle}, {middle, words.end()}};
    Compiler::Compiled compiled = compiler.try_compile(unit_of(compiler, tile, halves[0]));
    std::vector<Word>* wrong = &halves[0];
    if (compiled.status == BP_OK) {
      compiled = compiler.try_compile(unit_of(compiler, tile, halves[1]));
      wrong = &halves[1];
    }
    if (compiled.status == BP_OK) c.fail(words_rule, "kernels of two words compile each alone, and not in one unit: " + log.substr(0, 600));
    log = compiled.log;
    words = *wrong;
  }
  c.fail(words_rule, words[0].name + ": \"" + words[0].code + "\" does not compile: " + log.substr(0, 600));
}

}  // namespace

void hold(Context& c, const Compiler& compiler, const std::vector<Word>& words) {
  const Tile tile = compiler.tile();
  const Compiler::Compiled compiled = compiler.try_compile(unit_of(compiler, tile, words));
  if (compiled.status != BP_OK) blame(c, compiler, tile, words, compiled.log);
  const Module module(c, 0, compiled.code);
  for (size_t i = 0; i < words.size(); ++i) {
    named(words[i].name, [&] { words[i].run(c, module, tile, format("word_%zu", i), words[i]); });
  }
}

Module load(Context& c, const Compiler& compiler, const Tile& tile, const char* words, const std::string& kernels, uint32_t flags) {
  const Compiler::Compiled compiled = compiler.try_compile(compiler.unit(tile, kernels), flags);
  c.require(compiled.status == BP_OK, words_rule, "%s: a kernel with BP_GROUP %u does not compile: %.600s", words, tile.group,
            compiled.log.c_str());
  return Module(c, 0, compiled.code);
}

}  // namespace dialect_impl
}  // namespace backplane::check
