// tests/device/cpp/streams_stress.cpp: threads that order work by events, copy through pinned memory, hand tensors on and share them with a
// process; every byte is compared.
//
// Usage: streams_stress [STEPS [THREADS]]. Made for the sanitizers: the threads share nothing but what is tested, and a queue of pieces
// under a mutex. Without bp.ipc nothing is sent.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/ipc.h"
#include "memory/pinned_allocator.h"
#include "memory/storage.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/stream.h"

using namespace backplane;

namespace {

std::atomic<int> errors{0};

void wrong(const std::string& what) {
  if (errors.fetch_add(1) == 0) std::cout << what << std::endl;
}

uint64_t address(const void* ptr) { return reinterpret_cast<uint64_t>(ptr); }

void fill(void* ptr, size_t bytes, unsigned char value, const c10::Stream& stream) {
  call<&bp_driver::fill>(stream.device_index(), stream_handle(stream), address(ptr), static_cast<const void*>(&value), uint32_t{1},
                         uint64_t{bytes}, 0u);
}

void copy(void* dst, c10::DeviceIndex dst_device, const void* src, c10::DeviceIndex src_device, size_t bytes, const c10::Stream& stream) {
  const auto place = [](c10::DeviceIndex device) { return device < 0 ? int32_t{BP_HOST_DEVICE} : driver_index(device); };
  call<&bp_driver::copy_async>(stream.device_index(), stream_handle(stream), address(dst), place(dst_device), address(src),
                               place(src_device), uint64_t{bytes}, 0u);
}

void expect(const void* ptr, size_t bytes, unsigned char value, const char* where) {
  const auto* at = static_cast<const unsigned char*>(ptr);
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] == value) continue;
    return wrong(std::string(where) + ": byte " + std::to_string(i) + " of " + std::to_string(bytes) + " is " + std::to_string(at[i]) +
                 ", not " + std::to_string(value));
  }
}

// ---- the other process

template <typename Value>
void put(int pipe, const Value* values, size_t count) {
  if (write(pipe, values, count * sizeof(Value)) != static_cast<ssize_t>(count * sizeof(Value))) std::abort();
}
template <typename Value>
bool get(int pipe, Value* values, size_t count) {
  char* at = reinterpret_cast<char*>(values);
  for (size_t left = count * sizeof(Value); left != 0;) {
    const ssize_t got = read(pipe, at, left);
    if (got <= 0) return false;
    at += got;
    left -= static_cast<size_t>(got);
  }
  return true;
}

class Receiver {
 public:
  // Forks: before the driver is opened.
  Receiver() {
    if (pipe(to_) != 0 || pipe(from_) != 0) std::abort();
    process_ = fork();
    if (process_ != 0) return;
    close(to_[1]);
    close(from_[0]);
    try {
      serve();
    } catch (const std::exception& error) {
      std::cout << "the other process: " << error.what() << std::endl;
      _exit(1);
    }
    _exit(errors.load() == 0 ? 0 : 1);
  }
  // The other process answers with the first byte of what it received.
  unsigned char ask(const SharedStorage& shared, unsigned char value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t numbers[] = {shared.offset, shared.bytes, shared.memory.size(), shared.event.size(), shared.counter.size(), value};
    put(to_[1], numbers, 6);
    for (const std::string* part : {&shared.memory, &shared.event, &shared.counter}) put(to_[1], part->data(), part->size());
    unsigned char answer = 0;
    if (!get(from_[0], &answer, 1)) wrong("the other process has ended");
    return answer;
  }
  ~Receiver() {
    close(to_[0]);
    close(to_[1]);
    int status = 0;
    waitpid(process_, &status, 0);
    if (status != 0) wrong("the other process failed");
  }

 private:
  void serve() {
    uint64_t numbers[6];
    while (get(to_[0], numbers, 6)) {
      SharedStorage shared;
      shared.offset = numbers[0];
      shared.bytes = numbers[1];
      std::string* parts[] = {&shared.memory, &shared.event, &shared.counter};
      for (int i = 0; i < 3; ++i) {
        parts[i]->resize(numbers[i + 2]);
        if (!get(to_[0], parts[i]->data(), parts[i]->size())) return;
      }
      const c10::Storage storage = open_shared_storage(0, shared);
      const c10::Stream stream = current_stream(0);
      const auto host = pinned_allocator().allocate(shared.bytes);
      copy(host.get(), -1, storage.data(), 0, shared.bytes, stream);
      synchronize_stream(stream);
      expect(host.get(), shared.bytes, static_cast<unsigned char>(numbers[5]), "received");
      put(from_[1], static_cast<const unsigned char*>(host.get()), 1);
    }
  }

  std::mutex mutex_;
  int to_[2], from_[2];
  pid_t process_;
};

// ---- the threads

// Device memory, what each of its bytes is, and the stream that wrote it last.
struct Piece {
  c10::DataPtr data;
  size_t bytes;
  unsigned char value;
  c10::Stream stream;
};

std::mutex mutex;
std::vector<Piece> handed_on;
std::vector<std::shared_ptr<Event>> published;  // recorded; any thread queries them and waits for them

class Worker {
 public:
  Worker(unsigned seed, Receiver* receiver) : random_(seed), receiver_(receiver) {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      for (int i = 0; i < 3; ++i) streams_.push_back(i == 0 ? default_stream(device) : pool_stream(device, i - 2));
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (own_.empty()) make();
      switch (random_() % 8) {
        case 0:
          make();
          break;
        case 1:
          duplicate();
          break;
        case 2:
          out();
          break;
        case 3:
          in();
          break;
        case 4:
          hand_on();
          break;
        case 5:
          look();
          break;
        case 6:
          if (random_() % 8 == 0) send();
          break;
        default:
          own_.erase(own_.begin());
      }
    }
    while (!own_.empty()) {
      out();
      own_.pop_back();
    }
  }

 private:
  const c10::Stream& any_stream() { return streams_[random_() % streams_.size()]; }
  // A stream of the piece's device, which then may use it.
  c10::Stream stream_for(Piece& piece) {
    c10::Stream stream = any_stream();
    while (stream.device_index() != piece.stream.device_index()) stream = any_stream();
    auto event = std::make_shared<Event>();
    event->record(piece.stream);
    event->block(stream);
    caching_allocator().recordStream(piece.data, stream);
    piece.stream = stream;
    const std::lock_guard<std::mutex> lock(mutex);
    if (published.size() < 8) published.push_back(std::move(event));
    return stream;
  }
  c10::DataPtr allocate(size_t bytes, const c10::Stream& stream) {
    exchange_device(stream.device_index());
    exchange_stream(stream);
    return caching_allocator().allocate(bytes);
  }

  void make() {
    const c10::Stream stream = any_stream();
    const size_t bytes = random_() % 20000 + 1;
    const auto value = static_cast<unsigned char>(random_());
    Piece piece{allocate(bytes, stream), bytes, value, stream};
    fill(piece.data.get(), bytes, value, stream);
    own_.push_back(std::move(piece));
  }
  void duplicate() {
    Piece& from = own_[random_() % own_.size()];
    const c10::Stream stream = stream_for(from);
    Piece piece{allocate(from.bytes, stream), from.bytes, from.value, stream};
    copy(piece.data.get(), stream.device_index(), from.data.get(), stream.device_index(), from.bytes, stream);
    own_.push_back(std::move(piece));
  }
  void out() {
    Piece& piece = own_[random_() % own_.size()];
    const c10::Stream stream = stream_for(piece);
    const auto host = pinned_allocator().allocate(piece.bytes);
    copy(host.get(), -1, piece.data.get(), stream.device_index(), piece.bytes, stream);
    const PooledEvent done = pooled_event(stream.device_index());
    done->record(stream);
    done->synchronize();
    expect(host.get(), piece.bytes, piece.value, "copied out");
  }
  // The pinned block is freed while its copy is queued.
  void in() {
    Piece& piece = own_[random_() % own_.size()];
    const c10::Stream stream = stream_for(piece);
    const auto host = pinned_allocator().allocate(piece.bytes);
    piece.value = static_cast<unsigned char>(random_());
    std::memset(host.get(), piece.value, piece.bytes);
    copy(piece.data.get(), stream.device_index(), host.get(), -1, piece.bytes, stream);
    if (!pinned_allocator().record_event(host.get(), host.get_context(), stream)) wrong("pinned memory is not known");
  }
  void hand_on() {
    const std::lock_guard<std::mutex> lock(mutex);
    handed_on.push_back(std::move(own_.back()));
    own_.pop_back();
    std::swap(handed_on[random_() % handed_on.size()], handed_on.back());
    if (random_() % 2 == 0) return;
    own_.push_back(std::move(handed_on.back()));
    handed_on.pop_back();
  }
  void look() {
    std::shared_ptr<Event> event;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (published.empty()) return;
      std::swap(published[random_() % published.size()], published.back());
      event = published.back();
      if (random_() % 2 == 0) published.pop_back();
    }
    event->query();
    event->block(any_stream());
    query_stream(any_stream());
    if (random_() % 4 == 0) synchronize_device(any_stream().device_index());
    if (random_() % 16 == 0) pinned_allocator().empty_cache();
  }
  void send() {
    if (receiver_ == nullptr) return;
    exchange_device(0);
    const c10::Stream stream = current_stream(0);
    const size_t bytes = random_() % 20000 + 1;
    const auto value = static_cast<unsigned char>(random_());
    const c10::Storage storage = new_storage(bytes);
    fill(storage.mutable_data(), bytes, value, stream);
    if (receiver_->ask(share_storage(storage), value) != value) wrong("the other process read something else");
  }

  std::mt19937 random_;
  Receiver* receiver_;
  std::vector<c10::Stream> streams_;
  std::vector<Piece> own_;
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 4;
  {
    Receiver receiver;
    const bool can_send = open_driver().ipc != nullptr;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([=, &receiver] {
        try {
          Worker(static_cast<unsigned>(t), can_send ? &receiver : nullptr).run(steps);
        } catch (const std::exception& error) {
          wrong(error.what());
        }
      });
    }
    for (auto& worker : workers) worker.join();
  }
  handed_on.clear();
  published.clear();
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) synchronize_device(device);
  ipc_collect();
  caching_allocator().emptyCache();
  pinned_allocator().empty_cache();
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    const auto stats = caching_allocator().getDeviceStats(device);
    if (stats.active_bytes[0].current != 0 || stats.reserved_bytes[0].current != 0) wrong("device memory is left over");
  }
  if (pinned_allocator().get_stats().allocated_bytes.current != 0) wrong("pinned memory is left over");
  std::cout << steps * threads << " steps, " << errors.load() << " errors" << std::endl;
  return errors.load() == 0 ? 0 : 1;
}
