// check_driver/checks_collective_life.cpp: family "collective": how communicators are made, split and ended, and how they fail.
#include <dirent.h>
#include <string.h>

#include <chrono>
#include <set>
#include <thread>

#include "collective_team.h"
#include "process.h"

namespace backplane::check {
namespace collective_life_impl {

constexpr char split_rule[] = "A communicator of those ranks that pass the same color, 0 or more; with color -1 this rank joins none";
constexpr char abort_rule[] = "The communicator fails: queued work ends soon, here and on the peers that the driver can reach";
constexpr char fails_rule[] =
    "its queued work ends soon, with undefined contents in what it writes; the streams go on, the device stays usable";
constexpr char watches_rule[] = "It detects by itself that a peer's process has ended, or that the ranks' calls differ";
constexpr char timeout_rule[] = "errors: TIMEOUT: a rank did not join";
constexpr char destroy_rule[] = "errors: TIMEOUT: work is still running, the communicator still exists";
constexpr char invalid_rule[] =
    "a stream of another device, and memory that is not the device's as far as the driver can detect are INVALID_ARGUMENT";
constexpr char many_rule[] = "work of several communicators may wait for its peers on one device at once";

// An all_reduce of one number, or of a few.
int32_t sum(Member& m, bp_comm* comm, bp_stream* stream, uint64_t at, uint64_t count = 1) {
  return CALL_GROUP(m.g, all_reduce, comm, stream, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_SUM);
}
uint64_t upload_number(Member& m, float number) {
  std::vector<uint8_t> bytes(64);
  for (size_t at = 0; at < bytes.size(); at += 4) memcpy(bytes.data() + at, &number, 4);
  return m.upload(bytes);
}
float number_at(Member& m, uint64_t address) {
  float number = 0;
  memcpy(&number, m.download(address, 4).data(), 4);
  return number;
}

// The device of a failed communicator, and the instance, are as they were.
void still_usable(Member& m, bp_stream* stream) {
  m.c.expect(CALL(m.c, stream_synchronize, m.device, stream, 5 * second_ns), BP_OK, fails_rule);
  m.c.smoke(m.device, fails_rule);
  const uint64_t at = m.room(64);
  m.c.expect(sum(m, m.comm, stream, at), BP_INTERNAL, "A call on a failed communicator queues nothing and returns INTERNAL");
  m.destroy();
}

void split(Context& c) {
  in_ranks(c, 2, 4, BP_COLLECTIVE_SPLIT, [&](Member& m) {
    for (int round = 0; round < 3; ++round) {
      const int32_t colors = round == 0 ? 1 : 2, color = m.rank % colors;
      const int32_t size = (m.size - color + colors - 1) / colors;
      const bool joins = round < 2 || color == 0;
      const bp_comm_config config = m.config(size - 1 - m.rank / colors, size);  // the other way round
      bp_comm* piece = reinterpret_cast<bp_comm*>(&m);
      c.expect(CALL_GROUP(m.g, split, m.comm, joins ? color : -1, joins ? &config : nullptr, &piece), BP_OK, split_rule);
      c.require((piece == nullptr) == !joins, split_rule, "%s gave %s", traced_call(), piece ? "a communicator" : "NULL");
      if (!joins) continue;
      // By broadcast from the part's rank 0, which is the last of the whole.
      const uint64_t at = upload_number(m, static_cast<float>(m.rank));
      c.expect(CALL_GROUP(m.g, broadcast, piece, nullptr, at, at, 4, 0), BP_OK, split_rule);
      c.synchronize(m.device);
      const int32_t first = color + (size - 1) * colors;
      c.require(number_at(m, at) == static_cast<float>(first), split_rule, "rank 0 of the part of color %d is rank %g, not %d", color,
                static_cast<double>(number_at(m, at)), first);
      c.expect(CALL_GROUP(m.g, destroy, piece, 5 * second_ns), BP_OK, "Ends this rank of a communicator");
    }
    m.destroy();
  });
}

// Two communicators whose work is queued in another order on each rank, on streams of their own.
void many(Context& c) {
  in_ranks(c, 2, 2, BP_COLLECTIVE_CONCURRENT | BP_COLLECTIVE_SPLIT, [&](Member& m) {
    bp_stream* streams[2] = {c.stream(m.device), c.stream(m.device)};
    m.needs_pending_work(streams[0]);
    const bp_comm_config config = m.config(m.rank, m.size);
    bp_comm* second = nullptr;
    c.expect(CALL_GROUP(m.g, split, m.comm, 0, &config, &second), BP_OK, split_rule);
    bp_comm* comms[2] = {m.comm, second};
    const uint64_t at[2] = {upload_number(m, 1), upload_number(m, 10)};
    for (int i : {m.rank, 1 - m.rank}) {
      c.expect(sum(m, comms[i], streams[i], at[i]), BP_OK, many_rule);
      m.meet();  // the first is queued on both ranks, of two communicators
    }
    for (bp_stream* stream : streams) c.expect(CALL(c, stream_synchronize, m.device, stream, 5 * second_ns), BP_OK, many_rule);
    c.require(number_at(m, at[0]) == 2 && number_at(m, at[1]) == 20, many_rule, "the sums are %g and %g, not 2 and 20",
              static_cast<double>(number_at(m, at[0])), static_cast<double>(number_at(m, at[1])));
    c.expect(CALL_GROUP(m.g, destroy, second, 5 * second_ns), BP_OK, "Ends this rank of a communicator");
    m.destroy();
  });
}

void abort(Context& c) {
  in_ranks(c, 2, 2, BP_COLLECTIVE_ABORT, [&](Member& m) {
    bp_stream* stream = c.stream(m.device);
    m.needs_pending_work(stream);
    const uint64_t at = m.room(64);
    if (m.rank == 0) {
      c.expect(sum(m, m.comm, stream, at), BP_OK, abort_rule);
      c.expect(CALL(c, stream_query, m.device, stream), BP_PENDING, "Entries that queue return at once");
      int32_t status = BP_INTERNAL;
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(15));
        status = m.g.abort(m.g.head.self, m.comm);
      });
      const int32_t ended = CALL(c, stream_synchronize, m.device, stream, 2 * second_ns);
      other.join();
      c.expect(ended, BP_OK, abort_rule);
      c.require(status == BP_OK, abort_rule, "abort from another thread gave %s, expected BP_OK", status_text(status).c_str());
      c.require(m.state() == BP_INTERNAL, "INTERNAL: ranks disagree, or anything else, such as an abort here", "status is %s",
                status_text(m.state()).c_str());
      c.expect(CALL_GROUP(m.g, abort, m.comm), BP_OK, "Repeating: BP_OK");
      still_usable(m, stream);
      m.meet();
    } else {
      m.meet();
      if (m.has(BP_COLLECTIVE_WATCHES)) {
        c.require(m.failure() == BP_DEVICE_LOST, abort_rule, "status of the peer is %s", status_text(m.state()).c_str());
        still_usable(m, stream);
      }
    }
  });
}

// The process of a rank is killed while the others wait for it.
void lost_peer(Context& c) {
  in_ranks(c, 2, 3, BP_COLLECTIVE_WATCHES, [&](Member& m) {
    bp_stream* stream = c.stream(m.device);
    m.needs_pending_work(stream);
    const bool dies = m.rank == m.size - 1;
    const uint64_t at = m.room(64);
    if (!dies) c.expect(sum(m, m.comm, stream, at), BP_OK, watches_rule);
    m.meet();
    if (m.rank == 0) m.others.back()->kill_now();
    if (dies) std::this_thread::sleep_for(std::chrono::seconds(60));
    c.expect(CALL(c, stream_synchronize, m.device, stream, 2 * second_ns), BP_OK, watches_rule);
    const int32_t status = m.failure();
    c.require(status == BP_DEVICE_LOST, "DEVICE_LOST: a peer, or its device, is gone or has aborted", "status is %s",
              status_text(status).c_str());
    still_usable(m, stream);
    if (m.rank == 0) m.others.pop_back();
  });
}

void disagree(Context& c) {
  in_ranks(c, 2, 2, BP_COLLECTIVE_WATCHES, [&](Member& m) {
    bp_stream* stream = c.stream(m.device);
    const uint64_t at = m.room(64);
    const int32_t queued = sum(m, m.comm, stream, at, m.rank == 0 ? 4 : 8);
    c.expect_one_of(queued, {BP_OK, BP_INTERNAL}, watches_rule);  // INTERNAL where the other rank was first
    c.expect(CALL(c, stream_synchronize, m.device, stream, 2 * second_ns), BP_OK, watches_rule);
    std::string why;
    const int32_t status = m.failure();
    c.require(status == BP_INTERNAL, watches_rule, "ranks that call all_reduce with 4 and with 8 elements: status is %s",
              status_text(status).c_str());
    m.state(&why);
    c.require(!why.empty(), "`text` receives the reason", "status gives no text");
    still_usable(m, stream);
  });
}

// A rank that never comes.
void absent(Context& c) {
  in_ranks(c, 1, 1, 0, [&](Member& m) {
    std::vector<char> id(65536);
    c.expect(CALL_GROUP(m.g, make_id, m.device, id.data()), BP_OK, "Creates an id, id_bytes long");
    bp_comm_config config = m.config(0, 2);
    config.id = id.data();
    config.timeout_ns = 50'000'000;
    bp_comm* comm = reinterpret_cast<bp_comm*>(&m);
    const auto begin = std::chrono::steady_clock::now();
    c.expect(CALL_GROUP(m.g, create, m.device, &config, &comm), BP_TIMEOUT, timeout_rule);
    const auto took = std::chrono::steady_clock::now() - begin;
    c.require(comm == reinterpret_cast<bp_comm*>(&m), rules::errors, "%s failed and yet set *out", traced_call());
    c.require(took >= std::chrono::milliseconds(50), timeout_rule, "%s gave up too early", traced_call());
    m.destroy();
  });
}

void destroy(Context& c) {
  in_ranks(c, 2, 2, BP_COLLECTIVE_ABORT, [&](Member& m) {
    bp_stream* stream = c.stream(m.device);
    m.needs_pending_work(stream);
    const uint64_t at = m.room(64);
    if (m.rank == 0) {
      c.expect(sum(m, m.comm, stream, at), BP_OK, destroy_rule);
      c.expect(CALL_GROUP(m.g, destroy, m.comm, 1'000'000), BP_TIMEOUT, destroy_rule);
      c.require(m.state() == BP_OK, destroy_rule, "after it status is %s", status_text(m.state()).c_str());
      c.expect(CALL_GROUP(m.g, abort, m.comm), BP_OK, abort_rule);
      m.destroy();
    }
    m.meet();
    if (m.rank == 1) m.destroy();
  });
}

std::set<std::string> shared_names() {
  std::set<std::string> names;
  DIR* dir = opendir("/dev/shm");
  if (!dir) return names;
  while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
  closedir(dir);
  return names;
}

// Ids, communicators that never came to be, and those that did, leave nothing.
void leftovers(Context& c) {
  const char* rule = "Ends this rank of a communicator";
  const std::set<std::string> before = shared_names();
  in_ranks(c, 1, 2, 0, [&](Member& m) {
    m.meet();
    const int files = count_proc("fd");
    m.destroy();
    c.require(count_proc("fd") <= files, rule, "it left open files behind");
    m.meet();
  });
  for (const std::string& name : shared_names()) {
    c.require(before.count(name) == 1, rule, "it left /dev/shm/%s behind", name.c_str());
  }
}

void invalid(Context& c) {
  in_ranks(c, 1, 1, 0, [&](Member& m) {
    const uint64_t at = m.room(64), count = 4;
    const auto refused = [&](int32_t status) { c.expect(status, BP_INVALID_ARGUMENT, invalid_rule); };
    refused(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_COUNT));
    refused(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, at, at, count, BP_DTYPE_COMPLEX64, BP_REDUCE_MAX));
    refused(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, at, at, count, 0, BP_REDUCE_SUM));
    refused(CALL_GROUP(m.g, reduce, m.comm, nullptr, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_SUM, 1));
    refused(CALL_GROUP(m.g, broadcast, m.comm, nullptr, at, at, 8, -1));
    refused(CALL_GROUP(m.g, send, m.comm, nullptr, at, 8, 1));
    bp_comm_config config = m.config(0, 1);
    std::vector<char> id(65536);
    bp_comm* comm = reinterpret_cast<bp_comm*>(&m);
    const auto made = [&](int32_t status, const char* rule) {
      config.id = id.data();
      c.expect(CALL_GROUP(m.g, create, m.device, &config, &comm), status, rule);
      c.require(comm == reinterpret_cast<bp_comm*>(&m), rules::errors, "%s failed and yet set *out", traced_call());
      config = m.config(0, 1);
      c.expect(CALL_GROUP(m.g, make_id, m.device, id.data()), BP_OK, "Creates an id, id_bytes long");
    };
    c.expect(CALL_GROUP(m.g, make_id, m.device, id.data()), BP_OK, "Creates an id, id_bytes long");
    config.flags = 1u << 30;
    made(BP_INVALID_ARGUMENT, rules::flags);
    config.rank = 1;
    made(BP_INVALID_ARGUMENT, "a rank that is taken or out of range");
    c.expect(CALL_GROUP(m.g, create, c.devices(), &config, &comm), BP_INVALID_DEVICE, rules::no_such_device);
    m.finish();
    m.destroy();
  });
}

}  // namespace collective_life_impl

Checks collective_life_checks() {
  using namespace collective_life_impl;
  constexpr uint64_t ranks = needs_collective | starts_closed, streams = ranks | needs_streams;
  return {
      {"collective.split", "ranks of one color have a communicator", ranks, split},
      {"collective.many", "communicators do not wait for each other", streams, many},
      {"collective.abort", "an abort ends work, and no device", streams, abort},
      {"collective.lost_peer", "a rank that is gone is noticed", streams, lost_peer},
      {"collective.disagree", "ranks that disagree fail, with the reason", streams, disagree},
      {"collective.absent", "create gives up a rank that does not come", ranks, absent},
      {"collective.destroy", "destroy keeps its timeout", streams, destroy},
      {"collective.leftovers", "nothing is left behind", ranks, leftovers},
      {"collective.invalid", "wrong arguments are refused", ranks, invalid},
  };
}

}  // namespace backplane::check
