// check_driver/checks_collective.cpp: family "collective": what each call puts where, by value, in ranks that are processes.
#include <string.h>

#include "busy_stream.h"
#include "collective_team.h"
#include "collective_values.h"

namespace backplane::check {

Checks collective_life_checks();  // checks_collective_life.cpp

namespace collective_impl {

using Bytes = std::vector<uint8_t>;

constexpr char properties_rule[] = "What it supports on that device (struct_size set by the caller). The same each time";
constexpr char reduce_rule[] = "out[i] of every rank = op over all ranks' in[i]";
constexpr char root_rule[] = "The same on rank root only; elsewhere out is ignored";
constexpr char scatter_rule[] = "in: size * count elements; out: the `count` of them that begin at rank * count, reduced";
constexpr char broadcast_rule[] = "out of every rank, including root, = in of root; elsewhere in is ignored";
constexpr char gather_rule[] = "out: size * bytes, the ranks' `in` in the order of ranks; each is `bytes` long";
constexpr char pair_rule[] = "A send matches the peer's recv of the same number of bytes; between two ranks the n-th matches the n-th";
constexpr char group_rule[] = "are queued at group_end, as one: sends and receives in it never wait for each other";
constexpr char all_to_all_rule[] = "The part of `in` at r * bytes goes to rank r, whose `out` has it at the sender's rank * bytes";
constexpr char optional_rule[] = "An entry that head.flags do not name exists and returns UNSUPPORTED";
constexpr char order_rule[] = "Entries that queue return at once and their work runs in stream order";
constexpr char barrier_rule[] = "Later work of the stream begins when the streams of all ranks have reached this call";

// Bytes that depend on the rank and the place.
Bytes pattern(int32_t rank, uint64_t bytes, uint32_t seed = 0) {
  Bytes all(bytes);
  for (uint64_t i = 0; i < bytes; ++i) all[i] = static_cast<uint8_t>(i * 7 + i / 251 + static_cast<uint64_t>(rank) * 41 + seed * 17 + 1);
  return all;
}
void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }
Bytes part(const Bytes& of, uint64_t number, uint64_t bytes) {
  return {of.begin() + static_cast<ptrdiff_t>(number * bytes), of.begin() + static_cast<ptrdiff_t>((number + 1) * bytes)};
}
Bytes gathered(int32_t size, uint64_t bytes, uint32_t seed = 0) {
  Bytes all;
  for (int32_t rank = 0; rank < size; ++rank) append(all, pattern(rank, bytes, seed));
  return all;
}
// What a rank sends to all of them; each gets gathered() with its own number.
Bytes parts_for(int32_t size, uint64_t bytes, int32_t rank) {
  Bytes all;
  for (int32_t to = 0; to < size; ++to) append(all, pattern(rank, bytes, static_cast<uint32_t>(to)));
  return all;
}
// Nothing, elements that are no round number, more than a driver moves at once.
constexpr uint64_t sizes[] = {0, 4, 1003 * 4, 1'500'004};

void properties(Context& c) {
  const bp_collective g = *c.group<bp_collective>();
  bp_collective_properties first{}, second{};
  first.struct_size = second.struct_size = sizeof first;
  c.expect(CALL_GROUP(g, properties, 0, &first), BP_OK, properties_rule);
  c.require(first.id_bytes >= 1 && first.id_bytes <= 65536, "of an id, 1 to 65536", "id_bytes is %llu", wide(first.id_bytes));
  c.require(first.reduces[BP_REDUCE_SUM] & BP_DTYPE_FLOAT32, "FLOAT32 by SUM is required", "reduces[SUM] is without it");
  c.require(!((first.reduces[BP_REDUCE_MIN] | first.reduces[BP_REDUCE_MAX]) & (BP_DTYPE_COMPLEX64 | BP_DTYPE_COMPLEX128)),
            "Complex numbers have no MIN and MAX", "reduces[MIN] or reduces[MAX] has complex numbers");
  c.open();
  c.expect(CALL_GROUP(g, properties, 0, &second), BP_OK, properties_rule);
  c.require(memcmp(&first, &second, sizeof first) == 0, properties_rule, "it differs after open");
  first.struct_size = sizeof(uint64_t) * 2;
  first.reduces[0] = 77;
  c.expect(CALL_GROUP(g, properties, 0, &first), BP_OK, properties_rule);
  c.require(first.reduces[0] == 77, "the callee writes no byte beyond it", "%s wrote beyond struct_size", traced_call());
  c.expect(CALL_GROUP(g, properties, c.devices(), &second), BP_INVALID_DEVICE, rules::no_such_device);
}

// Elements of one rank, and what they give.
Bytes elements(int32_t op, int dtype, int32_t size, int32_t rank, uint64_t count) {
  Bytes all(count * bytes_of_dtype(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    encode(dtype, op, rank < 0 ? reduced_result(op, dtype, size, i) : reduced_value(op, dtype, size, rank, i),
           all.data() + i * bytes_of_dtype(dtype));
  }
  return all;
}

// Calls body(op, dtype) for each pair that the driver takes.
template <class Body>
void each_reduction(Member& m, Body body) {
  auto properties = sized<bp_collective_properties>();
  m.c.expect(CALL_GROUP(m.g, properties, m.device, &properties), BP_OK, properties_rule);
  for (int32_t op = 0; op < BP_REDUCE_COUNT; ++op) {
    for (int dtype = 0; dtype < 14; ++dtype) {
      if (properties.reduces[op] >> dtype & 1) body(op, dtype);
    }
  }
}
std::string text_of(const char* call, int32_t op, int dtype) {
  return std::string(call) + " by " + name_of_op(op) + " of " + name_of_dtype(dtype);
}

void reductions(Context& c) {
  in_ranks(c, 1, 4, 0, [&](Member& m) {
    each_reduction(m, [&](int32_t op, int dtype) {
      const uint64_t count = 1003;
      const Bytes in = elements(op, dtype, m.size, m.rank, count), want = elements(op, dtype, m.size, -1, count);
      const uint64_t from = m.upload(in), to = m.room(in.size());
      c.expect(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, to, from, count, 1ull << dtype, op), BP_OK, reduce_rule);
      m.finish();
      m.expect_bytes(to, want, reduce_rule, text_of("all_reduce", op, dtype));
      m.expect_bytes(from, in, reduce_rule, "the input of all_reduce");
      c.expect(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, from, from, count, 1ull << dtype, op), BP_OK, reduce_rule);
      m.finish();
      m.expect_bytes(from, want, reduce_rule, text_of("all_reduce in place", op, dtype));
      c.free(m.device, from);
      c.free(m.device, to);
    });
    for (const uint64_t bytes : sizes) {  // FLOAT32 by SUM
      const Bytes want = elements(BP_REDUCE_SUM, 8, m.size, -1, bytes / 4);
      const uint64_t at = m.upload(elements(BP_REDUCE_SUM, 8, m.size, m.rank, bytes / 4));
      c.expect(CALL_GROUP(m.g, all_reduce, m.comm, nullptr, at, at, bytes / 4, BP_DTYPE_FLOAT32, BP_REDUCE_SUM), BP_OK, reduce_rule);
      m.finish();
      m.expect_bytes(at, want, reduce_rule, "all_reduce of " + std::to_string(bytes) + " bytes");
      c.free(m.device, at);
    }
    m.destroy();
  });
}

void roots(Context& c) {
  in_ranks(c, 1, 3, 0, [&](Member& m) {
    each_reduction(m, [&](int32_t op, int dtype) {
      const uint64_t count = 129, element = bytes_of_dtype(dtype);
      const Bytes in = elements(op, dtype, m.size, m.rank, count * static_cast<uint64_t>(m.size));
      const Bytes want = elements(op, dtype, m.size, -1, count * static_cast<uint64_t>(m.size));
      const int32_t root = (op + dtype) % m.size;
      const uint64_t from = m.upload(in), to = m.rank == root ? m.room(count * element) : 0;
      c.expect(CALL_GROUP(m.g, reduce, m.comm, nullptr, to, from, count, 1ull << dtype, op, root), BP_OK, root_rule);
      m.finish();
      if (m.rank == root) m.expect_bytes(to, part(want, 0, count * element), root_rule, text_of("reduce", op, dtype));
      // In place, and so that the input is the next call's.
      const uint64_t own = from + static_cast<uint64_t>(m.rank) * count * element;
      c.expect(CALL_GROUP(m.g, reduce_scatter, m.comm, nullptr, own, from, count, 1ull << dtype, op), BP_OK, scatter_rule);
      m.finish();
      const Bytes all = m.download(from, in.size());
      c.same(all.data() + static_cast<uint64_t>(m.rank) * count * element, want.data() + static_cast<uint64_t>(m.rank) * count * element,
             count * element, scatter_rule, text_of("reduce_scatter in place", op, dtype).c_str());
      c.free(m.device, from);
      if (to) c.free(m.device, to);
    });
    m.destroy();
  });
}

void moves(Context& c) {
  in_ranks(c, 1, 3, 0, [&](Member& m) {
    for (const uint64_t bytes : sizes) {
      for (int32_t root = 0; root < m.size; ++root) {
        const bool mine = root == m.rank;
        const uint64_t from = mine ? m.upload(pattern(root, bytes)) : 0, to = m.room(bytes);
        c.expect(CALL_GROUP(m.g, broadcast, m.comm, nullptr, to, from, bytes, root), BP_OK, broadcast_rule);
        m.finish();
        m.expect_bytes(to, pattern(root, bytes), broadcast_rule, "broadcast of " + std::to_string(bytes) + " bytes");
        c.expect(CALL_GROUP(m.g, broadcast, m.comm, nullptr, to, to, bytes, root), BP_OK, broadcast_rule);  // in place
        m.finish();
        m.expect_bytes(to, pattern(root, bytes), broadcast_rule, "broadcast in place");
        if (mine) c.free(m.device, from);
        c.free(m.device, to);
      }
      const uint64_t from = m.upload(pattern(m.rank, bytes)), to = m.room(bytes * static_cast<uint64_t>(m.size));
      c.expect(CALL_GROUP(m.g, all_gather, m.comm, nullptr, to, from, bytes), BP_OK, gather_rule);
      m.finish();
      m.expect_bytes(to, gathered(m.size, bytes), gather_rule, "all_gather of " + std::to_string(bytes) + " bytes");
      const uint64_t own = to + static_cast<uint64_t>(m.rank) * bytes;
      c.expect(CALL_GROUP(m.g, all_gather, m.comm, nullptr, to, own, bytes), BP_OK, gather_rule);
      m.finish();
      m.expect_bytes(to, gathered(m.size, bytes), gather_rule, "all_gather in place");
      c.free(m.device, from);
      c.free(m.device, to);
    }
    m.destroy();
  });
}

// Sends and receives one by one, and all of them at once, also to the own rank.
void pairs(Context& c) {
  in_ranks(c, 2, 3, 0, [&](Member& m) {
    for (const uint64_t bytes : sizes) {
      const uint64_t from = m.upload(pattern(m.rank, bytes)), to = m.room(bytes);
      const int32_t next = (m.rank + 1) % m.size, before = (m.rank + m.size - 1) % m.size;
      const auto send = [&] { c.expect(CALL_GROUP(m.g, send, m.comm, nullptr, from, bytes, next), BP_OK, pair_rule); };
      const auto receive = [&] { c.expect(CALL_GROUP(m.g, recv, m.comm, nullptr, to, bytes, before), BP_OK, pair_rule); };
      m.rank == 0 ? send() : receive();
      m.rank == 0 ? receive() : send();
      m.finish();
      m.expect_bytes(to, pattern(before, bytes), pair_rule, "recv of " + std::to_string(bytes) + " bytes");
      c.free(m.device, from);
      c.free(m.device, to);
    }
    m.destroy();
  });
}

void groups(Context& c) {
  in_ranks(c, 1, 3, 0, [&](Member& m) {
    const uint64_t half = 350'000, bytes = 2 * half;
    const auto n = static_cast<uint64_t>(m.size);
    const Bytes in = parts_for(m.size, bytes, m.rank), want = gathered(m.size, bytes, static_cast<uint32_t>(m.rank));
    const uint64_t from = m.upload(in), to = m.room(in.size());
    c.expect(CALL_GROUP(m.g, group_begin), BP_OK, group_rule);
    c.expect(CALL_GROUP(m.g, group_begin), BP_OK, group_rule);  // nests
    // All sends first, two to each rank.
    for (uint64_t at = 0; at < 2 * n * half; at += half) {
      c.expect(CALL_GROUP(m.g, send, m.comm, nullptr, from + at, half, static_cast<int32_t>(at / bytes)), BP_OK, group_rule);
    }
    c.expect(CALL_GROUP(m.g, group_end), BP_OK, group_rule);
    for (uint64_t at = 0; at < 2 * n * half; at += half) {
      c.expect(CALL_GROUP(m.g, recv, m.comm, nullptr, to + at, half, static_cast<int32_t>(at / bytes)), BP_OK, group_rule);
    }
    c.expect(CALL_GROUP(m.g, group_end), BP_OK, group_rule);
    m.finish();
    m.expect_bytes(to, want, group_rule, "sends and receives in a group");
    c.expect(CALL_GROUP(m.g, group_end), BP_INVALID_ARGUMENT, "errors of group_end: INVALID_ARGUMENT: no group was begun");
    m.destroy();
  });
}

// The optional entries do what they are to do, or say that they do not.
void optional(Context& c) {
  in_ranks(c, 1, 3, 0, [&](Member& m) {
    const uint64_t bytes = 300'000;
    const auto n = static_cast<uint64_t>(m.size), me = static_cast<uint64_t>(m.rank);
    const Bytes in = parts_for(m.size, bytes, m.rank), want = gathered(m.size, bytes, static_cast<uint32_t>(m.rank));
    const uint64_t from = m.upload(in), to = m.room(in.size());
    const auto done = [&](uint32_t flag, int32_t status) {
      c.expect(status, m.has(flag) ? BP_OK : BP_UNSUPPORTED, optional_rule);
      if (m.has(flag)) m.finish();
      return m.has(flag);
    };
    if (done(BP_COLLECTIVE_ALL_TO_ALL, CALL_GROUP(m.g, all_to_all, m.comm, nullptr, to, from, bytes))) {
      m.expect_bytes(to, want, all_to_all_rule, "all_to_all");
    }
    // Rank r sends r + s + 1 thousand bytes to rank s; every part lies where all_to_all's would.
    std::vector<uint64_t> many, at;
    for (uint64_t rank = 0; rank < n; ++rank) {
      many.push_back((me + rank + 1) * 1000);
      at.push_back(rank * bytes);
    }
    c.free(m.device, to);
    const uint64_t other = m.room(in.size());
    if (done(BP_COLLECTIVE_ALL_TO_ALL_V,
             CALL_GROUP(m.g, all_to_all_v, m.comm, nullptr, other, many.data(), at.data(), from, many.data(), at.data()))) {
      Bytes cut(in.size(), 0xcc);
      for (uint64_t rank = 0; rank < n; ++rank) memcpy(cut.data() + at[rank], want.data() + at[rank], many[rank]);
      m.expect_bytes(other, cut, "in_bytes[r] at in + in_at[r] go to rank r, out_bytes[r] from it to out + out_at[r]", "all_to_all_v");
    }
    const int32_t root = m.size - 1;
    const bool mine = m.rank == root;
    if (done(BP_COLLECTIVE_GATHER, CALL_GROUP(m.g, gather, m.comm, nullptr, mine ? other : 0, from, bytes, root)) && mine) {
      m.expect_bytes(other, gathered(m.size, bytes), "As all_gather on rank root only; elsewhere out is ignored", "gather");
    }
    const uint64_t piece = m.room(bytes);
    if (done(BP_COLLECTIVE_GATHER, CALL_GROUP(m.g, scatter, m.comm, nullptr, piece, mine ? from : 0, bytes, root))) {
      m.expect_bytes(piece, pattern(root, bytes, static_cast<uint32_t>(m.rank)),
                     "in of root: size * bytes, whose part at r * bytes is the `out` of rank r", "scatter");
    }
    done(BP_COLLECTIVE_BARRIER, CALL_GROUP(m.g, barrier, m.comm, nullptr));
    m.destroy();
  });
}

// A collective waits for what was queued before it, and what comes after it waits for it, also on a second stream by the communicator.
void order(Context& c) {
  in_ranks(c, 2, 2, 0, [&](Member& m) {
    const uint64_t bytes = c.some_bytes(m.device), count = bytes / 4;
    bp_stream* stream = c.stream(m.device);
    const Bytes in = elements(BP_REDUCE_SUM, 8, m.size, m.rank, count), want = elements(BP_REDUCE_SUM, 8, m.size, -1, count);
    uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
    memcpy(sent, in.data(), in.size());
    const uint64_t at = m.room(bytes);
    const auto queue = [&] {
      c.expect(CALL(c, copy_async, m.device, stream, at, m.device, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK,
               rules::copy_async);
      c.expect(CALL_GROUP(m.g, all_reduce, m.comm, stream, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_SUM), BP_OK, order_rule);
      c.expect(CALL(c, copy_async, m.device, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, at, m.device, bytes, 0u), BP_OK,
               rules::copy_async);
    };
    if (m.rank == 0) {
      BusyStream hold(c, m.device, stream);
      queue();
      stays_pending(c, hold, order_rule, [&] { return CALL(c, stream_query, m.device, stream); });
      hold.release();
    } else {
      queue();
    }
    m.finish(stream);
    c.same(back, want.data(), want.size(), order_rule, "copy, all_reduce, copy on one stream");
    m.destroy();
  });
}

// Until the last rank comes, no rank's stream goes on.
void barrier(Context& c) {
  in_ranks(c, 2, 3, BP_COLLECTIVE_BARRIER, [&](Member& m) {
    const bool last = m.rank == m.size - 1;
    bp_stream* stream = c.stream(m.device);
    m.needs_pending_work(stream);
    if (!last) c.expect(CALL_GROUP(m.g, barrier, m.comm, stream), BP_OK, barrier_rule);
    if (!last) c.expect(CALL(c, stream_query, m.device, stream), BP_PENDING, barrier_rule);
    m.meet();
    if (!last) c.expect(CALL(c, stream_synchronize, m.device, stream, 20'000'000), BP_TIMEOUT, barrier_rule);
    m.meet();
    if (last) c.expect(CALL_GROUP(m.g, barrier, m.comm, stream), BP_OK, barrier_rule);
    m.finish(stream);
    m.destroy();
  });
}

}  // namespace collective_impl

Checks collective_checks() {
  using namespace collective_impl;
  constexpr uint64_t ranks = needs_collective | starts_closed;
  Checks all = {
      {"collective.properties", "what is reduced, and how long an id is", ranks, properties},
      {"collective.reductions", "all_reduce by value: each op, each dtype", ranks, reductions},
      {"collective.roots", "reduce and reduce_scatter by value", ranks, roots},
      {"collective.moves", "broadcast and all_gather by value", ranks, moves},
      {"collective.pairs", "send meets recv", ranks, pairs},
      {"collective.groups", "sends of a group do not wait for each other", ranks, groups},
      {"collective.optional", "optional entries work, or are UNSUPPORTED", ranks, optional},
      {"collective.order", "collectives keep the stream's order", ranks | needs_streams | needs_pinned, order},
      {"collective.barrier", "streams wait for the last rank", ranks | needs_streams, barrier},
  };
  for (const Check& check : collective_life_checks()) all.push_back(check);
  return all;
}

}  // namespace backplane::check
