// check_driver/collective_team.cpp: processes that join a communicator, and what all checks of it share.
#include "collective_team.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "busy_stream.h"

namespace backplane::check {
namespace collective_team_impl {

constexpr char join_rule[] = "Joins as config->rank, with `device`. blocks: until all ranks have joined, or for timeout_ns";

struct Id {
  char bytes[65536];
};

void join_all(Member& m, const Id& id) {
  bp_comm_config config = m.config(m.rank, m.size);
  config.id = id.bytes;
  m.c.expect(CALL_GROUP(m.g, create, m.device, &config, &m.comm), BP_OK, join_rule);
  m.c.require(m.comm != nullptr, join_rule, "%s gave BP_OK and NULL", traced_call());
}

// Of a driver whose properties would spoil a later fork a child process asks.
bp_collective_properties asked_properties(Context& c, const bp_collective& g) {
  const char* rule = "What it supports on that device";
  const auto ask = [&] {
    auto properties = sized<bp_collective_properties>();
    c.expect(CALL_GROUP(g, properties, 0, &properties), BP_OK, rule);
    return properties;
  };
  if (!(c.table().flags & BP_DRIVER_COUNT_FORKS)) return ask();
  const OtherProcess other(c, rule, [&](const Channel& channel) { channel.send(ask()); });
  return other.channel().receive<bp_collective_properties>();
}

uint64_t whole(uint64_t bytes, uint64_t unit) { return (std::max<uint64_t>(bytes, 1) + unit - 1) / unit * unit; }

}  // namespace collective_team_impl

using namespace collective_team_impl;

bp_comm_config Member::config(int32_t of_rank, int32_t of_size) const {
  auto config = sized<bp_comm_config>();
  config.name = "check";
  config.timeout_ns = 5 * second_ns;
  config.work_timeout_ns = 5 * second_ns;
  config.rank = of_rank;
  config.size = of_size;
  return config;
}

int32_t Member::state(std::string* text) const {
  const char* rule = "*out: BP_OK, or how the communicator failed";
  char why[256] = "";
  int32_t status = -1;
  c.expect(CALL_GROUP(g, status, comm, &status, why, sizeof why), BP_OK, rule);
  if (text) *text = why;
  return status;
}

int32_t Member::failure() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int32_t status = state();
  while (status == BP_OK && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = state();
  }
  return status;
}

void Member::meet() const {
  if (to_first) {
    to_first->send(true);
    to_first->receive<bool>();
    return;
  }
  for (const auto& other : others) other->channel().receive<bool>();
  for (const auto& other : others) other->channel().send(true);
}

void Member::needs_pending_work(bp_stream* stream) const {
  if (rank == 0 && c.group<bp_host_exec>()) BusyStream(c, device, stream);
}

void Member::finish(bp_stream* stream) const {
  c.synchronize(device, stream);
  std::string why;
  const int32_t status = state(&why);
  c.require(status == BP_OK, "Entries that queue return at once and their work runs in stream order",
            "rank %d of %d: the communicator failed with %s: %s", rank, size, status_text(status).c_str(), why.c_str());
}

void Member::destroy() {
  c.expect(CALL_GROUP(g, destroy, comm, 5 * second_ns), BP_OK, "Ends this rank of a communicator");
  comm = nullptr;
}

uint64_t Member::upload(const std::vector<uint8_t>& bytes) const {
  HostBuffer host(whole(bytes.size(), c.unit(device)));
  std::copy(bytes.begin(), bytes.end(), host.data());
  const uint64_t address = c.alloc(device, host.size());
  c.upload(device, address, host.data(), host.size());
  return address;
}

std::vector<uint8_t> Member::download(uint64_t address, uint64_t bytes) const {
  HostBuffer host(whole(bytes, c.unit(device)));
  c.download(device, address, host.data(), host.size());
  return {host.data(), host.data() + bytes};
}

void Member::expect_bytes(uint64_t address, const std::vector<uint8_t>& want, const char* rule, const std::string& what) const {
  const std::vector<uint8_t> got = download(address, want.size());
  c.same(got.data(), want.data(), want.size(), rule, (what + ", on rank " + std::to_string(rank)).c_str());
}

void in_ranks(Context& c, int32_t least, int32_t most, uint32_t flags, const std::function<void(Member&)>& body, bool join) {
  const bp_collective g = *c.group<bp_collective>();
  if ((g.head.flags & flags) != flags) throw NotOffered{format("its flags lack 0x%x", flags & ~g.head.flags)};
  int32_t size = g.head.flags & BP_COLLECTIVE_SAME_DEVICE ? most : std::min(most, c.devices());
  const bp_collective_properties properties = asked_properties(c, g);
  if (properties.max_size > 0) size = std::min(size, properties.max_size);
  if (size < least) throw NotOffered{format("%d ranks, each with a device of its own, are not to be had", least)};
  Member first{c, g, 0, size, 0, nullptr, nullptr, {}};
  for (int32_t rank = 1; rank < size; ++rank) {
    first.others.push_back(std::make_unique<OtherProcess>(c, join_rule, [&, rank](const Channel& channel) {
      const auto id = std::make_unique<Id>(channel.receive<Id>());
      Member mine{c, g, rank, size, rank % c.devices(), nullptr, &channel, {}};
      if (join) join_all(mine, *id);
      body(mine);
      channel.send(true);
    }));
  }
  c.open();
  const auto id = std::make_unique<Id>();
  if (properties.id_bytes <= sizeof *id) c.expect(CALL_GROUP(g, make_id, 0, id->bytes), BP_OK, "Creates an id, id_bytes long");
  for (const auto& other : first.others) other->channel().send(*id);
  if (join) join_all(first, *id);
  body(first);
  for (const auto& other : first.others) other->channel().receive<bool>();
}

}  // namespace backplane::check
