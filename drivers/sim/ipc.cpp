// drivers/sim/ipc.cpp: foreign pages in a device's window, and events in a page of shared memory.
#include "ipc.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "shared_file.h"

namespace backplane::driver::sim {
namespace {

constexpr uint64_t kPageBytes = SimMemory::kPage;

/// A record of a number stays known until kRecords later ones were made; then it counts as complete.
constexpr size_t kRecords = 64;

/// What all processes share.
struct Page {
  struct Record {
    std::atomic<uint64_t> complete;  // the highest number that is
    std::atomic<int32_t> process;    // whose stream reaches it
  };
  std::atomic<uint64_t> latest;
  std::atomic<uint32_t> changes;  // who waits sleeps on it
  std::array<Record, kRecords> records;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Page) <= kPageBytes);

class EventPage final : public SharedEvent {
 public:
  explicit EventPage(File&& file) : file_(std::move(file)) {
    void* at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
    if (at == MAP_FAILED) throw Error(BP_OUT_OF_MEMORY, std::string("ipc: cannot map an event: ") + std::strerror(errno));
    page_ = static_cast<Page*>(at);
  }
  ~EventPage() override { munmap(page_, kPageBytes); }

  int file() const { return file_.number(); }

  uint64_t begin() override {
    const uint64_t number = page_->latest.load() + 1;
    record(number).process.store(getpid());
    page_->latest.store(number);
    return number;
  }

  void complete(uint64_t number) override {
    auto& highest = record(number).complete;
    uint64_t known = highest.load();
    while (known < number && !highest.compare_exchange_weak(known, number)) {
    }
    page_->changes.fetch_add(1);
    wake_all(page_->changes);
  }

  uint64_t latest() const override { return page_->latest.load(); }

  bool wait(uint64_t number, const Deadline& deadline) override {
    while (true) {
      const uint32_t changes = page_->changes.load();
      if (number == 0 || record(number).complete.load() >= number) return true;
      if (has_ended(record(number).process.load())) complete(number);
      if (record(number).complete.load() >= number) return true;
      if (deadline.passed()) return false;
      // Not longer than it may take to notice that the other process has ended.
      sleep_on(page_->changes, changes, std::min<uint64_t>(deadline.left_ns(), 10'000'000));
    }
  }

 private:
  Page::Record& record(uint64_t number) const { return page_->records[number % kRecords]; }

  const File file_;
  Page* page_;
};

}  // namespace

bp_ipc_handle export_memory(const SimMemory& memory, uint64_t address) {
  const auto [file, offset, bytes] = memory.shared_range(address);
  return handle_of(What::memory, file, offset, bytes);
}

uint64_t open_memory(SimMemory& memory, const bp_ipc_handle& handle) {
  const Name name = name_of(handle, What::memory);
  const File file = open_file(name);
  const uint64_t inside = name.offset % kPageBytes;
  const uint64_t bytes = (inside + std::max<uint64_t>(name.bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  return memory.adopt({file.number(), name.offset - inside, bytes}) + inside;
}

std::shared_ptr<SharedEvent> make_shared_event() { return std::make_shared<EventPage>(make_file("backplane-sim-event", kPageBytes)); }

std::shared_ptr<SharedEvent> open_shared_event(const bp_ipc_handle& handle) {
  const Name name = name_of(handle, What::event);
  if (name.offset != 0 || name.bytes != kPageBytes) throw Error(BP_INVALID_ARGUMENT, "ipc: these bytes are no handle of an event");
  return std::make_shared<EventPage>(open_file(name));
}

bp_ipc_handle export_event(const SharedEvent& event) {
  return handle_of(What::event, static_cast<const EventPage&>(event).file(), 0, kPageBytes);
}

}  // namespace backplane::driver::sim
