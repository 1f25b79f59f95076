// drivers/sim/fibers.cpp: the fibers of a thread, and which of them runs next.
#include "fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "sanitized_switch.h"
#include "targets.h"

namespace backplane::driver::sim {
namespace {

constexpr uint64_t kStackBytes = 256 << 10;
constexpr uint64_t kLocalBytes = local_bytes(2);

/// A stack with a page below it that nobody may touch.
class FiberStack {
 public:
  FiberStack() : guard_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) {
    void* at = mmap(nullptr, guard_ + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw Error(BP_FAULT, std::string("a kernel's items have no stacks: ") + std::strerror(errno));
    base_ = static_cast<char*>(at);
    mprotect(base_, guard_, PROT_NONE);
  }
  ~FiberStack() { munmap(base_, guard_ + kStackBytes); }
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;
  char* bottom() const { return base_ + guard_; }

 private:
  const uint64_t guard_;
  char* base_;
};

/// Where a suspended stack continues.
#if defined(__x86_64__)
class Place {
 public:
  /// Goes on there, and comes back when somebody switches here.
  void switch_to(Place& there) { change(&top_, there.top_); }
  /// The same to a stack that is new, for `body`, which does not return.
  void begin(const FiberStack& stack, void (*body)()) {
    auto** top = reinterpret_cast<void**>(stack.bottom() + kStackBytes);
    std::memset(top - 8, 0, 64);
    top[-2] = reinterpret_cast<void*>(body);  // what change() returns to
    change(&top_, top - 8);
  }

 private:
  // Keeps what a call must keep on the one stack, and takes it from the other.
  [[gnu::naked, gnu::noinline]] static void change([[maybe_unused]] void** from, [[maybe_unused]] void* to) {
    asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
  }

  void* top_ = nullptr;
};
#else  // a call of the system for each switch
class Place {
 public:
  void switch_to(Place& there) { swapcontext(&context_, &there.context_); }
  void begin(const FiberStack& stack, void (*body)()) {
    ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = stack.bottom();
    fresh.uc_stack.ss_size = kStackBytes;
    fresh.uc_link = nullptr;
    makecontext(&fresh, body, 0);
    swapcontext(&context_, &fresh);
  }

 private:
  ucontext_t context_;
};
#endif

struct Fiber {
  FiberStack stack;
  Place place;
  SanitizedSwitch switched;
  bool started = false;
  uint32_t at[4];       // group and item, as a kernel takes them
  uint32_t line;        // of the barrier where it waits
  uint64_t local_used;  // by its item
};

/// Work-group memory.
struct alignas(64) Local {
  char bytes[kLocalBytes];
};

/// The fibers of one thread.
class FiberPool {
 public:
  void run(const KernelEntry& kernel, const uint64_t* args, const uint32_t* grid, Order order) {
    kernel_ = &kernel;
    args_ = args;
    grid_ = grid;
    down_ = order == Order::down;
    groups_ = uint64_t{grid[0]} * grid[1] * grid[2];
    next_group_ = 0;
    next_item_ = kernel.group;  // the first to ask begins the first group
    blocked_ = 0;
    failure_[0] = '\0';
    waiting_.clear();
    do {
      // A fiber comes back when it waits, or finds nothing to do: then those that wait go on.
      if (has_more()) {
        resume(idle());
        continue;
      }
      check_barrier();
      turn_.swap(waiting_);
      waiting_.clear();
      for (Fiber* fiber : turn_) {
        --blocked_;
        resume(*fiber);
      }
    } while (has_more() || !waiting_.empty());
  }

  /// Whether the caller is one of the fibers.
  bool runs() const { return current_ != nullptr; }

  void wait(uint32_t line) {
    current_->line = line;
    waiting_.push_back(current_);
    ++blocked_;
    leave();
  }

  void* local(uint64_t bytes, uint32_t line) {
    uint64_t& used = current_->local_used;
    const uint64_t begin = (used + 63) & ~uint64_t{63};
    if (bytes > kLocalBytes || begin > kLocalBytes - bytes) {
      fail("local arrays of more than %llu bytes, in line %u", wide(kLocalBytes), line);
    }
    used = begin + bytes;
    local_touched_ = std::max(local_touched_, used);
    return local_->bytes + begin;
  }

  /// Nothing on the fiber's stack is destroyed: the text is the pool's.
  template <class... Values>
  [[noreturn]] void fail(const char* pattern, Values... values) {
    const uint32_t* at = current_->at;
    const int length =
        std::snprintf(failure_, sizeof failure_, "a kernel failed in item %u of group %u, %u, %u: ", at[3], at[0], at[1], at[2]);
    std::snprintf(failure_ + length, sizeof failure_ - static_cast<size_t>(length), pattern, values...);
    leave();
    __builtin_unreachable();
  }

 private:
  // Whether an item can be begun now: of the current group, or of the next one if all of this have ended.
  bool has_more() const { return next_item_ < kernel_->group || (blocked_ == 0 && next_group_ < groups_); }

  void begin_item(Fiber& fiber) {
    if (next_item_ == kernel_->group) {
      uint64_t group = next_group_++;
      if (down_) group = groups_ - 1 - group;
      group_[0] = static_cast<uint32_t>(group % grid_[0]);
      group_[1] = static_cast<uint32_t>(group / grid_[0] % grid_[1]);
      group_[2] = static_cast<uint32_t>(group / grid_[0] / grid_[1]);
      next_item_ = 0;
      std::memset(local_->bytes, 0xff, local_touched_);
      local_touched_ = 0;
    }
    const uint32_t item = next_item_++;
    std::copy_n(group_, 3, fiber.at);
    fiber.at[3] = down_ ? kernel_->group - 1 - item : item;
    fiber.local_used = 0;
  }

  // All items have begun. Those that wait must be all of the group, at one barrier.
  void check_barrier() {
    const Fiber& first = *waiting_.front();
    const auto where = format("group %u, %u, %u", first.at[0], first.at[1], first.at[2]);
    if (waiting_.size() != kernel_->group) {
      abandon(format("a kernel's barrier in line %u was reached by %zu of the %u items of %s", first.line, waiting_.size(), kernel_->group,
                     where.c_str()));
    }
    for (const Fiber* other : waiting_) {
      if (other->line == first.line) continue;
      abandon(format("items %u and %u of %s wait at different barriers, in lines %u and %u", first.at[3], other->at[3], where.c_str(),
                     first.line, other->line));
    }
  }

  // Fibers in the midst of a kernel begin anew the next time; what they had on their stacks was the kernel's alone.
  [[noreturn]] void abandon(const std::string& why) {
    for (const auto& fiber : fibers_) fiber->started = false;
    idle_.clear();
    for (const auto& fiber : fibers_) idle_.push_back(fiber.get());
    throw Error(BP_FAULT, why);
  }

  Fiber& idle() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      idle_.push_back(fibers_.back().get());
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return *fiber;
  }

  void resume(Fiber& fiber) {
    current_ = &fiber;
    const bool fresh = !std::exchange(fiber.started, true);
    if (fresh) fiber.switched.renew(fiber.stack.bottom(), kStackBytes);
    switched_.leave_for(fiber.switched);
    if (fresh) {
      place_.begin(fiber.stack, &FiberPool::work);
    } else {
      place_.switch_to(fiber.place);
    }
    switched_.arrived(fiber.switched);
    current_ = nullptr;
    if (failure_[0]) abandon(failure_);
  }

  // Back to run(), on the fiber's stack.
  void leave() {
    Fiber& self = *current_;
    self.switched.leave_for(switched_);
    self.place.switch_to(place_);
    self.switched.arrived(switched_);
  }

  static void work();

  const KernelEntry* kernel_ = nullptr;
  const uint64_t* args_ = nullptr;
  const uint32_t* grid_ = nullptr;
  bool down_ = false;
  uint64_t groups_ = 0, next_group_ = 0;
  uint32_t next_item_ = 0;
  uint32_t group_[3] = {};
  uint64_t blocked_ = 0;         // fibers in the midst of an item
  std::vector<Fiber*> waiting_;  // those whose turn is the next one
  std::vector<Fiber*> turn_;
  Fiber* current_ = nullptr;
  char failure_[512] = "";  // why the fiber that ran last did not go on
  std::unique_ptr<Local> local_ = std::make_unique<Local>();
  uint64_t local_touched_ = kLocalBytes;  // since it was filled
  Place place_;
  SanitizedSwitch switched_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

thread_local std::unique_ptr<FiberPool> pool;

void FiberPool::work() {
  FiberPool& self = *pool;
  Fiber& fiber = *self.current_;
  fiber.switched.arrived(self.switched_);
  for (;;) {
    while (self.has_more()) {
      self.begin_item(fiber);
      self.kernel_->run(self.args_, self.grid_, fiber.at);
    }
    self.idle_.push_back(&fiber);
    self.leave();
  }
}

}  // namespace

void run_on_fibers(const KernelEntry& kernel, const uint64_t* args, const uint32_t* grid, Order order) {
  if (!pool) pool = std::make_unique<FiberPool>();
  pool->run(kernel, args, grid, order);
}

bool fail_on_fiber(uint32_t line, const char* condition) {
  if (!pool || !pool->runs()) return false;
  pool->fail("BP_ASSERT(%s) in line %u does not hold", condition, line);
}

void wait_at_barrier(uint32_t line) { pool->wait(line); }

void* take_local(uint64_t bytes, uint32_t line) { return pool->local(bytes, line); }

}  // namespace backplane::driver::sim
