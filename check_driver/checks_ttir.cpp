// check_driver/checks_ttir.cpp: family "ttir": the languages of bp.compiler, and modules of Triton by value.
#include "loaded.h"

namespace backplane::check {
namespace ttir_impl {

constexpr char language_rule[] = "Bit 1 << language of bp_target_properties.languages: the target supports it";
constexpr char unknown_rule[] = "INVALID_ARGUMENT without a result (log NULL): an unknown target, language or flag";
constexpr char parameters_rule[] = "one letter for each argument of the module's function, in their order";
constexpr char value_rule[] =
    "Its programs are the groups of a launch, whose grid has three dimensions. The arguments of a launch are its pointers "
    "in their order, then its numbers in theirs, 8 bytes each";

Compiler::Compiled compile(Context& c, const Compiler& compiler, uint32_t flags = 0) {
  Compiler::Compiled compiled = compiler.try_compile(compiler.sample(), flags);
  c.require(compiled.status == BP_OK, rules::compile, "a module that is right does not compile: %.600s", compiled.log.c_str());
  c.require(!compiled.kernel.empty(), "kernel: its name for bp.module's function", "kernel is NULL or an empty text");
  c.require(compiled.parameters == "pipfi", parameters_rule, "parameters is \"%.80s\" of a module with the arguments pipfi",
            compiled.parameters.c_str());
  c.require(compiled.group_size >= 1 && compiled.group_size <= compiler.target().max_group_size, "group_size: items of a group",
            "group_size is %u, and the target's max_group_size %u", compiled.group_size, compiler.target().max_group_size);
  return compiled;
}

void languages(Context& c) {
  const Compiler compiler(c, c.devices() ? 0 : -1, any_language);
  if (compiler.group().head.version < 2) throw NotOffered{"bp.compiler has version 1, which is without languages"};
  const uint64_t offered = compiler.target().languages;
  c.require((offered & ~uint64_t{3}) == 0, language_rule, "target \"%s\": languages is 0x%llx", compiler.target().target, wide(offered));
  const auto refused = [&](uint32_t language, int32_t status, const char* rule) {
    const std::string source = compiler.sample();
    bp_compile_request request = compiler.request(source.c_str());
    request.language = language;
    request.triton = "3.7.1";
    request.num_warps = 4;
    auto result = sized<bp_compile_result>();
    c.expect(CALL_GROUP(compiler.group(), compile, &request, &result), status, rule);
    c.require(!result.log && !result.code && !result.owner, rule, "compile refused language %u and yet set a result", language);
    c.require(!c.last_error().empty(), rules::errors, "compile refused language %u and last_error gives an empty text", language);
  };
  refused(77, BP_INVALID_ARGUMENT, unknown_rule);
  for (const uint32_t language : {BP_LANGUAGE_DIALECT, BP_LANGUAGE_TTIR}) {
    if (!driver::supports(compiler.target(), language)) {
      refused(language, BP_UNSUPPORTED, "UNSUPPORTED: the target does not support the language");
    }
  }
  const bp_ext* first = nullptr;
  c.expect(CALL(c, query_ext, BP_COMPILER_ID, 1, &first), BP_OK, "A driver that offers version 2 offers version 1 with the same entries");
}

void flags(Context& c) {
  const Compiler compiler(c, c.devices() ? 0 : -1, BP_LANGUAGE_TTIR);
  for (uint32_t flags : {0u, BP_COMPILE_DEBUG, BP_COMPILE_FAST_MATH, BP_COMPILE_LIGHT}) compile(c, compiler, flags);
}

void wrong_source(Context& c) {
  const Compiler compiler(c, c.devices() ? 0 : -1, BP_LANGUAGE_TTIR);
  constexpr int wrong = 7711;  // a number that nothing else is
  const auto before = std::count(ttir_head.begin(), ttir_head.end(), '\n') + 1;
  const std::string more = std::string(static_cast<size_t>(wrong - before), '\n') + "    %wrong = arith.addi %no_such_value, %x : i32\n";
  const Compiler::Compiled compiled = compiler.try_compile(compiler.sample(more));
  c.require(compiled.status == BP_INVALID_ARGUMENT, rules::compile, "a module with an unknown value gave %s, expected BP_INVALID_ARGUMENT",
            status_text(compiled.status).c_str());
  c.require(compiled.log.find(std::to_string(wrong)) != std::string::npos, "or why it failed, with line numbers of `source`",
            "the log of a module that is wrong in line %d does not name the line: \"%.600s\"", wrong, compiled.log.c_str());
}

void values(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const Compiler::Compiled compiled = compile(c, Compiler(c, d, BP_LANGUAGE_TTIR));
    const Module module(c, d, compiled.code);
    constexpr int32_t n = 185, room = 192;
    const DeviceArray<int32_t> in(c, d, module_impl::counted(room)), out(c, d, std::vector<int32_t>(room, -1));
    struct Numbers {
      int64_t n;
      float scale, rest;
      int64_t more, last;
    };
    const auto args = arguments({out.address(), in.address()}, Numbers{n, -3, 0, 5 * (int64_t{1} << 32) + 7, 0});
    bp_launch launch = module.prepare(module.function(compiled.kernel, 2, sizeof(Numbers), 3), {compiled.group_size, 1}, 3, args);
    launch.grid[1] = launch.grid[2] = 2;
    module.launch(nullptr, launch, "scale");
    std::vector<int32_t> want(room, -1);
    for (int32_t i = 0; i < n; ++i) want[static_cast<size_t>(i)] = module_impl::counted(room)[static_cast<size_t>(i)] * -3 + 5;
    module_impl::same(c, out.get(), want, value_rule, "-3 * x + 5");
  }
}

}  // namespace ttir_impl

Checks ttir_checks() {
  using namespace ttir_impl;
  constexpr uint64_t early = needs_compiler | needs_no_device | starts_closed;
  return {
      {"ttir.languages", "languages that a target does not support are refused", early, languages},
      {"ttir.compile", "a module gives code and what a launch needs, with every flag", early, flags},
      {"ttir.wrong_source", "the log of a wrong module names the line", early, wrong_source},
      {"ttir.values", "a module runs on a grid of three dimensions", needs_compiler | needs_module, values},
  };
}

}  // namespace backplane::check
