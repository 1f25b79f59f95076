// tests/driver/fake_cuda/memory.cpp: allocations as shared pages of the host, and what is known of an address.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

std::map<uint64_t, Block>::iterator block_at(uint64_t address) {
  auto& blocks = state().blocks;
  const auto next = blocks.upper_bound(address);
  if (next == blocks.begin() || address - std::prev(next)->first >= std::prev(next)->second.bytes) return blocks.end();
  return std::prev(next);
}

bool is_device(Kind kind) { return kind != Kind::pinned && kind != Kind::registered; }

void drop(std::map<uint64_t, Block>::iterator block) {
  const auto& [base, what] = *block;
  if (what.kind != Kind::registered) munmap(reinterpret_cast<void*>(base), what.bytes);
  if (what.kind == Kind::device || what.kind == Kind::managed) state().used[static_cast<size_t>(what.ordinal)] -= what.bytes;
  if (what.file >= 0) close(what.file);
  state().blocks.erase(block);
}

CUresult allocate(CUdeviceptr* address, size_t bytes, Kind kind, ContextObject& context) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (!reserve_bytes(context.ordinal, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  int file = -1;
  void* at = map_file(&file, bytes);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  state().blocks.emplace(reinterpret_cast<uint64_t>(at), Block{bytes, context.ordinal, kind, file});
  *address = reinterpret_cast<uint64_t>(at);
  return CUDA_SUCCESS;
}

CUresult give_back(uint64_t address, std::initializer_list<Kind> kinds) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  drop(found);
  return CUDA_SUCCESS;
}

}  // namespace

bool reserve_bytes(int ordinal, uint64_t bytes) {
  uint64_t& used = state().used[static_cast<size_t>(ordinal)];
  if (bytes > device_bytes() - used) return false;
  used += bytes;
  return true;
}

bool on_device(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(state().mutex);
  auto block = block_at(address);
  for (uint64_t end = address + bytes; block != state().blocks.end() && is_device(block->second.kind); ++block) {
    const uint64_t block_end = block->first + block->second.bytes;
    if (end <= block_end) return true;
    const auto next = std::next(block);
    if (block->second.kind != Kind::mapped || next == state().blocks.end() || next->first != block_end) return false;
  }
  return false;
}

void release_context(ContextObject& context) {
  const std::lock_guard lock(state().mutex);
  for (auto block = state().blocks.begin(); block != state().blocks.end();) {
    const auto next = std::next(block);
    if (block->second.ordinal == context.ordinal && (block->second.kind == Kind::device || block->second.kind == Kind::managed))
      drop(block);
    block = next;
  }
}

FAKE(cuMemGetInfo_v2, size_t* free_bytes, size_t* total) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  *total = device_bytes();
  *free_bytes = device_bytes() - state().used[static_cast<size_t>(context->ordinal)];
  return CUDA_SUCCESS;
}

FAKE(cuMemAlloc_v2, CUdeviceptr* address, size_t bytes) {
  ENTER_CONTEXT();
  return allocate(address, bytes, Kind::device, *context);
}

FAKE(cuMemAllocManaged, CUdeviceptr* address, size_t bytes, unsigned flags) {
  ENTER_CONTEXT();
  return flags == CU_MEM_ATTACH_GLOBAL ? allocate(address, bytes, Kind::managed, *context) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemFree_v2, CUdeviceptr address) {
  ENTER_CONTEXT();
  return give_back(address, {Kind::device, Kind::managed});
}

FAKE(cuMemHostAlloc, void** memory, size_t bytes, unsigned) {
  ENTER_CONTEXT();
  void* at = bytes ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
  if (at == MAP_FAILED) return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  state().blocks.emplace(reinterpret_cast<uint64_t>(at), Block{bytes, context->ordinal, Kind::pinned, -1});
  *memory = at;
  return CUDA_SUCCESS;
}

FAKE(cuMemFreeHost, void* memory) {
  ENTER_CONTEXT();
  return give_back(reinterpret_cast<uint64_t>(memory), {Kind::pinned});
}

FAKE(cuMemHostRegister_v2, void* memory, size_t bytes, unsigned) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  const bool added =
      state().blocks.emplace(reinterpret_cast<uint64_t>(memory), Block{bytes, context->ordinal, Kind::registered, -1}).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

FAKE(cuMemHostUnregister, void* memory) {
  ENTER_CONTEXT();
  const CUresult result = give_back(reinterpret_cast<uint64_t>(memory), {Kind::registered});
  return result == CUDA_SUCCESS ? result : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

FAKE(cuPointerGetAttributes, unsigned count, int* attributes, void** data, CUdeviceptr address) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto block = block_at(address);
  const bool known = block != state().blocks.end();
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(data[i]) = !known ? 0u : is_device(block->second.kind) ? 2u : 1u;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data[i]) = known ? block->second.ordinal : -2;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<uint64_t*>(data[i]) = known ? block->first : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<uint64_t*>(data[i]) = known ? block->second.bytes : 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// ---- memory and events of other processes: a handle names the process and its file

namespace {

struct Name {
  pid_t process;
  int file;
  uint64_t bytes;
  int ordinal;
};

int open_name(const Name& name) { return open_file_of(name.process, name.file); }

}  // namespace

FAKE(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr address) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || found->second.kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
  const Name name = {getpid(), found->second.file, found->second.bytes, found->second.ordinal};
  std::memcpy(handle->reserved, &name, sizeof name);
  return CUDA_SUCCESS;
}

FAKE(cuIpcOpenMemHandle_v2, CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  ENTER_CONTEXT();
  Name name;
  std::memcpy(&name, handle.reserved, sizeof name);
  if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  int file = open_name(name);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  void* at = map_file(&file, name.bytes);
  const std::lock_guard lock(state().mutex);
  state().blocks.emplace(reinterpret_cast<uint64_t>(at), Block{name.bytes, context->ordinal, Kind::opened, file});
  *address = reinterpret_cast<uint64_t>(at);
  return CUDA_SUCCESS;
}

FAKE(cuIpcCloseMemHandle, CUdeviceptr address) {
  ENTER_CONTEXT();
  return give_back(address, {Kind::opened});
}

FAKE(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  if (!state().events.count(event) || !(event->flags & CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_HANDLE;
  const Name name = {getpid(), event->file, sizeof(Records), context->ordinal};
  std::memcpy(handle->reserved, &name, sizeof name);
  return CUDA_SUCCESS;
}

FAKE(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle) {
  ENTER_CONTEXT();
  Name name;
  std::memcpy(&name, handle.reserved, sizeof name);
  const int file = open_name(name);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  *event = make_event(*context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, file);
  return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace backplane::driver::cuda
