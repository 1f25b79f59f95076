// tests/driver/collective_test/support.h: what the cases of collective_test.cpp share: a rank, and ranks that are threads or processes.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/collective.h>

#include "../instance.h"

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

/// One rank's view: the group of an instance, a device and a communicator.
struct Rank {
  Instance& i;
  bp_collective g;
  int32_t device, rank, size;
  bp_comm* comm = nullptr;

  Rank(Instance& instance, int32_t on, int32_t number, int32_t of)
      : i(instance), g(*find_group<bp_collective>(*i.d)), device(on), rank(number), size(of) {}

  template <class... Params, class... Args>
  int32_t operator()(int32_t (*entry)(void*, Params...), Args... args) const {
    return entry(g.head.self, static_cast<Params>(args)...);
  }
  bp_comm_config config(const void* id, uint64_t timeout = 20 * kSecond) const {
    bp_comm_config c{};
    c.struct_size = sizeof c;
    c.id = id;
    c.name = "test";
    c.timeout_ns = timeout;
    c.rank = rank;
    c.size = size;
    return c;
  }
  int32_t join(const void* id, uint64_t timeout = 20 * kSecond, uint64_t work_timeout = 0) {
    bp_comm_config c = config(id, timeout);
    c.work_timeout_ns = work_timeout;
    return (*this)(g.create, device, &c, &comm);
  }
  int32_t how(std::string* why = nullptr) const {
    int32_t status = -1;
    char text[256] = "";
    OK((*this)(g.status, comm, &status, text, sizeof text));
    if (why) *why = text;
    return status;
  }
  void leave() { OK((*this)(g.destroy, comm, 20 * kSecond)); }
};

using Id = std::vector<char>;

Id make_id(Instance& i) {
  const auto g = *find_group<bp_collective>(*i.d);
  bp_collective_properties p{};
  p.struct_size = sizeof p;
  OK(g.properties(g.head.self, 0, &p));
  Id id(p.id_bytes);
  OK(g.make_id(g.head.self, 0, id.data()));
  return id;
}

const bp_driver* sim(int32_t devices, const std::string& options) {
  return get(bp_sim_get, ("memory=1GiB,devices=" + std::to_string(devices) + options).c_str());
}

/// Runs body for ranks that are threads of one instance, each with a device. What one throws is thrown.
void in_threads(Instance& i, int32_t size, const std::function<void(Rank&, const Id&)>& body) {
  const Id id = make_id(i);
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(static_cast<size_t>(size));
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank r(i, rank, rank, size);
        body(r, id);
      } catch (const std::exception& error) {
        wrong[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& text : wrong) {
    if (!text.empty()) throw std::runtime_error(text);
  }
}

void in_threads(int32_t size, const std::string& options, const std::function<void(Rank&, const Id&)>& body) {
  Instance i(sim(size, options));
  in_threads(i, size, body);
}

/// What the processes of a test share beside their communicator: the id, and how far each has come.
struct Shared {
  std::atomic<int> ready, steps;
  char id[65536];
};

/// The same for processes. killed: that rank is killed after so many steps of all ranks, and what it does is not looked at.
void in_processes(int32_t size, const std::string& options, const std::function<void(Rank&, const Id&, Shared&)>& body, int32_t killed = -1,
                  int after = 0) {
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  CHECK(shared != MAP_FAILED);
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a hang ends, and is a failure
      int code = 0;
      try {
        Instance i(sim(1, options));
        Rank r(i, 0, rank, size);
        Id id(128);
        if (rank == 0) {
          id = make_id(i);
          std::memcpy(shared->id, id.data(), id.size());
          shared->ready = 1;
        }
        while (!shared->ready) std::this_thread::yield();
        std::memcpy(id.data(), shared->id, id.size());
        body(r, id, *shared);
      } catch (const std::exception& error) {
        std::printf("  rank %d: %s\n", rank, error.what());
        std::fflush(stdout);
        code = 1;
      }
      _exit(code);
    }
    children.push_back(child);
  }
  std::string wrong;
  if (killed >= 0) {
    while (shared->ready == 0 || shared->steps < after) usleep(50);
    kill(children[static_cast<size_t>(killed)], SIGKILL);
  }
  for (int32_t rank = 0; rank < size; ++rank) {
    int status = 0;
    // A killed rank stays a zombie for as long as the others work.
    const int32_t at = killed < 0 ? rank : (killed + 1 + rank) % size;
    waitpid(children[static_cast<size_t>(at)], &status, 0);
    if (at != killed && status != 0) wrong += " rank " + std::to_string(at) + " ended with " + std::to_string(status);
  }
  munmap(shared, sizeof *shared);
  if (!wrong.empty()) throw std::runtime_error(wrong);
}

int32_t value(uint32_t seed, int step, int32_t rank, uint64_t at) {
  return static_cast<int32_t>((seed * 31 + static_cast<uint32_t>(step) * 7 + static_cast<uint32_t>(rank) * 13 + at * 3) % 1000);
}

}  // namespace
