// tests/driver/broken/life.cpp: defects of the families fork and life, and three ways to end a check early.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

#include "shim.h"

namespace broken {
namespace {

// Of the process, as a vendor's library has them.
std::atomic<int> opened{0}, closed{0};
std::atomic<bool> forked{false}, abort_at_exit{false};
std::atomic<int64_t> in_use{0};
pid_t first_process = 0;

struct AtExit {
  ~AtExit() {
    if (abort_at_exit && opened > closed) abort();
  }
} at_exit;

void leave_a_thread() {
  std::thread([] { pause(); }).detach();
}

void count_life(Shim& s) {
  s.table.open = [](void* self) {
    ++opened;
    return INNER(of(self), open);
  };
  static decltype(bp_driver::close) close;
  close = s.table.close;
  s.table.close = [](void* self) {
    ++closed;
    return close(self);
  };
}

}  // namespace

void add_life_defects(Defects& d) {
  d["fork.before_open"] = [](Shim& s) {
    first_process = getpid();
    s.table.device_count = [](void* self, int32_t* out) {
      return getpid() == first_process ? INNER(of(self), device_count, out) : int32_t{BP_INTERNAL};
    };
  };
  d["fork.child_opens"] = [](Shim& s) {
    first_process = getpid();
    s.table.open = [](void* self) { return getpid() == first_process ? INNER(of(self), open) : int32_t{BP_INTERNAL}; };
  };
  d["fork.after_open"] = [](Shim& s) {
    pthread_atfork(nullptr, [] { forked = true; }, nullptr);
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (forked) return int32_t{BP_DEVICE_LOST};
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };

  d["life.nothing_early"] = [](Shim&) { leave_a_thread(); };
  d["life.unopened"] = [](Shim& s) {
    count_life(s);
    static decltype(bp_driver::close) close;
    close = s.table.close;
    s.table.close = [](void* self) { return opened ? close(self) : int32_t{BP_INVALID_ARGUMENT}; };
  };
  d["life.fresh"] = [](Shim& s) {
    count_life(s);
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      return opened > 2 ? int32_t{BP_INTERNAL} : INNER(of(self), alloc, device, bytes, flags, out);
    };
  };
  d["life.two"] = [](Shim& s) {
    count_life(s);
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (closed) return int32_t{BP_DEVICE_LOST};
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["life.busy"] = [](Shim& s) {
    static decltype(bp_driver::close) close;
    close = s.table.close;
    s.table.close = [](void* self) {
      of(self).closing = true;
      return close(self);
    };
    s.table.stream_callback = [](void* self, int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
      const bp_callback unless_closing = [](void* callback, int32_t status) {
        auto* c = static_cast<Callback*>(callback);
        if (!c->shim->closing) c->fn(c->arg, status);
        delete c;
      };
      return INNER(of(self), stream_callback, device, stream, unless_closing, new Callback{&of(self), fn, arg});
    };
  };
  d["life.threads"] = instead<&bp_driver::open, [](Shim& s) {
    leave_a_thread();
    return INNER(s, open);
  }>;
  d["life.files"] = instead<&bp_driver::open, [](Shim& s) {
    if (open("/dev/null", O_RDONLY) < 0) return int32_t{BP_INTERNAL};
    return INNER(s, open);
  }>;
  d["life.address_space"] = instead<&bp_driver::open, [](Shim& s) {
    mmap(nullptr, 16 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return INNER(s, open);
  }>;
  d["life.device_memory"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (status == BP_OK && bytes > 1 << 20) in_use += static_cast<int64_t>(bytes);
      return status;
    };
    s.table.memory_info = [](void* self, int32_t device, uint64_t* free_bytes, uint64_t* total) {
      const int32_t status = INNER(of(self), memory_info, device, free_bytes, total);
      if (status == BP_OK) *free_bytes = *total - static_cast<uint64_t>(in_use.load());
      return status;
    };
  };
  d["life.exit_open"] = [](Shim& s) {
    count_life(s);
    abort_at_exit = true;
  };

  d["crash"] = [](Shim& s) { s.table.alloc = [](void*, int32_t, uint64_t, uint32_t, uint64_t*) { return raise(SIGSEGV), ok; }; };
  d["hang"] = instead<&bp_driver::alloc, [](Shim&, int32_t, uint64_t, uint32_t, uint64_t*) {
    for (;;) pause();
    return ok;
  }>;
  d["throw"] = instead<&bp_driver::alloc, [](Shim&, int32_t, uint64_t, uint32_t, uint64_t*) -> int32_t {
    throw std::runtime_error("out of <cheese> & \"crackers\"");
  }>;
  d["end"] = [](Shim& s) { s.table.alloc = [](void*, int32_t, uint64_t, uint32_t, uint64_t*) -> int32_t { _exit(0); }; };
}

}  // namespace broken
