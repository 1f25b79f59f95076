// drivers/sim/compiler.cpp: finds the C compiler, puts its command together, and distinguishes a wrong source from a compiler that failed.
#include "compiler.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <backplane/driver/cxx/error.hpp>

#include "child.h"
#include "prelude.h"
#include "probe.h"

namespace backplane::driver::sim {
namespace {

// Results are the same in every loop, and on every level that has an fma: nothing is contracted to one that does not stand there, and sums
// are not reordered. No -w: what the compiler warns of by itself belongs into the log.
// A loop of a few instructions takes twice as long where it lies across two lines of the cache.
constexpr const char* kFlags =
    "-std=gnu11 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off -fwrapv -fno-strict-aliasing "
    "-falign-loops=32 -Werror=implicit-function-declaration -Wl,-z,defs";
// What docs/dialect.md allows. Not -ffast-math itself: it makes infinities wrong, which reductions start from, breaks the core's functions
// by another order of their sums, and links code that changes the process's arithmetic.
constexpr const char* kFastMath = "-freciprocal-math -fno-signed-zeros -ffp-contract=fast";

constexpr const char* kUndefined = "undefined reference to";  // what a linker says
constexpr const char* kInternal = "internal compiler error";

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// GCC reports at each call that a pass is left out (probe.cpp).
std::string without_note(std::string log) {
  const size_t at = log.find("note: disable pass ");
  if (at == std::string::npos) return log;
  const size_t begin = log.rfind('\n', at) + 1;  // npos + 1 is 0
  return log.erase(begin, log.find('\n', at) - begin + 1);
}

}  // namespace

Compiler::Compiler(const Host& host, const Settings& settings)
    : host_(host), settings_(settings), prelude_(make_prelude()), prelude_sum_(checksum(prelude_)) {}

Compiler::~Compiler() {
  delete found_.load();
  delete optimization_.load();
}

const Compiler::Found& Compiler::found() const {
  if (const Found* known = found_.load(std::memory_order_acquire)) return *known;
  std::unique_ptr<Found> mine = look();
  const Found* first = nullptr;
  if (found_.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel)) return *mine.release();
  return *first;  // another thread was faster
}

std::unique_ptr<Compiler::Found> Compiler::look() const {
  auto out = std::make_unique<Found>();
  const auto take = [&](const std::string& text, const std::string& note) {
    out->looked_for += (out->looked_for.empty() ? "" : ", ") + text + note;
    // A path with spaces, or a compiler with arguments such as "ccache gcc".
    std::vector<std::string> words = find_program(text).empty() ? words_of(text) : std::vector{text};
    if (words.empty()) return false;
    words[0] = find_program(words[0]);
    if (words[0].empty()) return false;
    out->words = std::move(words);
    return true;
  };
  if (settings_.compiler == "none") {
    out->looked_for = "nothing, since the option is compiler=none";
  } else if (!settings_.compiler.empty()) {
    take(settings_.compiler, " (the option compiler)");
  } else {
    const char* variable = std::getenv("CC");
    if (!(variable && *variable && take(variable, " ($CC)"))) {
      for (const char* name : {"cc", "gcc", "clang"}) {
        if (take(name, "")) break;
      }
    }
  }
  if (!out->words.empty()) {
    std::vector<std::string> command = out->words;
    command.push_back("--version");
    const PrivateFolder folder;
    const std::string said = run_child(command, "", folder.path()).output;
    out->version = said.substr(0, said.find('\n'));
  }
  return out;
}

const Optimization& Compiler::optimization() const {
  if (const Optimization* known = optimization_.load(std::memory_order_acquire)) return *known;
  auto mine = std::make_unique<const Optimization>(probe(command_for(own_target()), prelude_));
  const Optimization* first = nullptr;
  if (!optimization_.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel)) return *first;  // another thread was faster
  if (!mine->report.empty()) {
    const Found& compiler = found();
    host_.log(BP_LOG_WARNING, "compiler.compile: " + compiler.words[0] + " [" + compiler.version + "] " + mine->report +
                                  ": name another compiler by CC or the option compiler=");
  }
  return *mine.release();
}

std::vector<std::string> Compiler::command_for(const Target& target) const {
  std::vector<std::string> command = found().words;
  for (std::string& word : words_of(kFlags)) command.push_back(std::move(word));
  if (target.flags) {
    for (std::string& word : words_of(target.flags)) command.push_back(std::move(word));
  }
  return command;
}

std::string Compiler::id() const {
  const Found& compiler = found();
  std::string text = "sim items=" + std::to_string(settings_.items);
  const uint64_t rest = checksum(prelude_ + kFlags + kFastMath + probe_id());
  text += format(" %016llx ", wide(rest));
  if (compiler.words.empty()) return text + "without a compiler";
  for (const std::string& word : compiler.words) text += word + " ";
  text += "[" + compiler.version + "]";
  if (settings_.languages >> BP_LANGUAGE_TTIR & 1) text += " " + translator_.id();
  return text;
}

std::vector<bp_target_properties> Compiler::targets() const {
  std::vector<bp_target_properties> out;
  for (const Target& one : all_targets()) out.push_back(properties_of(one, settings_.items, settings_.float64, settings_.languages));
  return out;
}

bp_target_properties Compiler::target(int32_t device) const {
  if (device >= settings_.devices) throw Error(BP_INVALID_DEVICE, format("no device %d: there are %d", device, settings_.devices));
  return properties_of(*settings_.target, settings_.items, settings_.float64, settings_.languages);
}

Compiled Compiler::compile(const bp_compile_request& request) const {
  const PrivateFolder folder;
  return request.language == BP_LANGUAGE_TTIR ? compile_ttir(request, folder) : compile_unit(request, named_source(request), folder);
}

Compiled Compiler::compile_ttir(const bp_compile_request& request, const PrivateFolder& folder) const {
  const bp_target_properties target = properties_of(*find_target(request.target), settings_.items, settings_.float64, settings_.languages);
  const Translated translated = translator_.translate(request, target, folder.path());
  if (translated.unit.empty()) return {"", translated.log};
  const std::string definitions = format("#define BP_GROUP %u\n#define BP_PER_ITEM 1\n#define BP_HAS_F64 %d\n#define BP_VECTOR_BYTES %u\n",
                                         target.group_size, settings_.float64 ? 1 : 0, target.vector_bytes);
  const std::string unit = definitions + prelude_ + "\n" + translated.unit;
  bp_compile_request lowered = request;
  lowered.source = unit.c_str();
  Compiled out = compile_unit(request, named_source(lowered), folder);
  if (out.code.empty()) {
    throw Error(BP_INTERNAL, "compiler.compile: " + std::string(request.name) + ": TTIR became a wrong unit: " + first_error(out.log));
  }
  out.kernel = "generated", out.parameters = translated.parameters;
  out.group_size = target.group_size, out.local_bytes = translated.local_bytes;
  return out;
}

Compiled Compiler::compile_unit(const bp_compile_request& request, const std::string& source, const PrivateFolder& folder) const {
  const Target& target = *find_target(request.target);
  const Found& compiler = found();
  if (compiler.words.empty()) {
    throw Error(BP_UNSUPPORTED, "compiler.compile: no C compiler on this machine: looked for " + compiler.looked_for +
                                    "; install one, or name it by CC or the option compiler=");
  }
  const std::string object = folder.path() + "/kernels.so";
  std::vector<std::string> command = command_for(target);
  const auto add = [&](std::string_view text) {
    for (std::string& word : words_of(text)) command.push_back(std::move(word));
  };
  add("-shared");
  add(request.flags & BP_COMPILE_LIGHT ? "-O1" : optimization().flags);
  if (request.flags & BP_COMPILE_DEBUG) add("-g -DBP_DEBUG=1");
  if (request.flags & BP_COMPILE_FAST_MATH) add(kFastMath);
  add(request.options);
  for (const std::string& word : {std::string("-o"), object, std::string("-x"), std::string("c"), std::string("-"), std::string("-lm")}) {
    command.push_back(word);
  }
  Ended ended = run_child(command, source, folder.path());
  if (has(ended.output, kInternal)) {  // Seen with GCC 12.2, of its loop vectoriser.
    command.push_back("-fno-tree-vectorize");
    ended = run_child(command, source, folder.path());
  }
  const auto broke = [&](bp_status status, const std::string& why) {
    throw Error(status, "compiler.compile: " + std::string(request.name) + ": " + command[0] + " " + why);
  };
  if (ended.start_error == ENOMEM || ended.start_error == EAGAIN) {
    broke(BP_OUT_OF_MEMORY, std::string("cannot be started: ") + std::strerror(ended.start_error));
  }
  if (ended.start_error != 0) broke(BP_UNSUPPORTED, std::string("cannot be started: ") + std::strerror(ended.start_error));
  if (ended.signal != 0) broke(BP_INTERNAL, "was ended by signal " + std::to_string(ended.signal));

  Compiled out{"", without_note(ended.output)};
  const std::string bytes = ended.status <= 0 ? read_file(object) : "";
  if (!bytes.empty()) {
    out.code = pack_code("simk", target.name, prelude_sum_, bytes);
    return out;
  }
  // What a compiler says of the source names the unit, and a linker what is not there; all else is the compiler's own trouble.
  const bool about_source = has(out.log, named_unit(request)) || has(out.log, kUndefined);
  if (!about_source || has(out.log, kInternal) || has(out.log, "terminated program")) {
    broke(BP_INTERNAL, "failed with status " + std::to_string(ended.status) + ": " + first_error(out.log));
  }
  return out;
}

}  // namespace backplane::driver::sim
