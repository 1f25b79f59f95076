// check_driver/kernels.cpp: from a kernel's text to a launch.
#include "kernels.h"

namespace backplane::check {

Compiler::Compiler(Context& context, int32_t device, uint32_t language)
    : c_(context), group_(*context.group<bp_compiler>()), language_(language) {
  target_.struct_size = sizeof target_;
  c_.expect(CALL_GROUP(group_, target, device, &target_), BP_OK, "The target for a device's code");
  target_.target[sizeof target_.target - 1] = 0;
  if (language != any_language && !driver::supports(target_, language)) {
    throw NotOffered{std::string("the target does not support ") + (language == BP_LANGUAGE_TTIR ? "TTIR" : "the dialect")};
  }
  if (language == any_language) language_ = driver::supports(target_, BP_LANGUAGE_DIALECT) ? BP_LANGUAGE_DIALECT : BP_LANGUAGE_TTIR;
  if (is_ttir()) return;
  const char* text = nullptr;
  const char* rule = "The dialect's words in this compiler's language";
  c_.expect(CALL_GROUP(group_, prelude, target_.target, &text), BP_OK, rule);
  c_.require(text != nullptr, rule, "prelude(\"%s\") gave BP_OK and no text", target_.target);
  prelude_ = text;
}

std::vector<Tile> Compiler::tiles() const {
  std::vector<Tile> all = {tile()};
  for (const Tile& other : {Tile{1, 8}, Tile{3, 2}, Tile{target_.max_group_size, 2}}) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Tile& tile) { return tile.group == other.group; });
    if (!known && other.group <= target_.max_group_size) all.push_back(other);
  }
  return all;
}

std::string Compiler::unit(const Tile& tile, const std::string& kernels) const {
  return format("#define BP_GROUP %u\n#define BP_PER_ITEM %u\n#define BP_HAS_F64 %d\n#define BP_VECTOR_BYTES %u\n", tile.group,
                tile.per_item, has_f64() ? 1 : 0, target_.vector_bytes ? target_.vector_bytes : 16) +
         prelude_ +
         "\n#ifdef BP_ASSERT\n#define HAS_ASSERT 1\n#else\n#define HAS_ASSERT 0\n#define BP_ASSERT(condition) ((void)0)\n#endif\n"
         "#define EACH(i, n)                                                          \\\n"
         "  for (i64 i = (i64)BP_GROUP_ID(0) * BP_GROUP * BP_PER_ITEM + BP_ITEM,      \\\n"
         "           end_ = ((i64)BP_GROUP_ID(0) + 1) * BP_GROUP * BP_PER_ITEM;       \\\n"
         "       i < end_ && i < (n); i += BP_GROUP)\n" +
         kernels;
}

std::string Compiler::sample(const std::string& more) const {
  if (is_ttir()) return std::string(ttir_head) + more + std::string(ttir_tail);
  return unit(tile(),
              "typedef struct { i64 n; } Count;\n"
              "BP_KERNEL(fill, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {  /* comments are UTF-8: \xc3\xa9 */\n"
              "  if (BP_GROUP_ID(0) < bp_arg.n) out[BP_GROUP_ID(0) * BP_GROUP + BP_ITEM] = BP_ITEM;\n"
              "}\n" +
                  more);
}

bp_compile_request Compiler::request(const char* source, uint32_t flags) const {
  bp_compile_request asked = {sizeof asked, target_.target, source, "check-driver", "", flags, BP_LANGUAGE_DIALECT, nullptr, 0, 0};
  if (is_ttir()) asked.language = language_, asked.triton = "3.7.1", asked.num_warps = 4, asked.num_stages = 2;
  return asked;
}

Compiler::Compiled Compiler::try_compile(const std::string& source, uint32_t flags) const {
  const bp_compile_request asked = request(source.c_str(), flags);
  auto result = sized<bp_compile_result>();
  const int32_t status = CALL_GROUP(group_, compile, &asked, &result);
  if (status == BP_UNSUPPORTED) {
    const std::string why = c_.last_error();
    c_.require(!why.empty(), rules::no_compiler, "compile gave BP_UNSUPPORTED and last_error gives an empty text");
    throw NotRun{why};
  }
  c_.expect_one_of(status, {BP_OK, BP_INVALID_ARGUMENT}, rules::compile);
  c_.require(result.log != nullptr, rules::compile, "%s gave %s and no log", traced_call(), status_text(status).c_str());
  c_.require((result.code != nullptr && result.bytes > 0) == (status == BP_OK), rules::compile, "compile gave %s, code %p and %llu bytes",
             status_text(status).c_str(), result.code, wide(result.bytes));
  const auto* code = static_cast<const uint8_t*>(result.code);
  const auto text = [](const char* given) { return std::string(given ? given : ""); };
  Compiled compiled{status,
                    status == BP_OK ? Code(code, code + result.bytes) : Code(),
                    result.log,
                    text(result.kernel),
                    text(result.parameters),
                    result.group_size,
                    result.local_bytes};
  c_.expect(CALL_GROUP(group_, release, &result), BP_OK, "Releases a result of compile()");
  return compiled;
}

Code Compiler::compile(const std::string& source, uint32_t flags) const {
  Compiled compiled = try_compile(source, flags);
  c_.require(compiled.status == BP_OK, rules::compile, "a source that is right does not compile: %.600s", compiled.log.c_str());
  return std::move(compiled.code);
}

Module::Module(Context& context, int32_t device, const Code& code) : c_(context), group_(*context.group<bp_module>()), device_(device) {
  c_.expect(CALL_GROUP(group_, load, device_, code.data(), code.size(), &module_), BP_OK, rules::load);
  c_.require(module_ != nullptr, rules::load, "%s gave BP_OK and no module", traced_call());
}

bp_function* Module::function(const std::string& name, uint32_t pointers, uint32_t value_bytes, uint64_t written) const {
  const bp_signature signature = {sizeof signature, pointers, value_bytes, written};
  bp_function* out = nullptr;
  const int32_t status = traced(("bp.module.function of " + name).c_str(), group_.function, group_.head.self, device_, module_,
                                name.c_str(), &signature, &out, nullptr);
  c_.expect(status, BP_OK, rules::function);
  c_.require(out != nullptr, rules::function, "%s gave BP_OK and no function", traced_call());
  return out;
}

void Module::unload() const { c_.expect(CALL_GROUP(group_, unload, device_, module_), BP_OK, "Ends a module and its functions"); }

bp_launch Module::prepare(bp_function* function, const Tile& tile, uint32_t groups, const std::vector<uint8_t>& args) const {
  return {sizeof(bp_launch), function, {groups, 1, 1}, {tile.group, 1, 1}, 0, 0, args.data(), args.size()};
}

int32_t Module::try_launch(bp_stream* stream, const bp_launch& launch, const std::string& name) const {
  const std::string entry = "bp.module.launch" + (name.empty() ? "" : " of " + name);
  return traced(entry.c_str(), group_.launch, group_.head.self, device_, stream, &launch);
}

void Module::launch(bp_stream* stream, const bp_launch& launch, const std::string& name) const {
  c_.expect(try_launch(stream, launch, name), BP_OK, rules::launch);
}

}  // namespace backplane::check
