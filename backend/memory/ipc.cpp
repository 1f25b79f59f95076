// memory/ipc.cpp: which storages are sent, which are open, and when their memory is freed.
#include "memory/ipc.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/block_index.h"
#include "memory/caching_allocator.h"
#include "memory/reference_counter.h"
#include "memory/storage.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {
namespace ipc_impl {

void sent_deleter(void* context);

namespace {

const bp_ipc& group() {
  const bp_ipc* ipc = open_driver().ipc;
  TORCH_CHECK_NOT_IMPLEMENTED(
      ipc != nullptr, "tensors on ", device_name(),
      " cannot be shared between processes: the driver has no bp.ipc. Send tensor.cpu() and move it to the device in "
      "the other process.");
  return *ipc;
}

std::string bytes_of(const bp_ipc_handle& handle) { return {reinterpret_cast<const char*>(handle.bytes), sizeof handle.bytes}; }

bp_ipc_handle handle_of(const std::string& bytes) {
  bp_ipc_handle handle{};
  TORCH_CHECK_VALUE(bytes.size() == sizeof handle.bytes, "a handle of bp.ipc has ", sizeof handle.bytes, " bytes, not ", bytes.size());
  std::copy(bytes.begin(), bytes.end(), handle.bytes);
  return handle;
}

// ---- sender

// Around a sent storage's memory.
struct Sent {
  c10::DataPtr original;
  memory::ReferenceCounter counter;
  Event event{BP_EVENT_IPC};
  std::optional<c10::Stream> recorded_on;
  bp_ipc_handle handle{};
  uint64_t offset = 0;
};

struct Sender {
  std::mutex mutex;
  std::vector<std::unique_ptr<Sent>> waiting;  // released here, used elsewhere
};

Sender& sender() {
  static auto* instance = new Sender();
  return *instance;
}

// Memory that the driver allocates with BP_ALLOC_SHARED; no cache keeps it.
struct OwnMemory {
  c10::DeviceIndex device;
  uint64_t address;
};

void free_own_memory(void* context) {
  const std::unique_ptr<OwnMemory> memory(static_cast<OwnMemory*>(context));
  if (driver_if_open() == nullptr) return;
  call_noexcept<&bp_driver::synchronize>(memory->device, BP_NO_TIMEOUT);
  call_noexcept<&bp_driver::free>(memory->device, memory->address);
}

c10::DataPtr allocate_shared(c10::DeviceIndex device, size_t bytes) {
  uint64_t address = 0;
  int32_t status = driver_alloc(device, bytes, BP_ALLOC_SHARED, &address);
  if (status == BP_OUT_OF_MEMORY) {
    ipc_collect();
    c10::getDeviceAllocator(kDevice)->emptyCache();
    status = driver_alloc(device, bytes, BP_ALLOC_SHARED, &address);
  }
  if (status != BP_OK) throw_status(status, "alloc (of memory to share)", device, last_error_text());
  auto* pointer = reinterpret_cast<void*>(address);
  return {pointer, new OwnMemory{device, address}, &free_own_memory, c10::Device(kDevice, device)};
}

// Names the driver's allocation that holds the storage; false if it cannot be exported.
bool export_in_place(Sent& sent, c10::DeviceIndex device) {
  if ((group().head.flags & BP_IPC_ANY_MEMORY) == 0) return false;
  const memory::Block* block = memory::BlockIndex::instance().find(sent.original.get_context());
  if (block == nullptr) return false;
  const uint64_t base = block->segment->address;
  sent.offset = reinterpret_cast<uint64_t>(sent.original.get()) - base;
  return try_call<&bp_ipc::memory_export>(device, base, &sent.handle) == BP_OK;
}

// Moves the storage's bytes to memory that can be exported.
void move_to_shared_memory(Sent& sent, c10::DeviceIndex device, size_t bytes) {
  c10::DataPtr shared = allocate_shared(device, bytes);
  call<&bp_ipc::memory_export>(device, reinterpret_cast<uint64_t>(shared.get()), &sent.handle);
  sent.offset = 0;
  synchronize_device(device);  // queued work uses the old address
  c10::getDeviceAllocator(kDevice)->copy_data(shared.get(), sent.original.get(), bytes);
  synchronize_device(device);
  sent.original = std::move(shared);
}

Sent& sent_of(const c10::Storage& storage) {
  const c10::DataPtr& now = storage.data_ptr();
  if (now.get_deleter() == &sent_deleter) return *static_cast<Sent*>(now.get_context());
  const c10::DeviceIndex device = storage.device().index();
  const auto* block = memory::BlockIndex::instance().find(now.get());
  TORCH_CHECK(block != nullptr && now.get() == now.get_context(),
              "this tensor's memory does not belong to the device's allocator (it was received from another process, or wraps foreign "
              "memory), so it "
              "cannot be sent to a process: send tensor.clone()");
  auto sent = std::make_unique<Sent>();
  void* const before = now.get();
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  sent->original = impl->set_data_ptr(c10::DataPtr(before, c10::Device(kDevice, device)));
  try {
    if (!export_in_place(*sent, device)) move_to_shared_memory(*sent, device, impl->nbytes());
  } catch (...) {
    impl->set_data_ptr_noswap(std::move(sent->original));
    throw;
  }
  void* const memory = sent->original.get();
  Sent& made = *sent;
  impl->set_data_ptr_noswap(c10::DataPtr(memory, sent.release(), &sent_deleter, c10::Device(kDevice, device)));
  return made;
}

std::string record_event(Sent& sent, c10::DeviceIndex device) {
  const c10::Stream stream = current_stream(device);
  if ((group().head.flags & BP_IPC_EVENTS) == 0) {
    synchronize_stream(stream);
    return "";
  }
  // The event represents the latest record, which must come after the earlier ones.
  if (sent.recorded_on && *sent.recorded_on != stream) sent.event.block(stream);
  sent.event.record(stream);
  sent.recorded_on = stream;
  return export_event(sent.event, device);
}

// ---- receiver

// The driver's allocations of other processes that are open here: a handle is opened once. The lock is held during the driver's open and
// close, so that a handle is never open twice; these calls wait for nothing that requires the lock.
class Opened {
 public:
  struct Memory {
    uint64_t address;
    uint64_t bytes;  // from there on; UINT64_MAX if the driver does not report it
  };
  static Opened& instance() {
    static auto* opened = new Opened();
    return *opened;
  }
  Memory open(c10::DeviceIndex device, const std::string& handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = entries_[{device, handle}];
    if (entry.uses == 0) {
      const bp_ipc_handle bytes = handle_of(handle);
      const int32_t status = try_call<&bp_ipc::memory_open>(device, &bytes, &entry.memory.address);
      if (status != BP_OK) {
        const std::string text = last_error_text();
        entries_.erase({device, handle});
        throw_status(status, "bp.ipc.memory_open (the process that sends a tensor must live until it is received)", device, text);
      }
      entry.memory.bytes = bytes_from(entry.memory.address);
    }
    ++entry.uses;
    return entry.memory;
  }
  void close(c10::DeviceIndex device, const std::string& handle) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find({device, handle});
    if (found == entries_.end() || --found->second.uses != 0) return;
    call_noexcept<&bp_ipc::memory_close>(device, found->second.memory.address);
    entries_.erase(found);
  }

 private:
  struct Entry {
    Memory memory{};
    size_t uses = 0;
  };

  // The driver's information about the memory, against which the message's numbers are checked.
  static uint64_t bytes_from(uint64_t address) {
    const auto info = pointer_info(reinterpret_cast<const void*>(address));
    const bool is_known = info && info->bytes != 0 && info->base <= address && address - info->base <= info->bytes;
    return is_known ? info->bytes - (address - info->base) : UINT64_MAX;
  }

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, std::string>, Entry> entries_;
};

struct Received {
  c10::DeviceIndex device;
  std::string handle;
  memory::ReferenceCounter counter;
};

void received_deleter(void* context) {
  if (driver_if_open() == nullptr) return;  // in a forked child, the parent has the reference; or the driver was closed
  const std::unique_ptr<Received> received(static_cast<Received*>(context));
  call_noexcept<&bp_driver::synchronize>(received->device, BP_NO_TIMEOUT);
  Opened::instance().close(received->device, received->handle);
}

}  // namespace

void sent_deleter(void* context) {
  if (driver_if_open() == nullptr) return;  // as above
  std::unique_ptr<Sent> sent(static_cast<Sent*>(context));
  if (sent->counter.close()) return;
  const std::lock_guard<std::mutex> lock(sender().mutex);
  sender().waiting.push_back(std::move(sent));
}

}  // namespace ipc_impl

SharedStorage share_storage(const c10::Storage& storage) {
  ipc_collect();
  SharedStorage shared;
  shared.bytes = storage.nbytes();
  if (shared.bytes == 0) return shared;
  ipc_impl::group();
  static auto* one_at_a_time = new std::mutex();
  const std::lock_guard<std::mutex> lock(*one_at_a_time);
  ipc_impl::Sent& sent = ipc_impl::sent_of(storage);
  shared.memory = ipc_impl::bytes_of(sent.handle);
  shared.offset = sent.offset;
  shared.event = ipc_impl::record_event(sent, storage.device().index());
  shared.counter = sent.counter.name();
  sent.counter.send();
  return shared;
}

c10::Storage open_shared_storage(c10::DeviceIndex device, const SharedStorage& shared) {
  device = resolve_device(device);
  TORCH_CHECK_VALUE(shared.bytes <= static_cast<uint64_t>(INT64_MAX), "a message asks for ", shared.bytes,
                    " bytes: it was altered in transit");
  if (shared.bytes == 0) {
    c10::Allocator* allocator = c10::GetAllocator(kDevice);
    return c10::Storage(storage_factory().get()(c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(kDevice, device)),
                                                allocator, /*resizable=*/false));
  }
  auto received = std::make_unique<ipc_impl::Received>(ipc_impl::Received{device, shared.memory, memory::ReferenceCounter(shared.counter)});
  received->counter.accept();
  const auto memory = ipc_impl::Opened::instance().open(device, shared.memory);
  c10::DataPtr data(reinterpret_cast<void*>(memory.address + shared.offset), received.release(), &ipc_impl::received_deleter,
                    c10::Device(kDevice, device));
  const uint64_t end = std::min(memory.bytes, UINT64_MAX - memory.address);
  TORCH_CHECK_VALUE(shared.offset <= end && shared.bytes <= end - shared.offset, "a message asks for ", shared.bytes, " bytes at offset ",
                    shared.offset, " of memory of another process, but only ", end,
                    " bytes were opened: the message was altered in transit");
  if (!shared.event.empty()) open_shared_event(device, shared.event).block(current_stream(device));
  return c10::Storage(storage_factory().get()(c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(shared.bytes)),
                                              std::move(data), nullptr, /*resizable=*/false));
}

void release_shared_storage(const SharedStorage& shared) {
  if (!shared.counter.empty()) memory::ReferenceCounter(shared.counter).decline();
}

void ipc_collect() {
  std::vector<std::unique_ptr<ipc_impl::Sent>> free;  // destroyed after the lock is released
  auto& sender = ipc_impl::sender();
  const std::lock_guard<std::mutex> lock(sender.mutex);
  for (auto& sent : sender.waiting) {
    if (sent->counter.close()) free.push_back(std::move(sent));
  }
  std::erase(sender.waiting, nullptr);
}

const c10::DataPtr& unshared(const c10::DataPtr& pointer) {
  if (C10_LIKELY(pointer.get_deleter() != &ipc_impl::sent_deleter)) return pointer;
  return static_cast<ipc_impl::Sent*>(pointer.get_context())->original;
}

Event make_shared_event() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      (ipc_impl::group().head.flags & BP_IPC_EVENTS) != 0, "the driver of ", device_name(),
      " does not support events that are shared between processes; synchronize the stream before the message is sent");
  return Event(BP_EVENT_IPC);
}

std::string export_event(Event& event, c10::DeviceIndex device) {
  event.create(device);
  bp_ipc_handle handle{};
  call<&bp_ipc::event_export>(event.device(), event.handle(), &handle);
  return ipc_impl::bytes_of(handle);
}

Event open_shared_event(c10::DeviceIndex device, const std::string& handle) {
  device = resolve_device(device);
  const bp_ipc_handle bytes = ipc_impl::handle_of(handle);
  bp_event* event = nullptr;
  call<&bp_ipc::event_open>(device, &bytes, &event);
  return Event::adopt(event, device, BP_EVENT_IPC);
}

}  // namespace backplane
