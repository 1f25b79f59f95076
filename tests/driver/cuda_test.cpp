// tests/driver/cuda_test.cpp: what check-driver does not hold of the CUDA driver: its options, CUDA's errors one by one, sharing a context
// with others, and which calls an entry makes. cuda_test DRIVER FAKE entries|modules|graphs; prints a line for each case.
#include "cuda_test.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "report.h"

namespace {

void options() {
  const auto refused = [&](const std::string& config, const char* why) {
    CHECK(get(entry(), config.c_str()) == nullptr);
    HAS(refusal, why);
  };
  refused("color=green", "unknown option 'color'; known: libcuda=<path>, nvrtc=<path>, nccl=<path>|off, memory=device|managed");
  refused("memory=host", "memory=host: device|managed is needed");
  refused("libcuda=/no/such/libcuda.so.1", "libcuda=/no/such/libcuda.so.1");
  refused("libcuda=libc.so.6", "it has no cuInit");
}

// A machine without a GPU has no devices, and no more.
void no_gpu() {
  for (const int result : {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY}) {
    fake().fail("cuInit", result, 0, -1);
    const bp_driver* driver = get(entry(), over_the_fake().c_str());
    CHECK(driver);
    int32_t count = 7;
    OK(driver->device_count(driver->self, &count));
    CHECK(count == 0);
    uint64_t address = 0;
    CHECK(driver->alloc(driver->self, 0, 8, 0, &address) == BP_INVALID_DEVICE);
    HAS(last_error_text(*driver), std::to_string(result));
    OK(driver->open(driver->self));
    OK(driver->close(driver->self));
  }
  fake().fail("cuInit", CUDA_ERROR_UNKNOWN, 0, 1);
  const bp_driver* driver = get(entry(), over_the_fake().c_str());
  int32_t count = 7;
  CHECK(driver->device_count(driver->self, &count) == BP_INTERNAL);
  HAS(last_error_text(*driver), "cuInit: an unknown error (999)");
  OK(driver->device_count(driver->self, &count));  // CUDA that starts later
  CHECK(count == 2);
  OK(driver->close(driver->self));
}

struct Meaning {
  int result;
  int32_t status;
};

void results() {
  constexpr Meaning passing[] = {{1, BP_INVALID_ARGUMENT},   {2, BP_OUT_OF_MEMORY}, {46, BP_UNSUPPORTED},       {101, BP_INVALID_DEVICE},
                                 {209, BP_INVALID_ARGUMENT}, {217, BP_UNSUPPORTED}, {400, BP_INVALID_ARGUMENT}, {701, BP_INVALID_ARGUMENT},
                                 {801, BP_UNSUPPORTED},      {999, BP_INTERNAL},    {12345, BP_INTERNAL}};
  uint64_t bytes = 0;
  {
    Gpus g;
    OK(g.free_bytes(&bytes));
    for (const auto& [result, status] : passing) {
      fake().fail("cuMemGetInfo_v2", result, 0, 1);
      CHECK(g.free_bytes(&bytes) == status);
      HAS(g.error(), "cuMemGetInfo");
      HAS(g.error(), "(" + std::to_string(result) + ")");
      OK(g.free_bytes(&bytes));
    }
  }
  constexpr Meaning sticky[] = {{214, BP_DEVICE_LOST}, {220, BP_DEVICE_LOST}, {226, BP_FAULT}, {700, BP_FAULT}, {702, BP_FAULT},
                                {709, BP_FAULT},       {710, BP_FAULT},       {714, BP_FAULT}, {715, BP_FAULT}, {716, BP_FAULT},
                                {717, BP_FAULT},       {718, BP_FAULT},       {719, BP_FAULT}, {721, BP_FAULT}, {911, BP_FAULT}};
  for (const auto& [result, status] : sticky) {
    Gpus g;
    OK(g.free_bytes(&bytes));
    fake().fail("cuMemGetInfo_v2", result, 0, 1);
    for (int again = 0; again < 3; ++again) CHECK(g.free_bytes(&bytes) == status);
    HAS(g.error(), "device 0 has failed: cuMemGetInfo");
    OK(g.free_bytes(&bytes, 1));
  }
}

// A context that has failed: every query reports it, every release works, others go on.
void broken() {
  Gpus g;
  const uint64_t memory = g.alloc(4096), other = g.alloc(4096, 1);
  bp_stream* stream = g.stream();
  bp_event* event = g.event();
  void* pinned = nullptr;
  OK(g.d->host_alloc(g.self, 4096, 0, &pinned));
  fake().break_(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(g.d->stream_query(g.self, 0, stream) == BP_FAULT);
  HAS(g.error(), "(700)");
  std::atomic<int32_t> reported{-1};
  CHECK(g.d->synchronize(g.self, 0, BP_NO_TIMEOUT) == BP_FAULT);
  CHECK(g.d->event_synchronize(g.self, 0, event, BP_NO_TIMEOUT) == BP_FAULT);
  CHECK(g.d->copy(g.self, 0, nullptr, memory, 0, reinterpret_cast<uint64_t>(pinned), BP_HOST_DEVICE, 8, 0) == BP_FAULT);
  CHECK(g.d->copy(g.self, 1, nullptr, other, 1, memory, 0, 8, 0) == BP_FAULT);  // from memory of the one that failed
  OK(g.d->synchronize(g.self, 1, BP_NO_TIMEOUT));
  OK(g.d->free(g.self, 0, memory));
  OK(g.d->event_destroy(g.self, 0, event));
  OK(g.d->stream_destroy(g.self, 0, stream));
  OK(g.d->host_free(g.self, pinned));
  g.put(other, "abcd", 4, 1);
  g.close();
  Gpus next;  // the last release ends the context, and the failure
  next.put(next.alloc(8), "abcd", 4);
}

// A callback that was queued before the failure is called once, with the failure.
void callbacks_of_a_broken_one() {
  Gpus g;
  bp_stream* stream = g.stream();
  std::promise<void> go;
  g.call(stream, [&](int32_t) { go.get_future().wait(); });
  std::atomic<int> runs{0};
  std::atomic<int32_t> status{-1};
  g.call(stream, [&](int32_t reported) { status = reported, ++runs; });
  fake().break_(0, CUDA_ERROR_LAUNCH_FAILED);
  go.set_value();
  while (runs == 0) std::this_thread::yield();
  CHECK(status == BP_FAULT);
  CHECK(g.d->synchronize(g.self, 0, BP_NO_TIMEOUT) == BP_FAULT);
  HAS(g.error(), "(719)");
  g.close();
  CHECK(runs == 1);
}

void flags_of_streams_and_events() {
  Gpus g;
  fake().record();
  bp_stream* stream = nullptr;
  OK(g.d->stream_create(g.self, 0, -3, 0, &stream));
  HAS(fake().calls(), "cuStreamCreateWithPriority\n  flags 1 priority -3\n");
  bp_event* event = nullptr;
  CHECK(g.d->event_create(g.self, 0, BP_EVENT_IPC | BP_EVENT_TIMING, &event) == BP_INVALID_ARGUMENT);  // CUDA has none
  OK(g.d->event_create(g.self, 0, BP_EVENT_IPC | BP_EVENT_BLOCKING, &event));
  bp_ipc_handle handle;
  const auto ipc = *find_group<bp_ipc>(*g.d);
  OK(ipc.event_export(ipc.head.self, 0, event, &handle));
  CHECK(ipc.event_export(ipc.head.self, 0, g.event(), &handle) == BP_INVALID_ARGUMENT);
}

// Eight bytes at a time: CUDA has no such fill.
void large_patterns() {
  Gpus g;
  for (const uint64_t count : {1023u, 1024u, 1025u, 5000u, 70001u}) {
    const uint64_t memory = g.alloc((count + 2) * 8), pattern = 0x1122334455667788;
    g.put(memory, std::vector<char>((count + 2) * 8).data(), (count + 2) * 8);
    OK(g.d->fill(g.self, 0, nullptr, memory + 8, &pattern, 8, count, 0));
    const auto bytes = g.take(memory, (count + 2) * 8);
    std::vector<uint64_t> words(count + 2);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    CHECK(words.front() == 0 && words.back() == 0);
    for (uint64_t i = 1; i <= count; ++i) CHECK(words[i] == pattern);
  }
}

// The calling thread's context is as others left it, and set_current's stays.
void current_contexts() {
  Gpus g;
  const Fake& f = fake();
  CUcontext first = nullptr, second = nullptr, now = nullptr;
  CHECK(f.cuDevicePrimaryCtxRetain(&first, 0) == 0 && f.cuDevicePrimaryCtxRetain(&second, 1) == 0);
  f.cuCtxSetCurrent(second);
  g.put(g.alloc(64), "abcd", 4);
  CHECK(f.cuCtxGetCurrent(&now) == 0 && now == second);
  OK(g.d->set_current(g.self, 0));
  CHECK(f.cuCtxGetCurrent(&now) == 0 && now == first);
  uint64_t bytes = 0;
  OK(g.free_bytes(&bytes, 1));
  CHECK(f.cuCtxGetCurrent(&now) == 0 && now == first);
  g.close();
  CHECK(f.cuCtxGetCurrent(&now) == 0 && now == first);  // which this test holds
  f.cuDevicePrimaryCtxRelease_v2(0), f.cuDevicePrimaryCtxRelease_v2(1);
  f.cuCtxSetCurrent(nullptr);
  Gpus last;
  last.alloc(8);
  last.close();
  CHECK(f.cuCtxGetCurrent(&now) == 0 && now == nullptr);
}

// Memory and streams that torch.cuda, say, has made in the same primary context.
void shared_with_others() {
  Gpus g;
  const Fake& f = fake();
  CUcontext context = nullptr;
  CHECK(f.cuDevicePrimaryCtxRetain(&context, 1) == 0);
  f.cuCtxSetCurrent(context);
  CUdeviceptr theirs = 0;
  CHECK(f.cuMemAlloc_v2(&theirs, 100000) == 0);
  bp_pointer_info info{};
  info.struct_size = sizeof info;
  OK(g.d->pointer_info(g.self, theirs + 500, &info));
  CHECK(info.kind == BP_MEMORY_DEVICE && info.device == 1 && info.base == theirs && info.bytes == 100000);
  void* pinned = nullptr;
  CHECK(f.cuMemHostAlloc(&pinned, 4096, 0) == 0);
  OK(g.d->pointer_info(g.self, reinterpret_cast<uint64_t>(pinned) + 8, &info));
  CHECK(info.kind == BP_MEMORY_PINNED && info.device == BP_HOST_DEVICE && info.bytes == 4096);
  const uint64_t ours = g.alloc(64);
  g.put(theirs, "from there", 11, 1);
  OK(g.d->copy(g.self, 0, nullptr, ours, 0, theirs, 1, 11, 0));
  CHECK(std::memcmp(g.take(ours, 11).data(), "from there", 11) == 0);
  CHECK(g.d->free(g.self, 1, theirs) == BP_INVALID_ARGUMENT);

  CUstream stream = nullptr;
  CHECK(f.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == 0);
  bp_stream *taken = nullptr, *again = nullptr;
  const auto number = reinterpret_cast<uint64_t>(stream);
  CHECK(g.d->stream_from_native(g.self, 0, number, &taken) == BP_INVALID_ARGUMENT);  // of device 1
  OK(g.d->stream_from_native(g.self, 1, number, &taken));
  OK(g.d->stream_from_native(g.self, 1, number, &again));
  CHECK(taken == again && g.d->stream_destroy(g.self, 1, taken) == BP_INVALID_ARGUMENT);
  OK(g.d->stream_from_native(g.self, 1, kStreamLegacy, &again));
  CHECK(again == nullptr);
  CHECK(g.d->stream_from_native(g.self, 1, kStreamPerThread, &again) == BP_INVALID_ARGUMENT);
  std::promise<void> go;
  g.call(taken, [&](int32_t) { go.get_future().wait(); }, 1);
  CHECK(g.d->synchronize(g.self, 1, 1000000) == BP_TIMEOUT);  // theirs counts
  go.set_value();
  OK(g.d->synchronize(g.self, 1, BP_NO_TIMEOUT));
  g.close();
  CHECK(f.cuStreamSynchronize(stream) == 0 && f.cuStreamDestroy_v2(stream) == 0);  // still theirs
  CHECK(f.cuMemFree_v2(theirs) == 0 && f.cuMemFreeHost(pinned) == 0);
  f.cuCtxSetCurrent(nullptr);
  f.cuDevicePrimaryCtxRelease_v2(1);
}

void peers() {
  Gpus g;
  const auto peer = *find_group<bp_peer>(*g.d);
  const auto vmm = *find_group<bp_vmm>(*g.d);
  uint64_t unit = 0, range = 0;
  OK(vmm.granularity(vmm.head.self, 1, &unit));
  OK(vmm.reserve(vmm.head.self, 1, 2 * unit, &range));
  OK(vmm.map(vmm.head.self, 1, range, unit));
  fake().record();
  OK(peer.enable(peer.head.self, 0, 1));
  HAS(fake().calls(), "cuCtxEnablePeerAccess\n");
  HAS(fake().calls(), "cuMemSetAccess\n  access of 0: 3\n");  // what is mapped already
  fake().record();
  OK(vmm.map(vmm.head.self, 1, range + unit, unit));
  HAS(fake().calls(), "cuMemSetAccess\n  access of 1: 3\n  access of 0: 3\n");
  // Others may have switched it on before.
  g.alloc(8), g.alloc(8, 1);
  OK(g.d->set_current(g.self, 1));
  CUcontext other = nullptr;
  CHECK(fake().cuDevicePrimaryCtxRetain(&other, 0) == 0);
  CHECK(fake().cuCtxEnablePeerAccess(other, 0) == 0);
  OK(peer.enable(peer.head.self, 1, 0));
  fake().cuDevicePrimaryCtxRelease_v2(0);
}

// A map that fails half-way leaves nothing behind.
void mapping_undone() {
  Gpus g;
  const auto vmm = *find_group<bp_vmm>(*g.d);
  uint64_t unit = 0, range = 0, before = 0, after = 0;
  OK(vmm.granularity(vmm.head.self, 0, &unit));
  OK(vmm.reserve(vmm.head.self, 0, unit, &range));
  OK(g.free_bytes(&before));
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    fake().fail(call, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
    CHECK(vmm.map(vmm.head.self, 0, range, unit) == BP_OUT_OF_MEMORY);
    HAS(g.error(), call);
    OK(g.free_bytes(&after));
    CHECK(before == after);
  }
  OK(vmm.map(vmm.head.self, 0, range, unit));
  const auto ipc = *find_group<bp_ipc>(*g.d);
  bp_ipc_handle handle;
  CHECK(ipc.memory_export(ipc.head.self, 0, range, &handle) == BP_UNSUPPORTED);
}

// Close gives back all that its caller has left.
void left_behind() {
  uint64_t before = 0, after = 0;
  {
    Gpus g;
    OK(g.free_bytes(&before));
  }
  CUcontext context = nullptr;  // so that the context's end is not what frees
  CHECK(fake().cuDevicePrimaryCtxRetain(&context, 0) == 0);
  {
    Gpus g;
    g.alloc(1 << 20), g.stream(), g.event();
    const auto vmm = *find_group<bp_vmm>(*g.d);
    uint64_t unit = 0, range = 0;
    OK(vmm.granularity(vmm.head.self, 0, &unit));
    OK(vmm.reserve(vmm.head.self, 0, 4 * unit, &range));
    OK(vmm.map(vmm.head.self, 0, range + unit, unit));
    void* pinned = nullptr;
    OK(g.d->host_alloc(g.self, 100, 0, &pinned));
    fake().record();
    g.close();
    for (const char* call : {"cuMemFree_v2", "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
                             "cuMemFreeHost", "cuDevicePrimaryCtxRelease_v2"}) {
      HAS(fake().calls(), call);
    }
  }
  {
    Gpus g;
    OK(g.free_bytes(&after));
    CHECK(before == after);
  }
  fake().cuDevicePrimaryCtxRelease_v2(0);
}

void entry_cases() {
  report("options", options);
  report("no GPU", no_gpu);
  report("results", results);
  report("broken", broken);
  report("callbacks of a broken one", callbacks_of_a_broken_one);
  report("flags of streams and events", flags_of_streams_and_events);
  report("large patterns", large_patterns);
  report("current contexts", current_contexts);
  report("shared with others", shared_with_others);
  report("peers", peers);
  report("mapping undone", mapping_undone);
  report("left behind", left_behind);
}

}  // namespace

#include "cuda_graphs.h"
#include "cuda_modules.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  driver_path = argv[1], fake_path = argv[2];
  const std::string part = argv[3];
  part == "entries" ? entry_cases() : part == "modules" ? module_cases() : graph_cases();
  return failures;
}
