// extend/storage.cpp: a StorageImpl of one's own: for state that belongs to the memory rather than to a tensor, shared by all its views.
//
// Derive from c10::StorageImpl and keep its constructor's arguments. Every storage whose memory the device's allocator made is then of this
// class. Those that torch makes round memory from elsewhere (from_blob, DLPack) are plain StorageImpl: ask with dynamic_cast.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> alive{0};
std::atomic<int64_t> made{0};

class NumberedStorage : public c10::StorageImpl {
 public:
  NumberedStorage(use_byte_size_t use_bytes, c10::SymInt bytes, c10::DataPtr data, c10::Allocator* allocator, bool resizable)
      : StorageImpl(use_bytes, std::move(bytes), std::move(data), allocator, resizable), number(++made) {
    ++alive;
  }
  ~NumberedStorage() override { --alive; }

  const int64_t number;
};

const backplane::extend::Storage<NumberedStorage> storage;

int64_t storage_number(const at::Tensor& tensor) {
  const auto* const numbered = dynamic_cast<const NumberedStorage*>(tensor.storage().unsafeGetStorageImpl());
  return numbered == nullptr ? -1 : numbered->number;
}

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("storages_alive", [] { return alive.load(); });
  m.def("storage_number(Tensor tensor) -> int", storage_number);
}
