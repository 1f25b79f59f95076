// drivers/sim/ipc.cpp: handles over /proc/<pid>/fd, foreign pages in a device's window, and events in a page of shared memory.
#include "ipc.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace backplane::driver::sim {
namespace {

constexpr uint64_t kPageBytes = SimMemory::kPage;

enum class What : uint32_t { memory = 1, event = 2 };

/// What the bytes of a handle are.
struct Name {
  char magic[8];
  What what;
  int32_t process;
  int32_t file;
  int32_t unused;
  uint64_t device;
  uint64_t inode;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Name) <= sizeof(bp_ipc_handle));
constexpr char kMagic[8] = "bp-sim1";

class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

bp_ipc_handle handle_of(What what, int file, uint64_t offset, uint64_t bytes) {
  struct stat status{};
  if (fstat(file, &status) != 0) throw Error(BP_INTERNAL, std::string("ipc: fstat: ") + std::strerror(errno));
  Name name{{}, what, getpid(), file, 0, status.st_dev, status.st_ino, offset, bytes};
  std::memcpy(name.magic, kMagic, sizeof kMagic);
  bp_ipc_handle handle{};
  std::memcpy(handle.bytes, &name, sizeof name);
  return handle;
}

Name name_of(const bp_ipc_handle& handle, What what) {
  Name name;
  std::memcpy(&name, handle.bytes, sizeof name);
  if (std::memcmp(name.magic, kMagic, sizeof kMagic) != 0 || name.what != what) {
    throw Error(BP_INVALID_ARGUMENT, std::string("ipc: these bytes are no handle of ") + (what == What::event ? "an event" : "memory"));
  }
  return name;
}

/// Opens the file that a name means, and no other. Throws.
int open_file(const Name& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const bool gone = errno == ENOENT || errno == ESRCH;
    throw Error(BP_INVALID_ARGUMENT, "ipc: cannot open " + path + ": " + (gone ? "the process has ended" : std::strerror(errno)));
  }
  struct stat status{};
  // The sums below, up to whole pages, cannot overflow then.
  const auto inside = [&](uint64_t size) { return name.offset <= size && name.bytes <= size - name.offset; };
  if (fstat(file, &status) == 0 && status.st_dev == name.device && status.st_ino == name.inode &&
      inside(static_cast<uint64_t>(status.st_size))) {
    return file;
  }
  ::close(file);
  throw Error(BP_INVALID_ARGUMENT, "ipc: " + path + " is not what the handle means: that process has closed it");
}

bool has_ended(int32_t process) {
  if (process == getpid()) return false;
  const File file(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (file.number() < 0) return errno == ESRCH;
  pollfd ended{file.number(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 1;
}

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
  /// Takes the file over.
  explicit EventPage(int file) : file_(file) {
    void* at = file < 0 ? MAP_FAILED : mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
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
    syscall(SYS_futex, &page_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
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
      const timespec nap{0, static_cast<long>(std::min<uint64_t>(deadline.left_ns(), 10'000'000))};
      syscall(SYS_futex, &page_->changes, FUTEX_WAIT, changes, &nap, nullptr, 0);
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
  const File file(open_file(name));
  const uint64_t inside = name.offset % kPageBytes;
  const uint64_t bytes = (inside + std::max<uint64_t>(name.bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
  return memory.adopt({file.number(), name.offset - inside, bytes}) + inside;
}

std::shared_ptr<SharedEvent> make_shared_event() {
  const int file = memfd_create("backplane-sim-event", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, kPageBytes) != 0) {
    ::close(file);
    throw Error(BP_OUT_OF_MEMORY, std::string("ipc: no memory for an event: ") + std::strerror(errno));
  }
  return std::make_shared<EventPage>(file);
}

std::shared_ptr<SharedEvent> open_shared_event(const bp_ipc_handle& handle) {
  const Name name = name_of(handle, What::event);
  if (name.offset != 0 || name.bytes != kPageBytes) throw Error(BP_INVALID_ARGUMENT, "ipc: these bytes are no handle of an event");
  return std::make_shared<EventPage>(open_file(name));
}

bp_ipc_handle export_event(const SharedEvent& event) {
  return handle_of(What::event, static_cast<const EventPage&>(event).file(), 0, kPageBytes);
}

}  // namespace backplane::driver::sim
