// drivers/cuda/collective.cpp: see collective.h.
#include "collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "work.h"

namespace backplane::driver::cuda {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, "collective." + text); }

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

struct NcclDtype {
  uint64_t dtype;
  uint64_t bytes;  // of an element
  ncclDataType_t nccl;
};
constexpr NcclDtype kDtypes[] = {{BP_DTYPE_INT8, 1, ncclInt8},
                                 {BP_DTYPE_UINT8, 1, ncclUint8},
                                 {BP_DTYPE_BOOL, 1, ncclUint8},
                                 {BP_DTYPE_INT32, 4, ncclInt32},
                                 {BP_DTYPE_INT64, 8, ncclInt64},
                                 {BP_DTYPE_FLOAT16, 2, ncclFloat16},
                                 {BP_DTYPE_BFLOAT16, 2, ncclBfloat16},
                                 {BP_DTYPE_FLOAT32, 4, ncclFloat32},
                                 {BP_DTYPE_FLOAT64, 8, ncclFloat64},
                                 {BP_DTYPE_COMPLEX64, 8, ncclFloat32},
                                 {BP_DTYPE_COMPLEX128, 16, ncclFloat64},
                                 {BP_DTYPE_FLOAT8_E4M3, 1, ncclFloat8e4m3},
                                 {BP_DTYPE_FLOAT8_E5M2, 1, ncclFloat8e5m2}};

const NcclDtype* nccl_dtype(uint64_t dtype) {
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const NcclDtype& one) { return one.dtype == dtype; });
  return found == std::end(kDtypes) ? nullptr : found;
}

}  // namespace

std::optional<NcclReduction> nccl_reduction(int32_t op, uint64_t dtype, bool float8) {
  constexpr uint64_t kFloat8 = BP_DTYPE_FLOAT8_E4M3 | BP_DTYPE_FLOAT8_E5M2;
  constexpr uint64_t kComplex = BP_DTYPE_COMPLEX64 | BP_DTYPE_COMPLEX128;
  constexpr uint64_t kFloats = BP_DTYPE_FLOAT16 | BP_DTYPE_BFLOAT16 | BP_DTYPE_FLOAT32 | BP_DTYPE_FLOAT64 | kFloat8;
  const NcclDtype* known = nccl_dtype(dtype);
  if (!known || ((dtype & kFloat8) && !float8)) return std::nullopt;
  if (dtype == BP_DTYPE_BOOL) {  // bytes of 0 and 1
    const bool is_or = op == BP_REDUCE_SUM || op == BP_REDUCE_MAX || op == BP_REDUCE_BOR;
    if (is_or || op == BP_REDUCE_PRODUCT || op == BP_REDUCE_MIN || op == BP_REDUCE_BAND) {
      return NcclReduction{known->nccl, is_or ? ncclMax : ncclMin, 1};
    }
    return std::nullopt;
  }
  const uint64_t times = dtype & kComplex ? 2 : 1;
  switch (op) {
    case BP_REDUCE_SUM:
      return NcclReduction{known->nccl, ncclSum, times};
    case BP_REDUCE_AVG:  // of integers NCCL's rounding depends on its version
      if (dtype & (kFloats | kComplex)) return NcclReduction{known->nccl, ncclAvg, times};
      return std::nullopt;
    case BP_REDUCE_PRODUCT:
    case BP_REDUCE_MIN:
    case BP_REDUCE_MAX:
      if (dtype & kComplex) return std::nullopt;
      return NcclReduction{known->nccl, op == BP_REDUCE_PRODUCT ? ncclProd : op == BP_REDUCE_MIN ? ncclMin : ncclMax, 1};
    default:
      return std::nullopt;  // NCCL has no bit operations
  }
}

class Collectives::Entry {
 public:
  Entry(Collectives& all, const char* name, bp_comm* comm, bp_stream* stream)
      : all_(all), name_(name), comm_(all.find(comm, name)), stream_(stream), use_(all.gpus_, ordinal(*comm_)) {
    comm_->check();
    if (stream && !use_->device.knows(native(stream))) refuse(std::string(name) + ": the stream is not of the communicator's device");
    all.graphs_.check_stream("a call of bp.collective", native(stream));
  }

  Communicator& comm() const { return *comm_; }
  Gpu& gpu() const { return *use_; }
  int32_t size() const { return comm_->size(); }
  int32_t rank() const { return comm_->rank(); }
  void check_rank(const char* what, int32_t rank) const {
    if (rank < 0 || rank >= size()) refuse(format("%s: %s is %d, there are ranks 0 to %d", name_, what, rank, size() - 1));
  }
  /// The own rank meets itself in a group alone.
  void check_peer(int32_t peer) const {
    check_rank("peer", peer);
    if (peer == rank() && !all_.in_group()) refuse(format("%s: the own rank: in a group alone, which has both", name_));
  }
  uint64_t product(uint64_t a, uint64_t b) const {
    uint64_t all = 0;
    if (__builtin_mul_overflow(a, b, &all)) refuse(format("%s: the size overflows", name_));
    return all;
  }
  /// The size of a part for each rank.
  uint64_t of_all(uint64_t part) const { return product(part, static_cast<uint64_t>(size())); }
  void memory(uint64_t address, uint64_t bytes, uint64_t element = 1) const {
    if (address % element != 0) refuse(format("%s: an address is not aligned to its elements", name_));
    if (bytes && !address) refuse(format("%s: an address is 0", name_));
    use_->vmm->check(address, bytes, name_);
  }

  /// `call(comm, stream)` is a call of NCCL with so many bytes: into the thread's group, or on its own.
  template <class Call>
  void queue(const char* name, uint64_t bytes, Call&& call) {
    const auto made = [&](ncclComm_t comm) { return call(comm, native(stream_)); };
    if (Group* group = all_.in_group()) {
      Group::Part& part = part_of(*group);
      part.bytes += bytes;
      return part.calls.make(name, made);
    }
    const auto queued = [&] {
      Communicator::Calls(*comm_).make(name, made);
      comm_->settle(name);
    };
    if (all_.profile_.is_on()) {
      all_.profile_.across({record(*comm_, stream_, name_, bytes)}, queued);
    } else {
      queued();
    }
    comm_->queued_on(native(stream_));
  }
  const char* name() const { return name_; }

 private:
  static int32_t ordinal(const Communicator& comm) { return comm.gpu().device.ordinal(); }
  Group::Part& part_of(Group& group) {
    auto part = std::find_if(group.parts.begin(), group.parts.end(), [&](const Group::Part& one) { return one.comm == comm_; });
    if (part == group.parts.end()) part = group.parts.insert(part, {comm_, stream_, Communicator::Calls(*comm_), name_});
    if (part->stream != stream_) refuse("a group: the calls of one communicator name the same stream");
    return *part;
  }

  Collectives& all_;
  const char* const name_;
  const Owned comm_;
  bp_stream* const stream_;
  const Use use_;
};

/// A reduction's arguments as NCCL takes them.
struct Collectives::Reduced : NcclReduction {
  Reduced(const Collectives& all, const Entry& entry, uint64_t elements, uint64_t bp_dtype, int32_t bp_op) : NcclReduction{} {
    const auto found = nccl_reduction(bp_op, bp_dtype, all.reduces_float8(entry.gpu()));
    if (!found) refuse(format("%s: op %d does not take dtype 0x%llx", entry.name(), bp_op, wide(bp_dtype)));
    static_cast<NcclReduction&>(*this) = *found;
    element = nccl_dtype(bp_dtype)->bytes;
    bytes = entry.product(elements, element);
    count = elements * times;
  }
  void check(const Entry& entry, uint64_t address, uint64_t parts) const { entry.memory(address, entry.product(bytes, parts), element); }

  uint64_t element, bytes, count;
};

// ---- what there is

bool Collectives::load(const std::string& path, std::string& why) {
  std::call_once(loaded_, [&] {
    if (path == "off") {
      why_ = "the option nccl=off leaves NCCL out";
      return;
    }
    auto found = std::make_shared<const Nccl>(path);
    if (found->present) {
      nccl_ = std::move(found);
    } else {
      why_ = "no NCCL on this machine: pip install nvidia-nccl-cu12, or give the option nccl=<path>. Looked for: " + found->looked_for;
    }
  });
  why = why_;
  return nccl_ != nullptr;
}

uint32_t Collectives::flags() const { return BP_COLLECTIVE_ABORT | (nccl_->splits() ? BP_COLLECTIVE_SPLIT : 0); }

bool Collectives::reduces_float8(Gpu& gpu) const {  // which GPUs before Hopper do not
  return nccl_->reduces_float8() && gpu.device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9;
}

void Collectives::properties(int32_t device, bp_collective_properties* out) {
  out->id_bytes = sizeof(ncclUniqueId);
  const bool float8 = reduces_float8(gpus_.at(device));
  for (int32_t op = 0; op < BP_REDUCE_COUNT; ++op) {
    for (const NcclDtype& one : kDtypes) {
      if (nccl_reduction(op, one.dtype, float8)) out->reduces[op] |= one.dtype;
    }
  }
}

// ---- communicators

void Collectives::make_id(int32_t device, void* out) {
  const Use gpu(gpus_, device);
  if (!out) refuse("make_id: out must not be NULL");
  ncclUniqueId id;
  const ncclResult_t result = nccl_->ncclGetUniqueId(&id);
  if (result != ncclSuccess) throw Error(BP_INTERNAL, nccl_->text("ncclGetUniqueId", result));
  std::memcpy(out, &id, sizeof id);
}

void Collectives::check_config(const bp_comm_config* config, const char* call) {
  if (!config || config->struct_size < sizeof *config || !config->name || config->flags != 0) {
    refuse(std::string(call) + ": config, with its struct_size and name and without flags, is needed");
  }
  if (config->size < 1 || config->rank < 0 || config->rank >= config->size) {
    refuse(format("%s: rank %d of %d is out of range", call, config->rank, config->size));
  }
}

void Collectives::create(int32_t device, const bp_comm_config* config, bp_comm** out) {
  const Use gpu(gpus_, device);
  check_config(config, "create");
  if (!config->id || !out) refuse("create: the id and out must not be NULL");
  if (in_group()) refuse("create: a group is open on this thread; ranks of one process join from a thread each");
  add(Communicator::join(*gpu, nccl_, *config), out);
}

void Collectives::split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
  if (!nccl_->splits()) throw Error(BP_UNSUPPORTED, "collective.split: NCCL has it from version 2.18 on");
  const Entry entry(*this, "split", comm, nullptr);
  if (color < -1 || !out) refuse("split: color is -1 or more, out must not be NULL");
  if (color >= 0) check_config(config, "split");
  Owned part = entry.comm().split(color, config);
  if (part) {
    add(std::move(part), out);
  } else {
    *out = nullptr;
  }
}

int32_t Collectives::destroy(bp_comm* comm, uint64_t timeout_ns) {
  const Owned gone = find(comm, "destroy");
  const Release gpu(gpus_, gone->gpu().device.ordinal());
  if (!gone->finish(timeout_ns)) throw Error(BP_TIMEOUT, "collective.destroy: the communicator's work is not complete");
  const std::lock_guard lock(mutex_);
  comms_.erase(comm);
  return BP_OK;
}

void Collectives::status(bp_comm* comm, int32_t* out, char* text, uint64_t size) {
  if (!out || (size && !text)) refuse("status: out, and text of a size, must not be NULL");
  std::string why;
  *out = find(comm, "status")->status(&why);
  if (size) std::snprintf(text, size, "%s", why.c_str());
}

void Collectives::end_all() noexcept {
  std::map<bp_comm*, Owned> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(comms_);
  }
  for (auto& [handle, comm] : left) comm->abort();
  constexpr uint64_t kEndTimeout = 5'000'000'000;
  for (auto& [handle, comm] : left) {
    const Current current(comm->gpu().cuda, comm->gpu().device.context_if_any());
    comm->finish(kEndTimeout);
  }
}

Collectives::Owned Collectives::find(bp_comm* comm, const char* call) const {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(comm);
  if (found == comms_.end()) refuse(std::string(call) + ": no live communicator of this driver");
  return found->second;
}

void Collectives::add(Owned comm, bp_comm** out) {
  const std::lock_guard lock(mutex_);
  bp_comm* handle = reinterpret_cast<bp_comm*>(comm.get());
  comms_.emplace(handle, std::move(comm));
  *out = handle;
}

// ---- groups

Collectives::Group* Collectives::in_group() {
  if (open_groups_.load() == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(std::this_thread::get_id());
  return found == groups_.end() ? nullptr : &found->second;
}

void Collectives::group_begin() {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[std::this_thread::get_id()];
  if (group.depth++ != 0) return;
  open_groups_.fetch_add(1);
  nccl_->ncclGroupStart();
}

void Collectives::group_end() {
  Group* open = in_group();
  if (!open) refuse("group_end: no group was begun on this thread");
  if (--open->depth != 0) return;
  std::vector<Group::Part> taken = std::move(open->parts);
  {
    const std::lock_guard lock(mutex_);
    groups_.erase(std::this_thread::get_id());
    open_groups_.fetch_sub(1);
  }
  std::vector<EventProfile<>::Part> records;
  std::vector<std::pair<Owned, bp_stream*>> parts;
  for (const Group::Part& part : taken) {
    if (profile_.is_on()) records.push_back(record(*part.comm, part.stream, part.name, part.bytes));
    parts.emplace_back(part.comm, part.stream);
  }
  profile_.across(records, [&] {
    const ncclResult_t result = nccl_->ncclGroupEnd();
    const std::string why = result == ncclSuccess || result == ncclInProgress ? "" : nccl_->text("ncclGroupEnd", result);
    taken.clear();  // NCCL has them: they may be ended
    if (!why.empty()) {
      for (const auto& [comm, stream] : parts) Use(gpus_, comm->gpu().device.ordinal());  // the device's own error comes first
      throw Error(BP_INTERNAL, why);
    }
    for (const auto& [comm, stream] : parts) {
      const Use gpu(gpus_, comm->gpu().device.ordinal());
      comm->settle("ncclGroupEnd");
      comm->queued_on(native(stream));
    }
  });
}

EventProfile<>::Part Collectives::record(const Communicator& comm, bp_stream* stream, const char* name, uint64_t bytes) {
  return {EventProfile<>::work(BP_ACTIVITY_COLLECTIVE, comm.gpu().device.ordinal(), bytes), stream, name};
}

// ---- what queues

void Collectives::all_reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op) {
  Entry entry(*this, "all_reduce", comm, stream);
  const Reduced reduced(*this, entry, count, dtype, op);
  reduced.check(entry, in, 1);
  reduced.check(entry, out, 1);
  entry.queue("ncclAllReduce", reduced.bytes, [&](ncclComm_t of, CUstream on) {
    return nccl_->ncclAllReduce(pointer(in), pointer(out), reduced.count, reduced.dtype, reduced.op, of, on);
  });
}

void Collectives::reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op,
                         int32_t root) {
  Entry entry(*this, "reduce", comm, stream);
  const Reduced reduced(*this, entry, count, dtype, op);
  entry.check_rank("root", root);
  reduced.check(entry, in, 1);
  if (root == entry.rank()) reduced.check(entry, out, 1);
  entry.queue("ncclReduce", reduced.bytes, [&](ncclComm_t of, CUstream on) {
    return nccl_->ncclReduce(pointer(in), pointer(out), reduced.count, reduced.dtype, reduced.op, root, of, on);
  });
}

void Collectives::reduce_scatter(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op) {
  Entry entry(*this, "reduce_scatter", comm, stream);
  const Reduced reduced(*this, entry, count, dtype, op);
  reduced.check(entry, in, static_cast<uint64_t>(entry.size()));
  reduced.check(entry, out, 1);
  entry.queue("ncclReduceScatter", reduced.bytes, [&](ncclComm_t of, CUstream on) {
    return nccl_->ncclReduceScatter(pointer(in), pointer(out), reduced.count, reduced.dtype, reduced.op, of, on);
  });
}

// What only moves goes as bytes.

void Collectives::broadcast(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root) {
  Entry entry(*this, "broadcast", comm, stream);
  entry.check_rank("root", root);
  if (root == entry.rank()) entry.memory(in, bytes);
  entry.memory(out, bytes);
  entry.queue("ncclBroadcast", bytes,
              [&](ncclComm_t of, CUstream on) { return nccl_->ncclBroadcast(pointer(in), pointer(out), bytes, ncclUint8, root, of, on); });
}

void Collectives::all_gather(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes) {
  Entry entry(*this, "all_gather", comm, stream);
  entry.memory(in, bytes);
  entry.memory(out, entry.of_all(bytes));
  entry.queue("ncclAllGather", bytes,
              [&](ncclComm_t of, CUstream on) { return nccl_->ncclAllGather(pointer(in), pointer(out), bytes, ncclUint8, of, on); });
}

void Collectives::send(bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer) {
  Entry entry(*this, "send", comm, stream);
  entry.check_peer(peer);
  entry.memory(in, bytes);
  entry.queue("ncclSend", bytes, [&](ncclComm_t of, CUstream on) { return nccl_->ncclSend(pointer(in), bytes, ncclUint8, peer, of, on); });
}

void Collectives::recv(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer) {
  Entry entry(*this, "recv", comm, stream);
  entry.check_peer(peer);
  entry.memory(out, bytes);
  entry.queue("ncclRecv", bytes, [&](ncclComm_t of, CUstream on) { return nccl_->ncclRecv(pointer(out), bytes, ncclUint8, peer, of, on); });
}

void Collectives::unsupported(const char* call) { throw Error(BP_UNSUPPORTED, format("collective.%s: NCCL has none", call)); }

}  // namespace backplane::driver::cuda
