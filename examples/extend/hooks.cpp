// extend/hooks.cpp: hooks of one's own: what torch asks of the device when no operator is involved.
//
// Derive from backplane::Hooks and override what differs; the base class answers the rest. Overrides may be called from any thread, with or
// without the GIL.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> pinned_asked{0};
std::atomic<int64_t> resized{0};

class CountingHooks : public backplane::Hooks {
 public:
  // tensor.is_pinned()
  bool isPinnedPtr(const void* data) const override {
    ++pinned_asked;
    return Hooks::isPinnedPtr(data);
  }

  // storage.resize_(bytes)
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    ++resized;
    Hooks::resizePrivateUse1Bytes(storage, bytes);
  }
};

const backplane::extend::Hooks<CountingHooks> hooks;

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("pinned_asked", [] { return pinned_asked.load(); });
  m.def("storages_resized", [] { return resized.load(); });
}
