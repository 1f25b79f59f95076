// tests/host/spirv_tool.cpp: drivers/spirv on a command line, for tests.
//
//   spirv_tool words                      the prelude
//   spirv_tool print FILE                 the unit as print_c has it
//   spirv_tool compile DEVICE OUT FILES   SPIR-V of each file in the folder OUT, and a line for each: what became of it
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "../../drivers/spirv/print_c.h"

using namespace backplane::driver::spirv;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// vulkan: a device of 1.1 that has the types alone. vulkan-exact: one of 1.2 that rounds as the dialect does. vulkan-words: one that loads
/// and stores words. vulkan-least: of nothing.
Facts facts_of(const std::string& device) {
  Facts out;
  if (device == "vulkan-least") return out;
  out.memory_8 = out.memory_16 = out.float64 = out.atomic_i64 = true;
  out.local_bytes = 65536;
  if (device == "kernel") {
    out.flavour = Flavour::kernel;
    out.version = 0x00010200;
    out.exact_division = out.exact_sqrt = out.exact_fma = out.exact_fma64 = true;
  } else if (device == "vulkan-exact") {
    out.version = 0x00010500;
    out.int8 = out.int16 = out.float16 = true;
    out.subgroup_size = 32;
    out.exact_division = out.exact_sqrt = out.exact_fma = out.exact_fma64 = out.fast_fma = true;
    out.denorm_preserve = out.signed_zero_inf_nan = out.round_to_nearest = out.float64_controls = true;
  } else if (device == "vulkan-words") {
    out.memory_8 = out.memory_16 = false;
  } else if (device == "vulkan-zero") {
    out.hide_zero = out.hide_sign = true;
  } else if (device != "vulkan") {
    throw std::runtime_error("no device " + device);
  }
  return out;
}

void compile_file(const Facts& facts, const std::string& folder, const std::string& path) {
  Options options;
  options.name = std::filesystem::path(path).stem().string();
  const std::string source = read(path);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Module module = compile(source, facts, options);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    std::ofstream(folder + "/" + options.name + ".spv", std::ios::binary)
        .write(reinterpret_cast<const char*>(module.words.data()), static_cast<std::streamsize>(4 * module.words.size()));
    std::cout << "ok " << ms << " ms";
    for (const Entry& entry : module.entries) {
      std::cout << " | " << entry.name << " group=" << entry.group << " local=" << entry.local_bytes << " push=" << entry.push_bytes
                << " zero=" << entry.zero_offset << " placement=" << static_cast<int>(entry.placement);
      for (const Parameter& one : entry.parameters) {
        std::cout << " " << (one.kind == Parameter::Kind::pointer ? one.written ? "out:" : "in:" : "value:") << one.name << "@"
                  << one.offset << "+" << one.size;
      }
    }
  } catch (const Error& error) {
    std::cout << error.what();
  }
  std::cout << "\n";
}

}  // namespace

int main(int count, char** words) {
  const std::string command = count > 1 ? words[1] : "";
  try {
    if (command == "words") {
      std::cout << prelude();
    } else if (command == "print" && count == 3) {
      Options options;
      options.name = "printed";
      std::cout << print_c(parse(read(words[2]), facts_of_printed(), options));
    } else if (command == "compile" && count > 4) {
      const Facts facts = facts_of(words[2]);
      for (int i = 4; i < count; ++i) compile_file(facts, words[3], words[i]);
    } else {
      std::cerr << "usage: spirv_tool words | print FILE | compile DEVICE OUT FILES\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
