// tests/driver/fake_cuda/modules.cpp: what kernels a cubin or a PTX text holds and which parameters they take; launches are recorded.
//
// No kernel is run. One whose name is "trap" fails when its stream comes to it, as an illegal instruction does.
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string_view>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

size_t aligned(size_t at, size_t to) { return (at + to - 1) / to * to; }

/// ".param .u64 name" and ".param .align 8 .b8 name[24]".
bool read_ptx(const std::string& text, ModuleObject& module) {
  if (text.find(".version") == std::string::npos) return false;
  for (size_t at = 0; (at = text.find(".entry ", at)) != std::string::npos;) {
    const size_t open = text.find('(', at), close = text.find(')', open);
    std::string name = text.substr(at + 7, open - at - 7);
    FunctionObject function{name, module.context, {}};
    std::istringstream list(text.substr(open + 1, close - open - 1));
    size_t offset = 0;
    for (std::string item; std::getline(list, item, ',');) {
      size_t align = 8, bytes = 8;
      if (const size_t place = item.find(".align "); place != std::string::npos) align = std::stoul(item.substr(place + 7));
      if (const size_t bracket = item.find('['); bracket != std::string::npos) bytes = std::stoul(item.substr(bracket + 1));
      offset = aligned(offset, align);
      function.parameters.push_back({offset, bytes});
      offset += bytes;
    }
    module.functions.emplace(name, std::move(function));
    at = close;
  }
  return !module.functions.empty();
}

/// Sections ".text.<kernel>", and in ".nv.info.<kernel>" a record for each parameter, the last one first.
bool read_cubin(const char* image, ModuleObject& module) {
  const auto word = [&](size_t at, auto value) {
    std::memcpy(&value, image + at, sizeof value);
    return value;
  };
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return false;
  const uint64_t sections = word(0x28, uint64_t{});
  const uint16_t size = word(0x3a, uint16_t{}), count = word(0x3c, uint16_t{}), names = word(0x3e, uint16_t{});
  const char* texts = image + word(sections + names * uint64_t{size} + 0x18, uint64_t{});
  for (uint16_t i = 0; i < count; ++i) {
    const std::string name = texts + word(sections + i * uint64_t{size}, uint32_t{});
    if (name.rfind(".text.", 0) == 0) module.functions.emplace(name.substr(6), FunctionObject{name.substr(6), module.context, {}});
  }
  for (uint16_t i = 0; i < count; ++i) {
    const uint64_t header = sections + i * uint64_t{size};
    const std::string name = texts + word(header, uint32_t{});
    const auto found = name.rfind(".nv.info.", 0) == 0 ? module.functions.find(name.substr(9)) : module.functions.end();
    if (found == module.functions.end()) continue;
    std::map<unsigned, Parameter> parameters;
    const uint64_t begin = word(header + 0x18, uint64_t{}), end = begin + word(header + 0x20, uint64_t{});
    for (uint64_t at = begin; at + 4 <= end;) {
      const uint8_t form = word(at, uint8_t{}), attribute = word(at + 1, uint8_t{});
      if (form == 4 && attribute == 0x17) {
        parameters[word(at + 8, uint16_t{})] = {word(at + 10, uint16_t{}), word(at + 12, uint32_t{}) >> 18};
      }
      at += form == 4 ? 4 + word(at + 2, uint16_t{}) : 4;
    }
    for (const auto& [ordinal, parameter] : parameters) found->second.parameters.push_back(parameter);
  }
  return !module.functions.empty();
}

}  // namespace

FAKE(cuModuleLoadData, CUmodule* module, const void* image) {
  ENTER_CONTEXT();
  auto made = std::make_unique<ModuleObject>(ModuleObject{context, {}});
  const auto* bytes = static_cast<const char*>(image);
  if (!read_cubin(bytes, *made) && !read_ptx(bytes, *made)) return CUDA_ERROR_INVALID_IMAGE;
  const std::lock_guard lock(state().mutex);
  *module = *state().modules.insert(made.release()).first;
  return CUDA_SUCCESS;
}

FAKE(cuModuleUnload, CUmodule module) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  if (state().modules.erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete module;
  return CUDA_SUCCESS;
}

FAKE(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name) {
  ENTER_CONTEXT();
  if (!*name) return CUDA_ERROR_INVALID_VALUE;
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

FAKE(cuFuncGetAttribute, int* value, int attribute, CUfunction) {
  ENTER_CONTEXT();
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 256 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}

FAKE(cuFuncSetAttribute, CUfunction function, int attribute, int value) {
  ENTER_CONTEXT();
  record("  " + function->name + " attribute " + std::to_string(attribute) + " = " + std::to_string(value));
  return CUDA_SUCCESS;
}

FAKE(cuFuncGetParamInfo, CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  ENTER_CONTEXT();
  if (index >= function->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->parameters[index].offset;
  *bytes = function->parameters[index].bytes;
  return CUDA_SUCCESS;
}

FAKE(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments, void** extra) {
  ENTER_STREAM(stream);
  if (function->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (arguments || !extra) return CUDA_ERROR_INVALID_VALUE;
  const void* block = nullptr;
  size_t bytes = 0;
  for (; *extra; extra += 2) {
    if (extra[0] == kLaunchBufferPointer) block = extra[1];
    if (extra[0] == kLaunchBufferSize) bytes = *static_cast<size_t*>(extra[1]);
  }
  if (!block || bytes != function->parameter_bytes()) return CUDA_ERROR_INVALID_VALUE;
  char text[256];
  std::snprintf(text, sizeof text, "  %s grid %u %u %u block %u %u %u shared %u stream %d args ", function->name.c_str(), grid_x, grid_y,
                grid_z, block_x, block_y, block_z, shared_bytes, stream != nullptr);
  std::string line = text;
  for (size_t i = 0; i < bytes; ++i) {
    std::snprintf(text, sizeof text, "%02x", static_cast<const unsigned char*>(block)[i]);
    line += text;
  }
  record(line);
  return submit(*on, [context, line, trap = function->name == "trap"](CUresult error) {
    if (running_graph) record("  ran" + line.substr(1));
    if (error == CUDA_SUCCESS && trap) context->error = CUDA_ERROR_ILLEGAL_INSTRUCTION;
  });
}

// The types are those that the driver calls.
#define SAME(name, ...)                  \
  extern "C" CUresult name(__VA_ARGS__); \
  static_assert(std::is_same_v<decltype(&name), CUresult (*)(__VA_ARGS__)>);
BP_CUDA_FUNCTIONS(SAME)
BP_CUDA_NEWER_FUNCTIONS(SAME)
#undef SAME

}  // namespace backplane::driver::cuda
