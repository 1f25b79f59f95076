// tests/driver/module_test/code.h: cases of module_test.cpp about what compile() makes of a source, and what load() and function() take of
// code.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/peer.h>

#include "support.h"

namespace {

void code_that_is_not_whole_is_refused(Kernels& k) {
  const auto code = k.code_of(k.unit(kStore));
  const auto refused = [&](const std::vector<char>& bytes) {
    bp_module_code* out = nullptr;
    return k.load_status(bytes, &out) == BP_INVALID_ARGUMENT && !out;
  };
  for (size_t length : {size_t{0}, size_t{1}, size_t{50}, size_t{104}, code.size() / 2, code.size() - 1}) {
    CHECK(refused({code.begin(), code.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  for (size_t at = 0; at < code.size(); at += at < 120 ? 1 : 997) {
    auto changed = code;
    changed[at] ^= 4;
    CHECK(refused(changed));
  }
  auto longer = code;
  longer.push_back(0);
  CHECK(refused(longer) && refused(std::vector<char>(5000, 'x')));
  // Of the next target, which is another one on every machine that has two.
  bp_target_properties other{};
  other.struct_size = sizeof other;
  int32_t targets = 0;
  for (; k.compiler.target(k.compiler.head.self, -1 - targets, &other) == BP_OK; ++targets) {
    if (std::string(other.target) == k.target.target) continue;
    const std::string own = std::exchange(k.target, other).target;
    const auto foreign = k.code_of(k.unit(kStore));
    OK(k.compiler.target(k.compiler.head.self, 0, &k.target));
    CHECK(refused(foreign) && k.says(other.target) && k.says(own.c_str()));
  }
  CHECK(targets > 0 && k.compiler.target(k.compiler.head.self, -1 - targets, &other) == BP_INVALID_DEVICE);
  CHECK(k.compiler.target(k.compiler.head.self, 9, &other) == BP_INVALID_DEVICE);
  k.unload(k.load(code));
}

void kernels_are_found_by_name_and_signature(Kernels& k) {
  const auto code = k.load(kStore);
  bp_function *one = nullptr, *two = nullptr;
  OK(k.function_status(code, "store", 1, 8, &one));
  OK(k.function_status(code, "store", 1, 8, &two));
  bp_function* none = nullptr;
  for (const char* name : {"stor", "stores", "", "printf", "bp_device"}) {
    CHECK(k.function_status(code, name, 1, 8, &none) == BP_INVALID_ARGUMENT && k.says("no kernel of that name"));
  }
  CHECK(k.function_status(code, "store", 2, 8, &none) == BP_INVALID_ARGUMENT && k.says("2 pointers, the kernel 1"));
  CHECK(k.function_status(code, "store", 1, 16, &none) == BP_INVALID_ARGUMENT && k.says("16 bytes"));
  CHECK(!none);
  bp_function_properties properties{};
  properties.struct_size = sizeof properties;
  bp_signature signature{sizeof signature, 1, 8, 2};
  CHECK(k.module.function(k.module.head.self, 0, code, "store", &signature, &none, nullptr) == BP_INVALID_ARGUMENT && k.says("written"));
  signature.written = 1;
  OK(k.module.function(k.module.head.self, 0, code, "store", &signature, &none, &properties));
  CHECK(properties.struct_size == sizeof properties && properties.max_group_size == 1);
  k.unload(code);
  CHECK(k.module.unload(k.module.head.self, 0, code) == BP_INVALID_ARGUMENT);
  // A group of more items than this device's have.
  const auto large = k.load(k.code_of(k.unit(kStore, 2)));
  CHECK(k.function_status(large, "store", 1, 8, &none) == BP_INVALID_ARGUMENT && k.says("groups of 2 items"));
  k.unload(large);
}

// The system's loader knows a library by its name, and what is loaded here has the same few names of open files.
void modules_are_not_confused(Kernels& k) {
  std::vector<std::vector<char>> codes;
  for (const char* value : {"1", "2", "3"}) {
    codes.push_back(k.code_of(k.unit(replaced(replaced(kStore, "&& bp_arg.n", ""), "= bp_arg.n", std::string("= ") + value))));
  }
  std::vector<std::pair<bp_module_code*, int64_t>> loaded;
  const One args{k.alloc(8), 1};
  for (int round = 0; round < 60; ++round) {
    const size_t which = static_cast<size_t>(round * 7 % 3);
    loaded.emplace_back(k.load(codes[which]), static_cast<int64_t>(which + 1));
    for (const auto& [module, value] : loaded) {
      if (round % 10 != 0 && module != loaded.back().first) continue;
      k.run(module, "store", 1, args, 1);
      CHECK(k.values<int64_t>(args.out, 1)[0] == value);
    }
    if (round % 4 == 3) {
      k.unload(loaded[static_cast<size_t>(round) / 8].first);
      loaded.erase(loaded.begin() + round / 8);
    }
  }
  for (const auto& one : loaded) k.unload(one.first);
}

void wrong_sources_have_a_log(Kernels& k) {
  const std::vector<std::pair<const char*, const char*>> sources = {
      {"int f( { return 1; }", "test/unit:3:"},
      {"int f(void) { return not_declared; }", "test/unit:3:"},
      {"int f(void) { return not_there(1); }", "test/unit:3:"},
      {"extern int elsewhere(int); BP_FN int g(void); int h(void) { return elsewhere(2); }", "elsewhere"},
      {"typedef struct { i64 n; } Params; BP_KERNEL(none, 1, Params, BP_GLOBAL i32* a, BP_GLOBAL i32* b) { *a = *b; }", "test/unit:"},
  };
  for (const auto& [text, expected] : sources) {
    bp_compile_result result;
    // The prelude behind the text would count into the lines.
    const std::string source = std::string(k.prelude) + "#line 3\n" + text + "\n";
    CHECK(k.compile(source, result) == BP_INVALID_ARGUMENT);
    CHECK(!result.code && result.bytes == 0 && result.log && std::string(result.log).find(expected) != std::string::npos);
    CHECK(k.says("test/unit") || k.says("elsewhere"));
    OK(k.compiler.release(k.compiler.head.self, &result));
    CHECK(k.compiler.release(k.compiler.head.self, &result) == BP_INVALID_ARGUMENT);
  }
  // Lines are those of the source.
  bp_compile_result result;
  CHECK(k.compile("int a;\nint b;\nint c = d;\n", result) == BP_INVALID_ARGUMENT);
  CHECK(std::string(result.log).find("test/unit:3:9: error") != std::string::npos);
  OK(k.compiler.release(k.compiler.head.self, &result));
  // A warning is no error; options are the compiler's.
  const std::string warned = k.unit(kStore) + "\n#ifndef GIVEN\n#warning look here\n#endif\n";
  OK(k.compile(warned, result));
  CHECK(result.code && std::string(result.log).find("look here") != std::string::npos);
  OK(k.compiler.release(k.compiler.head.self, &result));
  OK(k.compile(warned, result, 0, " -DOTHER  -DGIVEN=1 "));
  CHECK(result.code && std::string(result.log).empty());
  OK(k.compiler.release(k.compiler.head.self, &result));
  const auto refused = [&](auto&& change) {
    bp_compile_request bad{sizeof bad, k.target.target, warned.c_str(), "test", "", 0, 0, nullptr, 0, 0};
    change(bad);
    bp_compile_result untouched{};
    untouched.struct_size = sizeof untouched;
    return k.compiler.compile(k.compiler.head.self, &bad, &untouched) == BP_INVALID_ARGUMENT && !untouched.log;
  };
  CHECK(refused([](auto& r) { r.flags = 8; }) && refused([](auto& r) { r.target = "pdp-11"; }) &&
        refused([](auto& r) { r.name = nullptr; }));
  CHECK(refused([](auto& r) { r.struct_size = 8; }) && refused([](auto& r) { r.language = 9; }));
  const char* none = nullptr;
  CHECK(k.compiler.prelude(k.compiler.head.self, "pdp-11", &none) == BP_INVALID_ARGUMENT && !none && k.says("known: "));
}

// The structs of version 1 end earlier: nothing beyond is read or written.
void a_caller_of_version_1_is_served(Kernels& k) {
  const bp_ext* head = nullptr;
  OK(k.d->query_ext(k.self, BP_COMPILER_ID, 1, &head));
  CHECK(head->version == 1 && head->struct_size == sizeof(bp_compiler) && !wrong_head(*head, BP_COMPILER_ID, 1));
  const bp_compiler first = normalised_group<bp_compiler>(*head);
  const std::string source = k.unit(kStore);
  bp_compile_request request{offsetof(bp_compile_request, triton), k.target.target, source.c_str(), "test", "", 0, 0, nullptr, 9, 9};
  bp_compile_result result;
  std::memset(&result, 0x55, sizeof result);
  const bp_compile_result before = result;
  result.struct_size = offsetof(bp_compile_result, kernel);
  const auto beyond = [&] { return std::memcmp(&result.kernel, &before.kernel, sizeof result - offsetof(bp_compile_result, kernel)) == 0; };
  OK(first.compile(first.head.self, &request, &result));
  CHECK(result.code && result.bytes && beyond());
  OK(first.release(first.head.self, &result));
  CHECK(!result.code && beyond());
}

void a_language_is_refused_that_the_target_does_not_support(Kernels& k) {
  auto result = sized<bp_compile_result>();
  bp_compile_request request{sizeof request, k.target.target, "module {\n}\n", "test", "", 0, BP_LANGUAGE_TTIR, "3.7.1", 4, 2};
  CHECK(k.target.languages == 1u << BP_LANGUAGE_DIALECT);
  CHECK(k.compiler.compile(k.compiler.head.self, &request, &result) == BP_UNSUPPORTED && !result.log && k.says("does not support TTIR"));
  request.language = 2;
  CHECK(k.compiler.compile(k.compiler.head.self, &request, &result) == BP_INVALID_ARGUMENT && !result.log && k.says("unknown language"));
  Kernels both("languages=dialect+ttir");
  CHECK(both.target.languages == 3);
  request.language = BP_LANGUAGE_TTIR;
  request.triton = nullptr;
  CHECK(both.compiler.compile(both.compiler.head.self, &request, &result) == BP_INVALID_ARGUMENT && both.says("TTIR needs triton"));
  request.triton = "3.7.1";
  Kernels without("languages=dialect+ttir,python=/no/such/python");
  CHECK(without.compiler.compile(without.compiler.head.self, &request, &result) == BP_UNSUPPORTED && !result.log &&
        without.says("/no/such/python"));
}

void every_flag_gives_code_that_runs(Kernels& k) {
  for (uint32_t flags = 0; flags < 8; ++flags) {
    const auto code = k.load(kStore, flags);
    const One args{k.alloc(8), 5 + flags};
    k.run(code, "store", 1, args, 1);
    CHECK(k.values<int64_t>(args.out, 1)[0] == 5 + flags);
    k.unload(code);
  }
}

void pointers_are_the_devices(Kernels& k) {
  const auto code = k.load(
      "typedef struct { i64 n; } Params;\n"
      "BP_KERNEL(copy, 2, Params, BP_GLOBAL i64* BP_RESTRICT out, BP_GLOBAL const i64* BP_RESTRICT in) {\n"
      "  for (i64 i = 0; i < bp_arg.n; ++i) out[i] = in[i];\n}");
  struct {
    uint64_t out, in;
    int64_t n;
  } args{k.alloc(32), k.on_device(std::vector<int64_t>{1, 2, 3, 4}), 4};
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{1, 2, 3, 4}));
  args.in += 16;  // in the midst of an allocation
  args.n = 2;
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{3, 4, 3, 4}));
  args.in += 16;  // an empty part at the end of it
  args.n = 0;
  k.run(code, "copy", 2, args, 1);
  // A peer's memory, once there is access to it.
  const uint64_t there = k.on_device(std::vector<int64_t>{7, 8}, 1);
  const bp_peer peer = *find_group<bp_peer>(*k.d);
  OK(peer.enable(peer.head.self, 0, 1));
  args.in = there;
  args.n = 2;
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{7, 8, 3, 4}));
  args.in = 4096;  // nobody's
  bp_function* function = nullptr;
  OK(k.function_status(code, "copy", 2, 8, &function));
  OK(k.launch(k.launch_of(function, args, 1)));
  CHECK(k.synchronize() == BP_FAULT && k.says("pointer 1 of a kernel, 0x") && k.says("not in an allocation of device 0"));
  k.unload(code);
}

void ids_are_cut_and_stable(Kernels& k) {
  char whole[512], cut[20], again[512];
  OK(k.compiler.id(k.compiler.head.self, whole, sizeof whole));
  OK(k.compiler.id(k.compiler.head.self, again, sizeof again));
  std::memset(cut, 'x', sizeof cut);
  OK(k.compiler.id(k.compiler.head.self, cut, 10));
  CHECK(std::strlen(whole) > 30 && std::strcmp(whole, again) == 0);
  CHECK(std::strlen(cut) == 9 && std::strncmp(cut, whole, 9) == 0 && cut[10] == 'x');
  Kernels same("devices=1"), more("items=4"), none("compiler=none");
  OK(same.compiler.id(same.compiler.head.self, again, sizeof again));
  CHECK(std::strcmp(whole, again) == 0);
  OK(more.compiler.id(more.compiler.head.self, again, sizeof again));
  CHECK(std::strcmp(whole, again) != 0);
  OK(none.compiler.id(none.compiler.head.self, again, sizeof again));
  CHECK(std::strstr(again, "without a compiler"));
  bp_compile_result result;
  CHECK(none.compile(none.unit(kStore), result) == BP_UNSUPPORTED && !result.log && none.says("compiler=none"));
}

void a_device_is_an_older_level_of_the_machine(Kernels& k) {
  bp_target_properties last{};
  for (int32_t device = -1;; --device) {
    bp_target_properties next{};
    next.struct_size = sizeof next;
    if (k.compiler.target(k.compiler.head.self, device, &next) != BP_OK) break;
    last = next;
  }
  Kernels oldest((std::string("target=") + last.target).c_str());
  CHECK(std::strcmp(oldest.target.target, last.target) == 0);
  const auto code = oldest.load(kStore);
  const One args{oldest.alloc(8), 3};
  oldest.run(code, "store", 1, args, 1);
  CHECK(oldest.values<int64_t>(args.out, 1)[0] == 3);
  bp_module_code* none = nullptr;
  const bool differ = std::strcmp(k.target.target, last.target) != 0;
  CHECK(!differ || (oldest.load_status(k.code_of(k.unit(kStore)), &none) != BP_OK && oldest.says(k.target.target)));
  oldest.unload(code);
}

void options_of_kernels_are_checked(Kernels&) {
  for (const char* wrong : {"items=0", "items=3", "items=512", "order=sideways", "target=pdp-11"}) CHECK(!get(bp_sim_get, wrong));
}

}  // namespace
