// memory/reference_counter.cpp: pages of counters, created by memfd_create and found by /proc/<pid>/fd; a lock covers the byte of one
// counter.
#include "memory/reference_counter.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace backplane::memory {
namespace counter_impl {

// What both processes map.
struct Counter {
  std::atomic<int64_t> messages;
  std::atomic<uint64_t> use;  // number of its uses; a name from an earlier use is invalid
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

constexpr size_t kBytes = 4096;
constexpr uint32_t kCounters = kBytes / sizeof(Counter);

// The bytes of a name.
struct Name {
  int32_t process;
  int32_t file;
  uint64_t device;
  uint64_t inode;
  uint64_t index;
  uint64_t use;
};

// Whatever sizes a message claims, no more than the available bytes are read.
void take_one(Counter& counter) {
  int64_t known = counter.messages.load();
  while (known > 0 && !counter.messages.compare_exchange_weak(known, known - 1)) {
  }
}

}  // namespace counter_impl

class CounterPage {
 public:
  // Takes ownership of the file.
  explicit CounterPage(int file) : file_(file) {
    void* at = mmap(nullptr, counter_impl::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const int reason = errno;
    if (at == MAP_FAILED) ::close(file);
    TORCH_CHECK(at != MAP_FAILED, "cannot map the counters of shared tensors: ", std::strerror(reason));
    counters_ = static_cast<counter_impl::Counter*>(at);
  }
  ~CounterPage() {
    munmap(counters_, counter_impl::kBytes);
    ::close(file_);
  }
  CounterPage(const CounterPage&) = delete;
  CounterPage& operator=(const CounterPage&) = delete;

  counter_impl::Counter& at(uint32_t index) { return counters_[index]; }

  // Locks of this process, one for all of its uses of a counter. Locks belong to the process, not to the descriptor: a forked child has
  // none, and closing any descriptor of the file releases them. The registry's mutex is held.
  bool lock(uint32_t index) {
    struct flock wanted = range(F_RDLCK, index);
    if (uses_[index] == 0 && fcntl(file_, F_SETLK, &wanted) != 0) return false;
    ++uses_[index];
    return true;
  }
  void unlock(uint32_t index) {
    struct flock none = range(F_UNLCK, index);
    if (--uses_[index] == 0) fcntl(file_, F_SETLK, &none);
  }
  // Whether any process, including this one, holds a lock: queried through the descriptor.
  bool is_locked(uint32_t index) const {
    struct flock asked = range(F_WRLCK, index);
    return fcntl(file_, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
  }

  counter_impl::Name name(uint32_t index) const {
    struct stat status{};
    TORCH_CHECK(fstat(file_, &status) == 0, "fstat of the counters of shared tensors failed: ", std::strerror(errno));
    return {getpid(), file_, status.st_dev, status.st_ino, index, counters_[index].use.load()};
  }

 private:
  static struct flock range(int type, uint32_t index) {
    struct flock bytes{};
    bytes.l_type = static_cast<short>(type);
    bytes.l_whence = SEEK_SET;
    bytes.l_start = index;
    bytes.l_len = 1;
    return bytes;
  }

  int file_;
  counter_impl::Counter* counters_;
  std::array<uint32_t, counter_impl::kCounters> uses_{};
};

namespace counter_impl {
namespace {

// This process's own counters, and the pages of others that are open here. A forked child creates its own.
struct Registry {
  std::mutex mutex;
  pid_t process = 0;
  std::vector<std::pair<std::shared_ptr<CounterPage>, uint32_t>> spare;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<CounterPage>> foreign;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

std::shared_ptr<CounterPage> make_page() {
  const int file = memfd_create("backplane-counters", MFD_CLOEXEC);
  const bool sized = file >= 0 && ftruncate(file, kBytes) == 0;
  const int reason = errno;
  if (!sized && file >= 0) ::close(file);
  TORCH_CHECK(sized, "no memory for the counters of shared tensors: ", std::strerror(reason));
  return std::make_shared<CounterPage>(file);
}

std::shared_ptr<CounterPage> open_page(const Name& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status{};
  const bool right = file >= 0 && fstat(file, &status) == 0 && status.st_dev == name.device && status.st_ino == name.inode &&
                     status.st_size == static_cast<off_t>(kBytes);
  if (!right && file >= 0) ::close(file);
  TORCH_CHECK(right, "the process ", name.process,
              " that sent a tensor has ended, or belongs to another user: a sender must live until its tensors are received");
  return std::make_shared<CounterPage>(file);
}

}  // namespace
}  // namespace counter_impl

ReferenceCounter::ReferenceCounter() : own_(true) {
  auto& registry = counter_impl::registry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  if (registry.process != getpid()) {
    registry.process = getpid();
    registry.spare.clear();
  }
  if (registry.spare.empty()) {
    const auto page = counter_impl::make_page();
    for (uint32_t index = 0; index < counter_impl::kCounters; ++index) registry.spare.emplace_back(page, index);
  }
  std::tie(page_, index_) = std::move(registry.spare.back());
  registry.spare.pop_back();
}

ReferenceCounter::ReferenceCounter(const std::string& name) {
  counter_impl::Name read{};
  TORCH_CHECK_VALUE(name.size() == sizeof read, "these bytes do not name a counter of a shared tensor");
  std::memcpy(&read, name.data(), sizeof read);
  TORCH_CHECK_VALUE(read.index < counter_impl::kCounters, "these bytes do not name a counter of a shared tensor");
  index_ = static_cast<uint32_t>(read.index);
  use_ = read.use;
  auto& registry = counter_impl::registry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  auto& known = registry.foreign[{read.device, read.inode}];
  page_ = known.lock();
  if (page_ == nullptr) {
    page_ = counter_impl::open_page(read);
    known = page_;
  }
}

ReferenceCounter::~ReferenceCounter() {
  if (page_ == nullptr) return;
  auto& registry = counter_impl::registry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  if (accepted_) page_->unlock(index_);
  // A counter that is still in use is not reused.
  if (own_ && registry.process == getpid() && close()) registry.spare.emplace_back(std::move(page_), index_);
  page_.reset();  // under the mutex: closing a page releases the process's locks on that file
}

std::string ReferenceCounter::name() const {
  const counter_impl::Name name = page_->name(index_);
  return {reinterpret_cast<const char*>(&name), sizeof name};
}

void ReferenceCounter::send() const { page_->at(index_).messages.fetch_add(1); }

void ReferenceCounter::decline() const {
  if (page_->at(index_).use.load() == use_) counter_impl::take_one(page_->at(index_));
}

// In this order, since a receiver locks first and then drops the message's reference.
bool ReferenceCounter::in_use() const { return page_->at(index_).messages.load() != 0 || page_->is_locked(index_); }

// A receiver that comes from now on is refused; one that came before (for a message that was received before) keeps it open.
bool ReferenceCounter::close() {
  if (closed_) return true;
  if (in_use()) return false;
  auto& use = page_->at(index_).use;
  use.fetch_add(1);
  closed_ = !in_use();
  if (!closed_) use.fetch_sub(1);
  return closed_;
}

void ReferenceCounter::accept() {
  {
    const std::lock_guard<std::mutex> lock(counter_impl::registry().mutex);
    accepted_ = page_->lock(index_);
  }
  TORCH_CHECK(accepted_, "cannot lock the counter of a shared tensor: ", std::strerror(errno));
  TORCH_CHECK(
      page_->at(index_).use.load() == use_,
      "this message's tensor no longer exists: the message was received before, and the sender has freed its memory since. Send it once "
      "for each time that it is received.");
  counter_impl::take_one(page_->at(index_));
}

}  // namespace backplane::memory
