// drivers/sim/module.cpp: a file in memory for the system's loader, the checks of signatures and launches, and how kernels of one item run.
#include "module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <cstring>
#include <string>

#include <backplane/driver/cxx/error.hpp>

#include "fibers.h"
#include "targets.h"

namespace backplane::driver::sim {
namespace {

/// What the calling thread's kernel of one item has to say.
struct Running {
  std::jmp_buf* leave;  // NULL: no kernel of one item runs on this thread
  uint32_t line;
  const char* condition;
};
thread_local Running running = {};

void fail_kernel(uint32_t line, const char* condition) {
  fail_on_fiber(line, condition);
  running.line = line;
  running.condition = condition;
  std::longjmp(*running.leave, 1);
}

const DeviceCalls kDeviceCalls = {fail_kernel, wait_at_barrier, take_local};

/// A name for an open file, another one for each live `owner`: the loader takes a name that it knows for the library that it knows. The
/// digits of the owner's address are "/" and "/.", which mean nothing in a path.
std::string loader_name(int file, const void* owner) {
  std::string path = "/proc/self/fd";
  for (auto rest = reinterpret_cast<uint64_t>(owner); rest != 0; rest /= 2) path += rest % 2 ? "/." : "/";
  return path + "/" + std::to_string(file);
}

void* load_library(std::string_view object, const void* owner) {
  const int file = memfd_create("backplane-kernels", MFD_CLOEXEC);
  if (file < 0) throw Error(BP_OUT_OF_MEMORY, std::string("module.load: memfd_create: ") + std::strerror(errno));
  while (!object.empty()) {
    const ssize_t written = ::write(file, object.data(), object.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = errno;
      ::close(file);
      throw Error(BP_OUT_OF_MEMORY, std::string("module.load: no memory for the code: ") + std::strerror(reason));
    }
    object.remove_prefix(static_cast<size_t>(written));
  }
  void* library = ::dlopen(loader_name(file, owner).c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* why = library ? nullptr : ::dlerror();
  ::close(file);
  if (!library) throw Error(BP_INVALID_ARGUMENT, std::string("module.load: the system's loader refuses the code: ") + (why ? why : ""));
  return library;
}

}  // namespace

Kernel::Kernel(int32_t device, const char* name, const KernelEntry& entry, uint32_t items, Order order)
    : limits{device,
             uint64_t{8} * entry.pointers + entry.value_bytes,
             {kMaxGrid, kMaxGrid, kMaxGrid},
             entry.group,
             entry.group,
             local_bytes(items)},
      name_(name),
      entry_(entry),
      order_(order) {}

void Kernel::run(const uint64_t* args, const uint32_t* grid) const {
  if (entry_.group > 1) return run_on_fibers(entry_, args, grid, order_);
  std::jmp_buf here;
  running.leave = &here;
  if (setjmp(here) != 0) {
    throw Error(BP_FAULT, format("a kernel failed: BP_ASSERT(%s) in line %u does not hold", running.condition, running.line));
  }
  entry_.run(args, grid, nullptr);
}

Module::Module(int32_t device, std::string_view object, uint32_t items, Order order)
    : device(device), items_(items), order_(order), library_(load_library(object, this)) {
  auto* calls = static_cast<DeviceCalls*>(::dlsym(library_, "bp_device"));
  if (!calls) {
    ::dlclose(library_);
    throw Error(BP_INVALID_ARGUMENT, "module.load: the code was compiled without the prelude");
  }
  *calls = kDeviceCalls;
}

Module::~Module() { ::dlclose(library_); }

Kernel& Module::kernel(const char* name, const bp_signature& signature) {
  const auto need = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, std::string("module.function: ") + name + ": " + what);
  };
  const auto* entry = static_cast<const KernelEntry*>(::dlsym(library_, ("bp_kernel_" + std::string(name)).c_str()));
  need(entry != nullptr, "there is no kernel of that name");
  need(signature.pointers == entry->pointers, format("the signature has %u pointers, the kernel %u", signature.pointers, entry->pointers));
  need(signature.value_bytes == entry->value_bytes,
       format("the signature's value has %u bytes, the kernel's Params %u", signature.value_bytes, entry->value_bytes));
  need(entry->group <= items_, format("compiled for groups of %u items; a group has at most %u", entry->group, items_));
  std::lock_guard lock(mutex_);
  for (const auto& known : kernels_) {
    if (&known->entry() == entry) return *known;
  }
  kernels_.push_back(std::make_unique<Kernel>(device, name, *entry, items_, order_));
  return *kernels_.back();
}

}  // namespace backplane::driver::sim
