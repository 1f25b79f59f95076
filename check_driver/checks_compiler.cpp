// check_driver/checks_compiler.cpp: family "compiler": targets, the prelude, and source text that becomes code. All of it before open.
#include <future>
#include <set>

#include "kernels.h"
#include "process.h"

namespace backplane::check {
namespace compiler_impl {

constexpr char early[] =
    "every entry works before open, on a machine without the device, in a forked child and from any number of threads at once";
constexpr char id_rule[] = "Names compiler, version, flags and prelude, NUL-terminated and truncated to size";
constexpr char list_rule[] = "For a build machine, which has no device: device = -1 - n is the n-th target that this compiler supports";
constexpr char minimum_rule[] = "What the kernels of a target may rely on";
constexpr char invalid_rule[] = "INVALID_ARGUMENT without a result (log NULL): an unknown target, language or flag";

std::string id_of(Context& c, const bp_compiler& compiler) {
  char text[4096];
  memset(text, 'x', sizeof text);
  c.expect(CALL_GROUP(compiler, id, text, sizeof text), BP_OK, id_rule);
  c.require(memchr(text, 0, sizeof text) != nullptr, id_rule, "id wrote no NUL into %zu bytes", sizeof text);
  return text;
}

// The target of a device, or of the list; nothing where there is none. The target's name is a text.
std::optional<bp_target_properties> target_of(Context& c, const bp_compiler& compiler, int32_t device) {
  auto target = sized<bp_target_properties>();
  const int32_t status = CALL_GROUP(compiler, target, device, &target);
  if (status == BP_INVALID_DEVICE) return std::nullopt;
  c.expect(status, BP_OK, "The target for a device's code (struct_size set by the caller)");
  c.require(target.target[0] && memchr(target.target, 0, sizeof target.target), minimum_rule, "%s gave a target without a name",
            traced_call());
  return target;
}

// A device, or the first of the list where there is no device.
int32_t some_target(Context& c) { return c.devices() ? 0 : -1; }

void id(Context& c) {
  const bp_compiler compiler = *c.group<bp_compiler>();
  const std::string whole = id_of(c, compiler);
  c.require(!whole.empty(), id_rule, "the id is an empty text");
  for (uint64_t size : {1, 2, 7}) {
    char small[16];
    memset(small, 0x7e, sizeof small);
    c.expect(CALL_GROUP(compiler, id, small, size), BP_OK, id_rule);
    for (uint64_t i = size; i < sizeof small; ++i) {
      c.require(small[i] == 0x7e, id_rule, "id with size %llu wrote byte %llu", wide(size), wide(i));
    }
    c.require(memchr(small, 0, size) && !strncmp(small, whole.c_str(), strlen(small)) &&
                  strlen(small) == std::min<size_t>(size - 1, whole.size()),
              id_rule, "id with size %llu wrote \"%.15s\", expected the start of \"%.200s\"", wide(size), small, whole.c_str());
  }
  const auto same = [&](const std::string& other, const char* when) {
    c.require(other == whole, id_rule, "the id is \"%.200s\", and %s \"%.200s\"", whole.c_str(), when, other.c_str());
  };
  std::future<std::string> first = std::async(std::launch::async, [&] { return id_of(c, compiler); });
  std::future<std::string> second = std::async(std::launch::async, [&] { return id_of(c, compiler); });
  same(first.get(), "on another thread");
  same(second.get(), "on another thread");
  c.open();
  same(id_of(c, compiler), "after open");
  c.close();
  c.load();
  same(id_of(c, *c.group<bp_compiler>()), "of another instance");
}

void hold_to_minimum(Context& c, const bp_target_properties& t) {
  const auto power = [](uint64_t n) { return n && (n & (n - 1)) == 0; };
  const auto hold = [&](bool held, const char* field, uint64_t value, const char* rule) {
    c.require(held, rule, "target \"%s\": %s is %llu", t.target, field, wide(value));
  };
  constexpr uint64_t required = BP_DTYPE_FLOAT32 | BP_DTYPE_INT32 | BP_DTYPE_INT64;
  constexpr uint32_t known_atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32 | BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  hold((t.dtypes & required) == required, "dtypes", t.dtypes, "FLOAT32, INT32 and INT64 are required");
  hold((t.fast_dtypes & ~t.dtypes) == 0, "fast_dtypes", t.fast_dtypes, "fast_dtypes: of these, the ones that are not emulated");
  hold(t.max_group_size >= 1, "max_group_size", t.max_group_size, "1: no kernel with a larger BP_GROUP can run");
  hold(power(t.group_size) && t.group_size <= t.max_group_size, "group_size", t.group_size,
       "preferred items of a group, a power of two; 1: an item is a core");
  hold(t.subgroup_size <= t.max_group_size && (!t.subgroup_size || power(t.subgroup_size)), "subgroup_size", t.subgroup_size,
       "items that shuffle; 0: the prelude has no BP_SHUFFLE_XOR");
  hold(!t.vector_bytes || power(t.vector_bytes), "vector_bytes", t.vector_bytes, "preferred width of an item's loads");
  hold(t.local_bytes >= 16384, "local_bytes", t.local_bytes, "work-group memory of a group; at least 16384");
  hold(t.parameter_bytes >= 1024, "parameter_bytes", t.parameter_bytes, "maximum bytes of a launch's arguments; at least 1024");
  for (uint64_t groups : t.max_grid) hold(groups >= 65535, "max_grid", groups, "groups; at least 65535 each");
  hold((t.atomics & ~known_atomics) == 0, "atomics", t.atomics, "BP_ATOMIC_* that the prelude defines");
  for (uint64_t reserved : t.reserved) hold(reserved == 0, "reserved", reserved, "reserved fields are 0");
}

void target(Context& c) {
  const bp_compiler compiler = *c.group<bp_compiler>();
  for (int32_t d = c.devices() ? 0 : -1; d < c.devices(); ++d) {
    const auto first = target_of(c, compiler, d), again = target_of(c, compiler, d);
    if (!first && d < 0) throw NotOffered{"no device, and no target for a build machine"};
    c.require(first && again, rules::no_such_device, "target of device %d gave BP_INVALID_DEVICE", d);
    hold_to_minimum(c, *first);
    c.require(!memcmp(&*first, &*again, sizeof *first), minimum_rule, "device %d: two calls of target answered differently", d);
    // A caller that was built with a shorter struct.
    const char* rule = "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it";
    constexpr uint64_t known = offsetof(bp_target_properties, group_size);
    bp_target_properties shorter;
    memset(&shorter, 0xaa, sizeof shorter);
    shorter.struct_size = known;
    c.expect(CALL_GROUP(compiler, target, d, &shorter), BP_OK, rule);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&shorter);
    const bool kept = std::all_of(bytes + known, bytes + sizeof shorter, [](uint8_t byte) { return byte == 0xaa; });
    c.require(kept && shorter.struct_size == known, rule, "target with struct_size %llu wrote beyond it", wide(known));
    c.require(!strcmp(shorter.target, first->target) && shorter.dtypes == first->dtypes, rule,
              "target with struct_size %llu did not fill what lies within", wide(known));
  }
  for (int32_t bad : {c.devices(), c.devices() + 1000}) {
    c.require(!target_of(c, compiler, bad), rules::no_such_device, "%s gave BP_OK", traced_call());
  }
}

void list(Context& c) {
  const bp_compiler compiler = *c.group<bp_compiler>();
  constexpr int32_t too_many = 1000;
  std::set<std::string> names;
  for (int32_t n = 0;; ++n) {
    const auto target = target_of(c, compiler, -1 - n);
    if (!target) break;
    c.require(n < too_many, list_rule, "the list has more than %d targets", too_many);
    hold_to_minimum(c, *target);
    c.require(names.insert(target->target).second, list_rule, "target \"%s\" is in the list twice", target->target);
    const char* prelude = nullptr;
    const bool dialect = driver::supports(*target, BP_LANGUAGE_DIALECT);
    c.expect(CALL_GROUP(compiler, prelude, target->target, &prelude), dialect ? BP_OK : BP_UNSUPPORTED,
             dialect ? "The dialect's words in this compiler's language" : "UNSUPPORTED: it does not support the dialect");
  }
  if (names.empty()) throw NotOffered{"no targets for a build machine"};
  c.require(!target_of(c, compiler, INT32_MIN), list_rule, "%s gave BP_OK", traced_call());
  for (int32_t d = 0; d < c.devices(); ++d) {
    const auto target = target_of(c, compiler, d);
    c.require(target && names.count(target->target), list_rule, "the target of device %d, \"%s\", is not in the list", d,
              target ? target->target : "");
  }
}

void prelude(Context& c) {
  const char* rule = "The dialect's words in this compiler's language. owner: the driver, until close. The same text each time";
  const Compiler compiler(c, some_target(c));
  for (const char* word : {"BP_KERNEL", "BP_GROUP_ID", "bp_sqrt"}) {
    c.require(compiler.prelude().find(word) != std::string::npos, rule, "the prelude does not define %s", word);
  }
  for (int again = 0; again < 2; ++again) {
    const char* text = nullptr;
    c.expect(CALL_GROUP(compiler.group(), prelude, compiler.target().target, &text), BP_OK, rule);
    c.require(text && compiler.prelude() == text, rule, "two calls of prelude(\"%s\") gave different texts", compiler.target().target);
  }
  for (const char* unknown : {"no-such-target", ""}) {
    const char* const before = "";
    const char* text = before;
    c.expect(CALL_GROUP(compiler.group(), prelude, unknown, &text), BP_INVALID_ARGUMENT, "INVALID_ARGUMENT: an unknown target");
    c.require(text == before, rules::errors, "prelude(\"%s\") failed and yet set *out", unknown);
  }
}

void compile(Context& c) {
  const Compiler compiler(c, some_target(c), any_language);
  const std::string source = compiler.sample();
  compiler.compile(source);
  const int files = count_proc("fd"), threads = count_proc("task");
  for (uint32_t flags : {0u, BP_COMPILE_DEBUG, BP_COMPILE_FAST_MATH, BP_COMPILE_LIGHT, BP_COMPILE_DEBUG | BP_COMPILE_LIGHT}) {
    compiler.compile(source, flags);
  }
  const char* rule = "owner: what an entry creates is the caller's until the matching free/destroy";
  c.require(count_proc("fd") <= files, rule, "5 compilations left %d open files behind", count_proc("fd") - files);
  c.require(count_proc("task") <= threads, rule, "5 compilations left %d threads behind", count_proc("task") - threads);
}

void wrong_source(Context& c) {
  const Compiler compiler(c, some_target(c));
  std::string source = compiler.unit(compiler.tile(), "");
  const auto lines = static_cast<int>(std::count(source.begin(), source.end(), '\n'));
  const int wrong = (lines / 1000 + 4) * 1000 + 711;  // a number that nothing else is
  source += std::string(static_cast<size_t>(wrong - lines - 3), '\n') +
            "typedef struct { i64 n; } Count;\n"
            "BP_KERNEL(broken, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {\n"
            "  out[0] = no_such_name;\n"  // this line
            "}\n";
  const Compiler::Compiled compiled = compiler.try_compile(source);
  c.require(compiled.status == BP_INVALID_ARGUMENT, rules::compile, "a source with an unknown name gave %s, expected BP_INVALID_ARGUMENT",
            status_text(compiled.status).c_str());
  c.require(compiled.log.find(std::to_string(wrong)) != std::string::npos, "or why it failed, with line numbers of `source`",
            "the log of a source that is wrong in line %d does not name the line: \"%.600s\"", wrong, compiled.log.c_str());
  compiler.compile(compiler.sample());  // nothing of it stays
}

// What cannot be asked is refused before anything is compiled, so also where there is no compiler.
void invalid(Context& c) {
  const Compiler compiler(c, some_target(c), any_language);
  const std::string source = compiler.sample();
  const auto refused = [&](const bp_compile_request& request, const char* what) {
    auto result = sized<bp_compile_result>();
    c.expect(CALL_GROUP(compiler.group(), compile, &request, &result), BP_INVALID_ARGUMENT, invalid_rule);
    c.require(!result.log && !result.code && !result.bytes && !result.owner, invalid_rule, "compile refused %s and yet set a result", what);
    c.require(!c.last_error().empty(), rules::errors, "compile refused %s and last_error gives an empty text", what);
  };
  refused(compiler.request(source.c_str(), 1u << 31), "an unknown flag");
  refused(compiler.request(source.c_str(), BP_COMPILE_LIGHT << 1 | BP_COMPILE_DEBUG), "an unknown flag beside a known one");
  bp_compile_request request = compiler.request(source.c_str());
  request.target = "no-such-target";
  refused(request, "an unknown target");
}

void threads(Context& c) {
  const Compiler compiler(c, some_target(c), any_language);
  std::vector<std::future<void>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(std::async(std::launch::async, [&, i] {
      const bool wrong = i == 3;
      const std::string name = "no_such_name_" + std::to_string(i);
      const std::string more = compiler.is_ttir() ? "    %wrong = arith.addi %" + name + ", %x : i32\n"
                                                  : "BP_FN i32 wrong(i32 x) { return x + " + name + "; }\n";
      const Compiler::Compiled compiled = compiler.try_compile(compiler.sample(wrong ? more : ""), BP_COMPILE_LIGHT);
      const int32_t expected = wrong ? BP_INVALID_ARGUMENT : BP_OK;
      c.require(compiled.status == expected, early, "4 threads compile at once: a %s source gave %s, expected %s; its log: \"%.600s\"",
                wrong ? "wrong" : "right", status_text(compiled.status).c_str(), status_text(expected).c_str(), compiled.log.c_str());
      c.require((compiled.log.find(name) != std::string::npos) == wrong, early,
                "4 threads compile at once: the log of a %s source is \"%.600s\", expected one %s %s, a name in the wrong source",
                wrong ? "wrong" : "right", compiled.log.c_str(), wrong ? "with" : "without", name.c_str());
    }));
  }
  for (std::future<void>& one : all) one.get();
}

// The instance is closed here and in the child; a compilation in the parent first, so that the child inherits what it leaves.
void forked(Context& c) {
  const Compiler compiler(c, some_target(c), any_language);
  const std::string source = compiler.sample(), id = id_of(c, compiler.group());
  compiler.compile(source, BP_COMPILE_LIGHT);
  c.in_child(early, "a child that compiled", [&] {
    if (id_of(c, compiler.group()) != id) throw Failure{"the id changed", early};
    compiler.compile(source, BP_COMPILE_LIGHT);
  });
  compiler.compile(source, BP_COMPILE_LIGHT);
}

}  // namespace compiler_impl

Checks compiler_checks() {
  using namespace compiler_impl;
  constexpr uint64_t needs = needs_compiler | needs_no_device | starts_closed;
  return {
      {"compiler.id", "the id is the same on every thread, and cut to size", needs, id},
      {"compiler.target", "a device's target has what kernels rely on", needs, target},
      {"compiler.list", "targets without a device, each once", needs, list},
      {"compiler.prelude", "the same text each time, of known targets", needs, prelude},
      {"compiler.compile", "a source gives code, with every flag", needs, compile},
      {"compiler.wrong_source", "the log of a wrong source names the line", needs, wrong_source},
      {"compiler.invalid", "unknown targets and flags are refused", needs, invalid},
      {"compiler.threads", "several threads compile at once", needs, threads},
      {"compiler.forked", "a forked child compiles", needs, forked},
  };
}

}  // namespace backplane::check
