// tests/driver/engine_test/helpers.h: cases of engine_test.cpp: what driver.hpp offers to drivers of runtimes with handles.
#pragma once

#include <deque>
#include <future>

#include "support.h"

namespace {

void addresses_of_the_runtime_are_found() {
  AddressTable<int> table;
  std::map<uint64_t, std::pair<uint64_t, int>> model;  // base -> bytes, handle
  unsigned seed = 3;
  const auto random = [&](unsigned below) { return (seed = seed * 1103515245 + 12345) / 65536 % below; };
  const auto holder = [&](uint64_t address) {
    for (const auto& [base, block] : model) {
      if (address >= base && address - base < std::max<uint64_t>(block.first, 1)) return base;
    }
    return uint64_t{0};
  };
  int collisions = 0;
  for (int n = 1; n < 6000; ++n) {
    if (model.size() < 40) {
      const uint64_t base = 4096 + random(20000), bytes = random(4) ? random(400) : 0;
      bool free = true;
      for (uint64_t at = base; at < base + std::max<uint64_t>(bytes, 1); ++at) free = free && holder(at) == 0;
      try {
        table.insert(base, bytes, n);
        CHECK(free);
        model[base] = {bytes, n};
      } catch (const Error& error) {
        CHECK(!free && error.status() == BP_INTERNAL && std::string(error.what()).find("lies in another allocation") != std::string::npos);
        ++collisions;
      }
    } else {
      const auto victim = std::next(model.begin(), random(static_cast<unsigned>(model.size())));
      const auto [bytes, handle] = victim->second;
      CHECK(table.remove(victim->first)->handle == handle && !table.remove(victim->first));
      model.erase(victim);
    }
    const uint64_t asked = 4000 + random(21000), base = holder(asked);
    const auto found = table.find(asked);
    CHECK(found.has_value() == (base != 0));
    if (found) CHECK(found->base == base && found->offset == asked - base && found->handle == model[base].second);
  }
  CHECK(collisions > 0);
}

template <class Map>
void ranges_of(const Map& map, uint64_t base, uint64_t bytes) {
  const auto refused = [&](uint64_t address, uint64_t size) {
    try {
      map.range(address, size, "copy: src");
      return false;
    } catch (const Error& error) {
      return error.status() == BP_INVALID_ARGUMENT && std::string(error.what()).starts_with("copy: src: 0x");
    }
  };
  CHECK(map.range(base, bytes, "").offset == 0 && map.range(base + 3, bytes - 3, "").offset == 3);
  CHECK(map.range(base + bytes, 0, "").offset == bytes);  // one past the end
  CHECK(refused(base + 1, bytes) && refused(base + bytes, 1) && refused(base + bytes + 1, 0) && refused(base - 1, 0) && refused(0, 0));
  CHECK(refused(base + 1, UINT64_MAX));
}

void ranges_lie_in_one_allocation() {
  AddressTable<int> table;
  table.insert(1 << 20, 1000, 1);
  ranges_of(table, 1 << 20, 1000);
  AddressMap<int> map(1 << 20, 1 << 20);
  ranges_of(map, map.place(1000, 512, 1), 1000);
}

void a_callback_ends_a_wait() {
  CallbackWait done;
  CHECK(done.query() == BP_PENDING && done.wait(0) == BP_TIMEOUT && done.wait(1 * kMs) == BP_TIMEOUT);
  std::vector<std::thread> waiting;
  std::atomic<int> ended{0};
  for (int n = 0; n < 4; ++n) waiting.emplace_back([&, n] { ended += done.wait(n % 2 ? BP_NO_TIMEOUT : UINT64_MAX - 1) == BP_FAULT; });
  std::thread([arg = done.arg()] { CallbackWait::complete(arg, BP_FAULT); }).join();
  for (auto& thread : waiting) thread.join();
  CHECK(ended == 4 && done.query() == BP_FAULT && done.wait(0) == BP_FAULT);
  CallbackWait::complete(done.arg(), BP_OK);
  CHECK(done.query() == BP_FAULT);  // the first status counts
}

void a_late_callback_finds_what_it_needs() {
  void* arg = nullptr;
  {
    CallbackWait done;
    arg = done.arg();
    CHECK(done.wait(1 * kMs) == BP_TIMEOUT);
  }
  CallbackWait::complete(arg, BP_OK);  // a sanitizer sees memory that is gone, or left over
}

/// A runtime with a queue whose callbacks come from another thread and do not hold it up.
class FakeRuntime {
 public:
  struct Signal {
    std::promise<int32_t> set;
    std::shared_future<int32_t> seen{set.get_future()};
  };
  using Event = std::shared_ptr<Signal>;
  using Gate = std::shared_ptr<Signal>;

  ~FakeRuntime() {
    enqueue(nullptr);
    worker_.join();
    for (auto& thread : callbacks_) thread.join();
  }
  void enqueue(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }
  void finish() {
    std::promise<void> over;
    enqueue([&] { over.set_value(); });
    over.get_future().wait();
  }
  int32_t status = BP_OK;  // of events
  bool refuses = false;    // callbacks

  Event marker() {
    auto event = std::make_shared<Signal>();
    enqueue([event, this] { event->set.set_value(status); });
    return event;
  }
  Gate gate() { return std::make_shared<Signal>(); }
  void hold(const Gate& gate) {
    enqueue([gate] { gate->seen.wait(); });
  }
  static void open(Gate gate) noexcept { gate->set.set_value(BP_OK); }
  void on_complete(const Event& event, void (*run)(void* arg, int32_t status), void* arg) {
    if (refuses) throw Error(BP_UNSUPPORTED, "no callbacks today");
    callbacks_.emplace_back([=] { run(arg, event->seen.get()); });
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const auto next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!next) return;
      next();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> callbacks_;
  std::thread worker_{[this] { work(); }};
};

struct Seen {
  std::atomic<int> before{0}, after{0}, ran{0};
  int32_t status = BP_PENDING;
  bool in_order = true;
};

void note_call(void* arg, int32_t status) {
  auto* seen = static_cast<Seen*>(arg);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // time for later work to come too early
  seen->in_order = seen->in_order && seen->before == seen->ran + 1 && seen->after == seen->ran;
  seen->status = status;
  ++seen->ran;
}

void a_callback_holds_the_queue() {
  FakeRuntime runtime;
  Seen seen;
  for (int round = 0; round < 10; ++round) {
    runtime.enqueue([&] { ++seen.before; });
    queue_callback(runtime, note_call, &seen);
    runtime.enqueue([&] { ++seen.after; });
    runtime.finish();
    CHECK(seen.ran == round + 1 && seen.after == round + 1 && seen.in_order && seen.status == BP_OK);
  }
  runtime.status = BP_FAULT;
  runtime.enqueue([&] { ++seen.before; });
  queue_callback(runtime, note_call, &seen);
  runtime.finish();
  CHECK(seen.ran == 11 && seen.status == BP_FAULT);
}

void a_callback_that_is_refused_holds_nothing() {
  FakeRuntime runtime;
  runtime.refuses = true;
  Seen seen;
  int32_t status = BP_OK;
  try {
    queue_callback(runtime, note_call, &seen);
  } catch (const Error& error) {
    status = error.status();
  }
  runtime.finish();  // the stream goes on
  CHECK(status == BP_UNSUPPORTED && seen.ran == 0);
}

void what_is_left_is_destroyed() {
  std::vector<int> destroyed;
  {
    LiveHandles<int> live([&](int handle) { destroyed.push_back(handle); });
    for (int handle : {3, 1, 2, 5}) CHECK(live.add(handle) == handle && live.contains(handle));
    live.destroy(1, "stream_destroy");
    CHECK(destroyed == std::vector<int>{1} && !live.contains(1));
    for (int stranger : {1, 7}) {
      try {
        live.destroy(stranger, "stream_destroy");
        CHECK(false);
      } catch (const Error& error) {
        CHECK(error.status() == BP_INVALID_ARGUMENT && std::string(error.what()).starts_with("stream_destroy: "));
      }
    }
    CHECK(live.forget(5) && !live.forget(5) && live.size() == 2);
    live.add(4);
    CHECK(destroyed.size() == 1);
  }
  CHECK((destroyed == std::vector<int>{1, 4, 2, 3}));  // the latest first
}

}  // namespace
