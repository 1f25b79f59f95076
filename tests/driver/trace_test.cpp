// tests/driver/trace_test.cpp: what the shim trace writes, and that it changes nothing.
//
// The inner driver is the simulated device with another bp.module: a launch does nothing, or fails.
// The exit status is the number of failures.
#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance.h"
#include "report.h"

namespace {

// ---- the inner driver

bp_driver sim, table;

const bp_module module_group = {
    {sizeof(bp_module), BP_MODULE_ID, BP_MODULE_VERSION, 0, nullptr},
    [](void*, int32_t, const void*, uint64_t, bp_module_code** out) -> int32_t {
      *out = reinterpret_cast<bp_module_code*>(0x1000);
      return BP_OK;
    },
    [](void*, int32_t, bp_module_code*) -> int32_t { return BP_OK; },
    [](void*, int32_t, bp_module_code*, const char*, const bp_signature*, bp_function** out,
       bp_function_properties* properties) -> int32_t {
      *out = reinterpret_cast<bp_function*>(0x2000);
      if (properties) properties->registers = 32;
      return BP_OK;
    },
    [](void*, int32_t, bp_stream*, const bp_launch* launch) -> int32_t { return launch->local_bytes == 77 ? BP_FAULT : BP_OK; }};
const bp_ext own_group = {sizeof(bp_ext), "acme.own", 1, 0, nullptr};

const bp_driver* below(uint32_t flags = 0) {
  sim = normalised(*get(bp_sim_get, "memory=64MiB"));
  table = sim;
  table.flags = flags;
  table.set_current = nullptr;
  table.query_ext = [](void* self, const char* id, uint32_t version, const bp_ext** out) -> int32_t {
    if (id && std::strcmp(id, BP_MODULE_ID) == 0) return *out = &module_group.head, BP_OK;
    if (id && std::strcmp(id, own_group.id) == 0) return *out = &own_group, BP_OK;
    return sim.query_ext(self, id, version, out);
  };
  return &table;
}

// ---- the shim

/// A file that is not there yet.
struct File {
  const std::string path;

  explicit File(const char* name) : path("/tmp/backplane-trace-test-" + std::to_string(getpid()) + name) { unlink(path.c_str()); }
  ~File() { unlink(path.c_str()); }
  std::vector<std::string> lines() const {
    std::vector<std::string> found;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) found.push_back(line);
    return found;
  }
  size_t count(const std::string& words) const {
    size_t found = 0;
    for (const std::string& line : lines()) found += line.find(words) != std::string::npos;
    return found;
  }
};

const bp_driver* traced(const File& file, const std::string& options = "", uint32_t flags = 0) {
  return get(bp_trace_get, ("file=" + file.path + (options.empty() ? "" : ",") + options).c_str(), below(flags));
}

/// In patterns * is any text.
bool matches(const std::string& line, const std::string& call, const char* numbers = "+*.? *") {
  return fnmatch(("\\[trace\\] *.? " + std::string(numbers) + " " + call).c_str(), line.c_str(), 0) == 0;
}
void expect(const File& file, size_t number, const std::string& call) {
  const std::vector<std::string> lines = file.lines();
  const std::string said = number < lines.size() ? lines[number] : "(no line)";
  if (!matches(said, call)) throw std::runtime_error("line " + std::to_string(number) + " is: " + said);
}

/// A module of the driver above, and a launch of it.
struct Module {
  explicit Module(Instance& i) : group(*find_group<bp_module>(*i.d)) {
    OK(group.load(group.head.self, 0, "code", 4, &code));
    const bp_signature signature = {sizeof signature, 2, 8, 1};
    bp_function_properties properties{};
    properties.struct_size = sizeof properties;
    OK(group.function(group.head.self, 0, code, "exp", &signature, &function, &properties));
  }
  int32_t launch(uint32_t local_bytes = 0) {
    const uint64_t args[] = {0xabc000, 0xdef000, 5};
    const bp_launch one = {sizeof one, function, {4, 2, 1}, {256, 1, 1}, local_bytes, 0, args, sizeof args};
    return group.launch(group.head.self, 0, nullptr, &one);
  }

  bp_module group;
  bp_module_code* code = nullptr;
  bp_function* function = nullptr;
};

void each_call_has_a_line() {
  const File file("-calls");
  {
    Instance i(traced(file));
    const uint64_t a = i.alloc(4096);
    i.put(a, "abcd", 4);
    const uint32_t pattern = 0x3f800000;
    OK(i.d->fill(i.self, 0, nullptr, a, &pattern, 4, 16, 0u));
    bp_stream* stream = i.stream();
    OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
    bp_pointer_info info{};
    info.struct_size = sizeof info;
    OK(i.d->pointer_info(i.self, a, &info));
    CHECK(i.d->free(i.self, 0, 12) == BP_INVALID_ARGUMENT);
    CHECK(!i.error().empty());
    CHECK(file.lines().size() == 9);
  }
  expect(file, 0, "open -> OK");
  expect(file, 1, "alloc device=0 bytes=4096 flags=0 -> OK out=0x*");
  expect(file, 2, "copy device=0 stream=default dst=0x* dst_device=0 src=0x* src_device=host bytes=4 flags=0 -> OK");
  expect(file, 3, "fill device=0 stream=default dst=0x* pattern=0x3f800000 pattern_size=4 count=16 flags=0 -> OK");
  expect(file, 4, "stream_create device=0 priority=0 flags=0 -> OK out=0x*");
  expect(file, 5, "stream_synchronize device=0 stream=0x* timeout_ns=none -> OK");
  expect(file, 6, "pointer_info address=0x* -> OK out={kind=device device=0 base=0x* bytes=4096}");
  expect(file, 7, "free device=0 address=0xc -> INVALID_ARGUMENT \"?*\"");
  expect(file, 8, "last_error size=512 -> OK buf=\"?*\"");
  expect(file, 9, "close -> OK");
}

void groups_are_traced() {
  const File file("-groups");
  {
    Instance i(traced(file));
    Module m(i);
    OK(m.launch());
    OK(m.group.unload(m.group.head.self, 0, m.code));
    const bp_ext* own = nullptr;
    OK(i.d->query_ext(i.self, own_group.id, 1, &own));
    CHECK(own == &own_group);
    CHECK(i.d->query_ext(i.self, BP_MODULE_ID, 1, &own) == BP_OK && own->self != nullptr);
  }
  expect(file, 1, "query_ext id=\"bp.module\" version=1 -> OK out=0x*");
  expect(file, 2, "bp.module.load device=0 code=0x* bytes=4 -> OK out=0x1000");
  expect(file, 3,
         "bp.module.function device=0 module=0x1000 name=\"exp\" signature={pointers=2 value_bytes=8 written=0x1} -> OK "
         "out=0x2000 properties={max_group_size=0 local_bytes=0 registers=32 spill_bytes=0}");
  expect(file, 4,
         "bp.module.launch device=0 stream=default launch={function=0x2000 kernel=exp grid=4x2x1 group=256x1x1 args_bytes=24 "
         "pointers=0xabc000,0xdef000} -> OK");
  expect(file, 5, "bp.module.unload device=0 module=0x1000 -> OK");
}

/// Nothing below is called but through the shim, nothing is hidden, and nothing is added.
void all_of_the_driver_is_there() {
  for (const uint32_t flags : {0u, BP_DRIVER_SERIALIZE, BP_DRIVER_OWN_STREAMS, BP_DRIVER_COUNT_FORKS}) {
    const File file("-all");
    Instance i(traced(file, "", flags));
    CHECK(i.d->flags == flags);
    for (const Slot& slot : slots()) {
      CHECK(slot.present(*i.d) == slot.present(table));
      CHECK(!slot.present(table) || std::memcmp(reinterpret_cast<const char*>(i.d) + slot.offset,
                                                reinterpret_cast<const char*>(&table) + slot.offset, sizeof(void*)) != 0);
    }
    for_each_group([&](auto traits) {
      using Of = typename decltype(traits)::Group;
      const auto under = find_group<Of>(table), over = find_group<Of>(*i.d);
      CHECK(under && over && over->head.flags == under->head.flags && over->head.struct_size == sizeof(Of));
      GroupTraits<Of>::each_slot([&](auto slot) { CHECK((*over).*decltype(slot)::value != (*under).*decltype(slot)::value); });
    });
  }
}

void the_filter_takes_names() {
  const std::vector<std::pair<const char*, std::vector<const char*>>> cases = {{"alloc+free", {"alloc", "free"}},
                                                                               {"bp.module.*", {"bp.module.load", "bp.module.function"}},
                                                                               {"stream_*|*launch", {"stream_create", "bp.module.launch"}}};
  for (const auto& [filter, names] : cases) {
    const File file("-filter");
    {
      Instance i(traced(file, std::string("filter=") + filter));
      OK(i.d->free(i.self, 0, i.alloc(64)));
      i.stream();
      OK(Module(i).launch());
    }
    CHECK(!file.lines().empty());
    for (const char* name :
         {"open", "alloc", "free", "stream_create", "bp.module.load", "bp.module.function", "bp.module.launch", "close"}) {
      bool wanted = std::find_if(names.begin(), names.end(), [&](const char* one) { return std::strcmp(one, name) == 0; }) != names.end();
      wanted = wanted || (std::strcmp(filter, "bp.module.*") == 0 && std::strcmp(name, "bp.module.launch") == 0);
      CHECK(file.count(std::string(" ") + name + " ") == (wanted ? 1 : 0));
    }
  }
}

void only_failures_are_written() {
  const File file("-errors");
  {
    Instance i(traced(file, "errors=1"));
    OK(i.d->free(i.self, 0, i.alloc(64)));
    uint64_t out = 0;
    CHECK(i.d->alloc(i.self, 7, 64, 0, &out) == BP_INVALID_DEVICE);
    CHECK(i.error() == "no device 7: there are 2");
  }
  CHECK(file.lines().size() == 1);
  expect(file, 0, "alloc device=7 bytes=64 flags=0 -> INVALID_DEVICE \"no device 7: there are 2\"");
}

void a_ring_is_written_at_a_fault_and_at_close() {
  const File file("-ring");
  {
    Instance i(traced(file, "ring=4"));
    Module m(i);
    for (int n = 0; n < 20; ++n) OK(i.d->free(i.self, 0, i.alloc(64)));
    uint64_t out = 0;
    CHECK(i.d->alloc(i.self, 7, 64, 0, &out) == BP_INVALID_DEVICE);
    CHECK(file.lines().empty());
    CHECK(m.launch(77) == BP_FAULT);
    CHECK(file.lines().size() == 5);
    i.alloc(64);
    CHECK(file.lines().size() == 5);
  }
  CHECK(file.lines().size() == 7);
  CHECK(file.lines()[0] == "[trace] 42 earlier lines were not kept");
  CHECK(file.count(" alloc ") == 3 && file.count(" free ") == 1 && file.count("-> INVALID_DEVICE") == 1);
  expect(file, 4, "bp.module.launch * local_bytes=77 * -> FAULT \"*\"");
  expect(file, 5, "alloc *");
  expect(file, 6, "close -> OK");
}

void a_call_that_begins_has_a_line() {
  const File file("-begin");
  {
    Instance i(traced(file, "begin=1,filter=alloc"));
    i.alloc(64);
  }
  CHECK(file.lines().size() == 2);
  CHECK(matches(file.lines()[0], "alloc device=0 bytes=64 flags=0", "... *"));
  expect(file, 1, "alloc device=0 bytes=64 flags=0 -> OK out=0x*");
}

void lines_of_many_threads_are_whole() {
  const File file("-threads");
  {
    Instance i(traced(file, "filter=alloc+free"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int n = 0; n < 250; ++n) OK(i.d->free(i.self, 0, i.alloc(64)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(file.lines().size() == 2000);
  for (const std::string& line : file.lines()) {
    const bool alloc = matches(line, "alloc device=0 bytes=64 flags=0 -> OK out=0x*"),
               free = matches(line, "free device=0 address=0x* -> OK");
    CHECK((alloc || free) && line.find("[trace]", 1) == std::string::npos);
  }
}

void a_forked_child_writes_nothing() {
  for (const char* options : {"", "ring=10"}) {
    const File file("-fork");
    {
      Instance i(traced(file, options));
      const size_t before = file.lines().size();
      const pid_t child = fork();
      if (child == 0) {
        int32_t count = 0;
        const int32_t status = i.d->device_count(i.self, &count);
        _exit(status == BP_OK && count == 2 ? 0 : 1);
      }
      int status = -1;
      waitpid(child, &status, 0);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      CHECK(file.lines().size() == before);
    }
    CHECK(file.count("device_count") == 0 && file.count(" close ") == 1);
  }
}

void a_long_line_is_cut() {
  const File file("-long");
  {
    Instance i(traced(file));
    const bp_compiler compiler = *find_group<bp_compiler>(*i.d);
    const std::string text(400, 'x');
    const bp_compile_request request = {sizeof request, text.c_str(), text.c_str(), text.c_str(), "a\nb", 0, 0, nullptr, 0, 0};
    auto result = sized<bp_compile_result>();
    CHECK(compiler.compile(compiler.head.self, &request, &result) != BP_OK);
  }
  const std::string line = file.lines()[2];
  CHECK(line.size() > 450 && line.size() < 512 && line.substr(line.size() - 3) == "...");
  expect(file, 3, "close -> OK");
}

void wrong_options_are_named() {
  for (const auto& [options, words] : std::vector<std::pair<const char*, const char*>>{
           {"file=/nowhere/at/all", "trace.file=/nowhere/at/all cannot be opened: No such file"},
           {"filter=allok", "trace.filter=allok: no entry is called 'allok'"},
           {"filter=alloc+", "no entry is called ''"},
           {"ring=many", "ring=many"},
           {"errors=2", "errors=2"},
           {"colour=1", "unknown option 'colour'"}}) {
    const bp_driver* under = below();
    CHECK(!get(bp_trace_get, options, under));
    if (refusal.find(words) == std::string::npos) throw std::runtime_error(refusal);
    under->close(under->self);
  }
  CHECK(!get(bp_trace_get, ""));
  CHECK(refusal.find("needs an inner driver") != std::string::npos);
}

}  // namespace

int main() {
  report("each call has a line", each_call_has_a_line);
  report("groups are traced", groups_are_traced);
  report("all of the driver is there", all_of_the_driver_is_there);
  report("the filter takes names", the_filter_takes_names);
  report("only failures are written", only_failures_are_written);
  report("a ring is written at a fault and at close", a_ring_is_written_at_a_fault_and_at_close);
  report("a call that begins has a line", a_call_that_begins_has_a_line);
  report("lines of many threads are whole", lines_of_many_threads_are_whole);
  report("a forked child writes nothing", a_forked_child_writes_nothing);
  report("a long line is cut", a_long_line_is_cut);
  report("wrong options are named", wrong_options_are_named);
  return failures;
}
