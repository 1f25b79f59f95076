// tests/driver/collective_test.cpp: bp.collective of the simulated device: random programs of ranks in threads and in processes, ranks that
// are killed at random times, and how communicators fail.
//
// "collective_test [--only <text>] [--programs <n>] [--seed <n>]". Prints one line a case; the exit status is the number of failures.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/collective.h>
#include <backplane/driver/host_exec.h>
#include <backplane/driver/module.h>

#include "instance.h"
#include "report.h"

extern "C" {
int32_t bp_sim_get(const bp_host* host, const bp_driver** out);
int32_t bp_emulate_get(const bp_host* host, const bp_driver** out);
int32_t bp_fault_get(const bp_host* host, const bp_driver** out);
int32_t bp_trace_get(const bp_host* host, const bp_driver** out);
}

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

// ---- random programs

int32_t value(uint32_t seed, int step, int32_t rank, uint64_t at) {
  return static_cast<int32_t>((seed * 31 + static_cast<uint32_t>(step) * 7 + static_cast<uint32_t>(rank) * 13 + at * 3) % 1000);
}

/// Random calls, the same on every rank, on two streams, each looked at when some more are queued. Stops at the first failure of the
/// communicator, if that may fail.
template <class Step>
void program(Rank& r, uint32_t seed, int steps, bool may_fail, Step&& step_done) {
  std::mt19937 random(seed);
  bp_stream* streams[2] = {r.i.stream(r.device), r.i.stream(r.device)};
  struct Result {
    uint64_t in, out;
    std::vector<int32_t> want;
  };
  std::vector<Result> open;
  const auto finish = [&] {
    for (bp_stream* stream : streams) OK(r.i.d->stream_synchronize(r.i.self, r.device, stream, BP_NO_TIMEOUT));
    const bool failed = r.how() != BP_OK;
    CHECK(may_fail || !failed);
    for (const Result& one : open) {
      const auto bytes = r.i.take(one.out, one.want.size() * 4, r.device);
      CHECK(failed || one.want.empty() || std::memcmp(bytes.data(), one.want.data(), bytes.size()) == 0);
      OK(r.i.d->free(r.i.self, r.device, one.in));
      OK(r.i.d->free(r.i.self, r.device, one.out));
    }
    open.clear();
    return !failed;
  };
  const auto n = static_cast<uint64_t>(r.size);
  for (int step = 0; step < steps; ++step) {
    static constexpr uint64_t counts[] = {0, 1, 5, 1000, 17'001, 300'000};
    const uint64_t count = counts[random() % 6];
    const auto kind = random() % 9;
    const auto root = static_cast<int32_t>(random() % n);
    bp_stream* stream = streams[random() % 2];
    const auto from = [&](int32_t rank, uint64_t at) { return value(seed, step, rank, at); };
    std::vector<int32_t> in(count * n), want;
    for (uint64_t at = 0; at < in.size(); ++at) in[at] = from(r.rank, at);
    const uint64_t space = in.size() * 4;
    const uint64_t a = r.i.alloc(space, r.device), b = r.i.alloc(space, r.device);
    r.i.put(a, in.data(), space, r.device);
    const auto sum = [&](uint64_t first, uint64_t many) {
      for (uint64_t at = first; at < first + many; ++at) {
        int32_t all = 0;
        for (int32_t rank = 0; rank < r.size; ++rank) all += from(rank, at);
        want.push_back(all);
      }
    };
    const auto gathered = [&](uint64_t shift) {
      for (int32_t rank = 0; rank < r.size; ++rank) {
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(rank, shift * count + at));
      }
    };
    int32_t status = BP_OK;
    const auto me = static_cast<uint64_t>(r.rank);
    const auto next = static_cast<int32_t>((me + 1) % n), before = static_cast<int32_t>((me + n - 1) % n);
    switch (kind) {
      case 0:
        status = r(r.g.all_reduce, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM);
        sum(0, count);
        break;
      case 1:
        status = r(r.g.reduce, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM, root);
        if (root == r.rank) sum(0, count);
        break;
      case 2:
        status = r(r.g.reduce_scatter, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM);
        sum(me * count, count);
        break;
      case 3:
        status = r(r.g.broadcast, r.comm, stream, b, a, count * 4, root);
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(root, at));
        break;
      case 4:
        status = r(r.g.all_gather, r.comm, stream, b, a, count * 4);
        gathered(0);
        break;
      case 5:
        status = r(r.g.all_to_all, r.comm, stream, b, a, count * 4);
        gathered(me);
        break;
      case 6:
        status = r(r.g.gather, r.comm, stream, b, a, count * 4, root);
        if (root == r.rank) gathered(0);
        break;
      case 7:
        status = r(r.g.scatter, r.comm, stream, b, a, count * 4, root);
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(root, me * count + at));
        break;
      default:  // a ring, whose sends all come first
        OK(r(r.g.group_begin));
        status = r(r.g.send, r.comm, stream, a, count * 4, next);
        if (status == BP_OK) status = r(r.g.recv, r.comm, stream, b, count * 4, before);
        OK(r(r.g.group_end));
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(before, at));
    }
    open.push_back({a, b, std::move(want)});
    CHECK(status == BP_OK || (may_fail && status == BP_INTERNAL));
    step_done();
    if ((status != BP_OK || random() % 4 == 0) && !finish()) break;
  }
  finish();
  for (bp_stream* stream : streams) OK(r.i.d->stream_destroy(r.i.self, r.device, stream));
}

void a_program_in_threads(uint32_t seed) {
  static constexpr const char* kinds[] = {"", ",kind=discrete", ",delay=200", ",stream=inline", ",kind=discrete,strict=on"};
  in_threads(static_cast<int32_t>(2 + seed % 3), kinds[seed % 5], [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    program(r, seed, 12, false, [] {});
    r.leave();
  });
}
void a_program_in_processes(uint32_t seed) {
  static constexpr const char* kinds[] = {",kind=discrete,delay=100", "", ",stream=inline"};
  static constexpr int32_t sizes[] = {1, 2, 3, 4, 8};
  in_processes(sizes[seed % 5], kinds[seed % 3], [&](Rank& r, const Id& id, Shared&) {
    OK(r.join(id.data()));
    program(r, seed, 15, false, [] {});
    r.leave();
  });
}
void a_rank_is_killed(uint32_t seed) {
  const auto size = static_cast<int32_t>(2 + seed % 3);
  const auto killed = static_cast<int32_t>(seed / 3) % size;
  in_processes(
      size, seed % 2 ? "" : ",stream=inline",
      [&](Rank& r, const Id& id, Shared& shared) {
        const int32_t joined = r.join(id.data(), kSecond);
        CHECK(joined == BP_OK || joined == BP_TIMEOUT || joined == BP_INTERNAL || joined == BP_INVALID_ARGUMENT);
        if (joined != BP_OK) return;
        program(r, seed, 1'000'000, true, [&] { ++shared.steps; });
        CHECK(r.how() == BP_DEVICE_LOST);
        const uint64_t address = r.i.alloc(64);  // the device is as it was
        r.i.take(address, 64);
        r.leave();
      },
      killed, static_cast<int>(seed % 17) * 3);
}

// ---- failures

void an_absent_rank_is_a_timeout() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    if (r.rank == 1) return;
    CHECK(r.join(id.data(), kSecond / 20) == BP_TIMEOUT);
    CHECK(r.i.error().find("rank 1") != std::string::npos);
    CHECK(r.join(id.data(), kSecond / 20) == BP_INVALID_ARGUMENT);  // used up
  });
}

/// Two come as rank 0: one of them is refused, and the other one still meets rank 1.
void a_rank_that_is_taken_is_refused() {
  std::atomic<int> refused{0};
  in_threads(3, "", [&](Rank& r, const Id& id) {
    r.size = 2;
    if (r.rank == 1) {
      while (refused == 0) std::this_thread::yield();
    }
    if (r.rank == 2) r.rank = 0;
    const int32_t status = r.join(id.data());
    if (status == BP_OK) {
      r.leave();
    } else {
      CHECK(status == BP_INVALID_ARGUMENT && r.rank == 0 && r.i.error() == "rank 0 of 2 is taken");
      CHECK(refused++ == 0);
    }
  });
  CHECK(refused == 1);
}

/// Whoever comes first has the size.
void another_size_is_refused() {
  std::atomic<int> refused{0}, alone{0};
  in_threads(2, "", [&](Rank& r, const Id& id) {
    r.size = 2 + r.rank;
    const int32_t status = r.join(id.data(), kSecond / 10);
    CHECK(status == BP_INVALID_ARGUMENT || status == BP_TIMEOUT);
    ++(status == BP_TIMEOUT ? alone : refused);
  });
  CHECK(refused == 1 && alone == 1);
}

void ranks_that_disagree_fail() {
  for (int which = 0; which < 4; ++which) {
    in_threads(2, "", [&](Rank& r, const Id& id) {
      OK(r.join(id.data()));
      const uint64_t a = r.i.alloc(4096, r.device), b = r.i.alloc(4096, r.device);
      const bool odd = r.rank == 1;
      if (which == 0) OK(r(r.g.all_reduce, r.comm, nullptr, b, a, odd ? 8 : 4, BP_DTYPE_FLOAT32, BP_REDUCE_SUM));
      if (which == 1) OK(r(r.g.all_reduce, r.comm, nullptr, b, a, 8, BP_DTYPE_FLOAT32, odd ? BP_REDUCE_MAX : BP_REDUCE_SUM));
      if (which == 2) OK(odd ? r(r.g.broadcast, r.comm, nullptr, b, a, 8, 0) : r(r.g.all_to_all, r.comm, nullptr, b, a, 8));
      if (which == 3) OK(odd ? r(r.g.recv, r.comm, nullptr, b, 8, 0) : r(r.g.send, r.comm, nullptr, a, 16, 1));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      while (r.how() == BP_OK) std::this_thread::yield();
      std::string why;
      CHECK(r.how(&why) == BP_INTERNAL && why.find("rank") != std::string::npos);
      CHECK(r(r.g.barrier, r.comm, nullptr) == BP_INTERNAL);
      r.leave();
    });
  }
}

void a_work_timeout_fails_all() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data(), 20 * kSecond, kSecond / 20));
    if (r.rank == 0) OK(r(r.g.barrier, r.comm, nullptr));
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    while (r.how() == BP_OK) std::this_thread::yield();
    CHECK(r.how() == BP_TIMEOUT);
    r.leave();
  });
}

void an_abort_ends_work_here_and_there() {
  std::atomic<int> waiting{0};
  in_threads(3, "", [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    bp_stream* stream = r.i.stream(r.device);
    if (r.rank != 2) {
      OK(r(r.g.barrier, r.comm, stream));
      CHECK(r.i.d->stream_query(r.i.self, r.device, stream) == BP_PENDING);
      CHECK(r(r.g.destroy, r.comm, 1000) == BP_TIMEOUT);
      ++waiting;
    }
    while (waiting != 2) std::this_thread::yield();
    if (r.rank == 0) OK(r(r.g.abort, r.comm));
    if (r.rank != 2) OK(r.i.d->stream_synchronize(r.i.self, r.device, stream, BP_NO_TIMEOUT));
    while (r.how() == BP_OK) std::this_thread::yield();
    CHECK(r.how() == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
    OK(r(r.g.abort, r.comm));
    r.leave();
  });
}

void closing_ends_pending_work() {
  std::atomic<bool> closed{false};
  in_threads(2, "", [&](Rank& r, const Id& id) {
    Instance other(get(bp_sim_get, "devices=1,memory=64MiB"));
    Rank mine(other, 0, r.rank, 2);
    OK(mine.join(id.data()));
    if (r.rank == 0) {
      OK(mine(mine.g.barrier, mine.comm, nullptr));
      other.close();
      closed = true;
    }
    while (!closed) std::this_thread::yield();
  });
}

/// Two messages between the same two in one group: the packets of the first all come before those of the second.
void messages_of_a_group_keep_their_order() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const uint64_t count = 2'000'000, a = r.i.alloc(count * 8, r.device), b = r.i.alloc(count * 8, r.device);
    std::vector<int32_t> in(count * 2);
    for (uint64_t at = 0; at < in.size(); ++at) in[at] = value(7, 0, 0, at);
    r.i.put(a, in.data(), in.size() * 4, r.device);
    OK(r(r.g.group_begin));
    for (uint64_t at : {uint64_t{0}, count * 4}) {
      OK(r(r.g.send, r.comm, nullptr, a + at, count * 4, 1 - r.rank));
      OK(r(r.g.recv, r.comm, nullptr, b + at, count * 4, 1 - r.rank));
    }
    OK(r(r.g.group_end));
    CHECK(std::memcmp(r.i.take(b, in.size() * 4, r.device).data(), in.data(), in.size() * 4) == 0);
    CHECK(r.how() == BP_OK);
    r.leave();
  });
}

void a_device_in_error_is_gone_for_the_others() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    if (r.rank == 1) {
      static std::atomic<bool> go;
      go = false;
      const auto exec = *find_group<bp_host_exec>(*r.i.d);
      const auto fails = [](void*) -> int32_t {
        while (!go) std::this_thread::yield();
        return BP_FAULT;
      };
      OK(exec.enqueue(exec.head.self, r.device, nullptr, fails, nullptr, nullptr));
      OK(r(r.g.barrier, r.comm, nullptr));
      go = true;
      CHECK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT) == BP_FAULT);
      CHECK(r.how() == BP_INTERNAL);
    } else {
      const int32_t status = r(r.g.barrier, r.comm, nullptr);
      CHECK(status == BP_OK || status == BP_INTERNAL);  // where the other one was first
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      CHECK(r.how() == BP_DEVICE_LOST);
    }
    r.leave();
  });
}

void a_rank_that_left_is_gone() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    if (r.rank == 0) {
      OK(r(r.g.barrier, r.comm, nullptr));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      CHECK(r.how() == BP_DEVICE_LOST);
    }
    r.leave();
  });
}

/// A child that a rank has forked keeps its descriptors, and yet the rank is gone with its process.
void a_child_of_a_killed_rank_is_no_rank() {
  in_processes(2, "", [](Rank& r, const Id& id, Shared& shared) {
    OK(r.join(id.data()));
    if (r.rank == 1) {
      if (fork() == 0) {
        while (shared.steps == 0) usleep(1000);
        _exit(0);
      }
      _exit(0);
    }
    OK(r(r.g.barrier, r.comm, nullptr));
    OK(r.i.d->synchronize(r.i.self, 0, BP_NO_TIMEOUT));
    CHECK(r.how() == BP_DEVICE_LOST);
    ++shared.steps;
  });
}

void parts_of_parts() {
  in_threads(4, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    for (int round = 0; round < 3; ++round) {  // more than the wishes that are kept
      Rank part(r.i, r.device, r.rank / 2, 2);
      const int32_t color = round == 2 && r.rank % 2 ? -1 : r.rank % 2;
      const bp_comm_config config = part.config(nullptr);
      OK(r(r.g.split, r.comm, color, color < 0 ? nullptr : &config, &part.comm));
      CHECK((part.comm == nullptr) == (color < 0));
      if (color < 0) continue;
      const int32_t mine = r.rank;
      const uint64_t a = r.i.alloc(4, r.device);
      r.i.put(a, &mine, 4, r.device);
      OK(part(part.g.all_reduce, part.comm, nullptr, a, a, 1, BP_DTYPE_INT32, BP_REDUCE_SUM));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      int32_t sum = 0;
      std::memcpy(&sum, r.i.take(a, 4, r.device).data(), 4);
      CHECK(sum == (r.rank % 2 ? 4 : 2));
      part.leave();
    }
    bp_comm_config wrong = r.config(nullptr);
    wrong.rank = 0;  // of all
    bp_comm* none = nullptr;
    CHECK(r(r.g.split, r.comm, 0, &wrong, &none) == BP_INVALID_ARGUMENT && none == nullptr);
    r.leave();
  });
}

void wrong_calls_are_refused() {
  in_threads(1, ",collective_ranks=2", [](Rank& r, const Id& id) {
    Id bytes(id.size(), 'x');
    CHECK(r.join(bytes.data()) == BP_INVALID_ARGUMENT);
    r.size = 3;
    CHECK(r.join(id.data()) == BP_UNSUPPORTED);
    r.size = 1;
    r.rank = 1;
    CHECK(r.join(id.data()) == BP_INVALID_ARGUMENT);
    r.rank = 0;
    OK(r.join(id.data()));
    const uint64_t a = r.i.alloc(64);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 4, BP_DTYPE_COMPLEX64, BP_REDUCE_MAX) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 4, BP_DTYPE_FLOAT32, BP_REDUCE_COUNT) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 17, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, UINT64_MAX / 2, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a + 2, a, 1, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.broadcast, r.comm, nullptr, a, a, 4, 1) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.send, r.comm, nullptr, a, 4, 0) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.group_end) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.abort, reinterpret_cast<bp_comm*>(&r)) == BP_INVALID_ARGUMENT);
    bp_comm_memory* memory = nullptr;
    CHECK(r(r.g.memory_register, r.comm, a, 64, &memory) == BP_UNSUPPORTED);
    OK(r(r.g.group_begin));
    OK(r(r.g.send, r.comm, nullptr, a, 4, 0));
    CHECK(r(r.g.recv, r.comm, r.i.stream(), a + 8, 4, 0) == BP_INVALID_ARGUMENT);  // another stream
    OK(r(r.g.recv, r.comm, nullptr, a + 8, 4, 0));
    OK(r(r.g.group_end));
    CHECK(r.how() == BP_OK);
    r.leave();
    CHECK(r(r.g.destroy, r.comm, 0) == BP_INVALID_ARGUMENT);
  });
  Instance off(get(bp_sim_get, "collective=off"));
  CHECK(!find_group<bp_collective>(*off.d));
}

// ---- shims

void fault_makes_a_communicator_fail() {
  Instance i(get(bp_fault_get, "collective=@2,device=0", sim(2, "")));
  in_threads(i, 2, [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const auto barrier = [&] { return r(r.g.barrier, r.comm, nullptr); };
    OK(barrier());
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    CHECK(r.how() == BP_OK || r.rank == 1);
    const int32_t second = barrier();
    CHECK(second == BP_OK || (second == BP_INTERNAL && r.rank == 1));
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    while (r.how() == BP_OK) std::this_thread::yield();
    std::string why;
    CHECK(r.how(&why) == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
    CHECK(r.rank == 1 || why == "a transfer between ranks failed (injected by fault.collective=@2)");
    CHECK(barrier() == BP_INTERNAL);
    r.leave();
    uint64_t address = 0;
    OK(r.i.d->alloc(r.i.self, r.device, 64, 0, &address));
  });
}

void fault_makes_work_hang_until_it_is_aborted() {
  for (const char* options : {"", ",stream=inline"}) {
    Instance i(get(bp_fault_get, "collective_hang=@1,device=0", sim(2, options)));
    const bool inline_ = *options != 0;
    in_threads(i, 2, [&](Rank& r, const Id& id) {
      OK(r.join(id.data()));
      bp_stream* stream = r.i.stream(r.device);
      std::thread later;
      const auto abort = [&] {
        usleep(20'000);
        OK(r(r.g.abort, r.comm));
      };
      if (r.rank == 0 && inline_) later = std::thread(abort);
      OK(r(r.g.barrier, r.comm, stream));
      if (r.rank == 0 && !inline_) {
        CHECK(r.i.d->stream_synchronize(r.i.self, r.device, stream, 5'000'000) == BP_TIMEOUT);
        CHECK(r.how() == BP_OK);
        CHECK(r(r.g.destroy, r.comm, 1000) == BP_TIMEOUT);
        later = std::thread(abort);
      }
      OK(r.i.d->stream_synchronize(r.i.self, r.device, stream, BP_NO_TIMEOUT));
      CHECK(r.how() == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
      if (later.joinable()) later.join();
      r.leave();
    });
  }
  // Closing ends it, too.
  Instance i(get(bp_fault_get, "collective_hang=@1", sim(1, "")));
  in_threads(i, 1, [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    OK(r(r.g.barrier, r.comm, nullptr));
  });
  i.close();
}

void fault_of_a_device_is_seen_by_the_peers() {
  Instance i(get(bp_fault_get, "kernel=@1,device=0", sim(2, "")));
  in_threads(i, 2, [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const int32_t status = r(r.g.barrier, r.comm, nullptr);
    CHECK(status == BP_OK || (status == BP_INTERNAL && r.rank == 1));
    CHECK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT) == (r.rank == 0 ? BP_FAULT : BP_OK));
    while (r.how() == BP_OK) std::this_thread::yield();
    CHECK(r.how() == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
    r.leave();
  });
}

void trace_tells_the_calls() {
  const std::string file = "/tmp/backplane-collective-trace-" + std::to_string(getpid());
  {
    Instance i(get(bp_trace_get, ("filter=bp.collective.*,file=" + file).c_str(), sim(1, "")));
    in_threads(i, 1, [](Rank& r, const Id& id) {
      OK(r.join(id.data()));
      const uint64_t a = r.i.alloc(64);
      OK(r(r.g.all_reduce, r.comm, nullptr, a, a, 3, BP_DTYPE_FLOAT32, BP_REDUCE_MAX));
      CHECK(r.how() == BP_OK);
      r.leave();
    });
  }
  std::string text;
  std::FILE* lines = std::fopen(file.c_str(), "r");
  for (int one = std::fgetc(lines); one != EOF; one = std::fgetc(lines)) text += static_cast<char>(one);
  std::fclose(lines);
  unlink(file.c_str());
  for (const char* part : {"bp.collective.create device=0 config={name=\"test\" rank=0 size=1 timeout_ns=20000000000} -> OK out=0x",
                           " stream=default out=0x", " count=3 dtype=0x100 op=4 -> OK", "-> OK out=0 text=\"\"", "id_bytes=128"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

/// Its own streams are none that the driver below could queue on, and under its lock ranks of one process would wait for each other.
void emulate_passes_it_where_it_can() {
  Instance whole(get(bp_emulate_get, "", sim(1, "")));
  CHECK(find_group<bp_collective>(*whole.d));
  static bp_driver serial;
  serial = *sim(1, "");
  serial.flags |= BP_DRIVER_SERIALIZE;
  Instance locked(get(bp_emulate_get, "", &serial));
  CHECK(!find_group<bp_collective>(*locked.d));
  static bp_driver bare;  // without streams and events, but with its groups
  bare = *sim(1, "");
  for (const Slot& slot : slots()) {
    void (*none)() = nullptr;
    if (slot.group == Group::streams || slot.group == Group::events) {
      std::memcpy(reinterpret_cast<char*>(&bare) + slot.offset, &none, sizeof none);
    }
  }
  Instance own_streams(get(bp_emulate_get, "", &bare));
  CHECK(find_group<bp_module>(*own_streams.d) && !find_group<bp_collective>(*own_streams.d));
}

int all(int argc, char** argv) {
  std::string only;
  uint32_t programs = 6, seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
    if (std::string(argv[i]) == "--programs") programs = static_cast<uint32_t>(std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--seed") seed = static_cast<uint32_t>(std::atoi(argv[i + 1]));
  }
  std::vector<std::pair<std::string, std::function<void()>>> cases;
  for (uint32_t i = seed; i < seed + programs; ++i) {
    // Processes first: a process with threads does not fork.
    cases.emplace_back("program in processes, seed " + std::to_string(i), [i] { a_program_in_processes(i); });
    cases.emplace_back("rank is killed, seed " + std::to_string(i), [i] { a_rank_is_killed(i); });
  }
#define CASE(name) cases.emplace_back(#name, name)
  CASE(a_child_of_a_killed_rank_is_no_rank);
  CASE(an_absent_rank_is_a_timeout);
  CASE(a_rank_that_is_taken_is_refused);
  CASE(another_size_is_refused);
  CASE(ranks_that_disagree_fail);
  CASE(a_work_timeout_fails_all);
  CASE(an_abort_ends_work_here_and_there);
  CASE(closing_ends_pending_work);
  CASE(messages_of_a_group_keep_their_order);
  CASE(a_device_in_error_is_gone_for_the_others);
  CASE(a_rank_that_left_is_gone);
  CASE(parts_of_parts);
  CASE(wrong_calls_are_refused);
  CASE(fault_makes_a_communicator_fail);
  CASE(fault_makes_work_hang_until_it_is_aborted);
  CASE(fault_of_a_device_is_seen_by_the_peers);
  CASE(trace_tells_the_calls);
  CASE(emulate_passes_it_where_it_can);
#undef CASE
  for (uint32_t i = seed; i < seed + programs; ++i) {
    cases.emplace_back("program in threads, seed " + std::to_string(i), [i] { a_program_in_threads(i); });
  }
  for (const auto& [name, body] : cases) {
    if (name.find(only) != std::string::npos) report(name, body);
  }
  return failures;
}

}  // namespace

int main(int argc, char** argv) { return all(argc, argv); }
