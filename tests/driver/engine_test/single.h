// tests/driver/engine_test/single.h: cases of engine_test.cpp that choose their own driver, or need none.
#pragma once

#include "support.h"

namespace {

size_t threads_of_process() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) count += !task.path().empty();
  return count;
}

// A thread that looks a place up while another frees it does not find it afterwards by what it remembers.
void a_freed_place_is_forgotten() {
  Instance i(get(bp_sim_get, "stream=inline,memory=64MiB"));
  const bp_ext* group = nullptr;
  OK(i.d->query_ext(i.self, BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION, &group));
  const auto& exec = *reinterpret_cast<const bp_host_exec*>(group);
  std::atomic<uint64_t> place{0};
  std::atomic<bool> looks{false}, freed{false}, ends{false};
  int remembered = 0;
  std::thread reader([&] {
    while (!ends.load()) {
      const uint64_t address = place.load();
      if (address == 0) {
        std::this_thread::yield();
        continue;
      }
      void* at = nullptr;
      looks.store(exec.map(exec.head.self, 0, address, &at) == BP_OK);
      while (!freed.load()) exec.map(exec.head.self, 0, address, &at);
      remembered += exec.map(exec.head.self, 0, address, &at) == BP_OK;
      place.store(0);
    }
  });
  for (int n = 0; n < 2000; ++n) {
    const uint64_t address = i.alloc(4096);
    looks.store(false);
    freed.store(false);
    place.store(address);
    while (!looks.load()) std::this_thread::yield();
    OK(i.d->free(i.self, 0, address));
    freed.store(true);
    while (place.load() != 0) std::this_thread::yield();
  }
  ends.store(true);
  reader.join();
  CHECK(remembered == 0);
}

void opening_starts_no_thread() {
  const size_t before = threads_of_process();
  Instance i(get(bp_sim_get, "stream=async,memory=64MiB"));
  int32_t count = 0;
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  OK(i.d->device_count(i.self, &count));
  OK(i.d->device_properties(i.self, 1, &properties));
  void* pinned = nullptr;
  OK(i.d->host_alloc(i.self, 100, 0, &pinned));
  CHECK(threads_of_process() == before);
  i.alloc(8);
  CHECK(threads_of_process() == before + 1);
  // Signals belong to the host's threads. (The worker has started once it has run something.)
  i.call(nullptr, [](int32_t) {});
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  size_t workers = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool worker = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) worker = line.find("sim") != std::string::npos;
      if (!worker || !line.starts_with("SigBlk:")) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM}) CHECK(blocked >> (number - 1) & 1);
      CHECK(!(blocked >> (SIGSEGV - 1) & 1));
      ++workers;
    }
  }
  CHECK(workers == 1);
}

void memory_has_a_limit() {
  Instance i(get(bp_sim_get, "memory=1MiB,stream=inline"));
  uint64_t free_bytes = 0, total = 0, more = 0;
  const uint64_t a = i.alloc(1 << 20);
  OK(i.d->memory_info(i.self, 0, &free_bytes, &total));
  CHECK(free_bytes == 0 && total == 1 << 20);
  CHECK(i.d->alloc(i.self, 0, 1, 0, &more) == BP_OUT_OF_MEMORY && more == 0);
  i.alloc(1 << 20, 1);
  OK(i.d->free(i.self, 0, a));
  OK(i.d->memory_info(i.self, 0, &free_bytes, &total));
  CHECK(free_bytes == 1 << 20);
  const uint64_t zero = i.alloc(0), zero2 = i.alloc(0);
  CHECK(zero && zero2 && zero != zero2);
  // A copy beyond an allocation is refused, also where the next one begins.
  const uint64_t b = i.alloc(512), c = i.alloc(512);
  std::vector<char> host(1024);
  CHECK(c == b + 512 || b == c + 512);
  const int32_t status = i.d->copy(i.self, 0, nullptr, std::min(b, c), 0, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, 513, 0u);
  CHECK(status == BP_INVALID_ARGUMENT && i.error().find("not inside one allocation") != std::string::npos);
  bp_pointer_info info{};
  info.struct_size = sizeof info;
  OK(i.d->pointer_info(i.self, b + 511, &info));
  CHECK(info.kind == BP_MEMORY_DEVICE && info.device == 0 && info.base == b && info.bytes == 512);
  OK(i.d->pointer_info(i.self, reinterpret_cast<uint64_t>(host.data()), &info));
  CHECK(info.kind == BP_MEMORY_UNKNOWN && info.device == BP_HOST_DEVICE && info.base == 0 && info.bytes == 0);
}

void a_stray_host_access_faults(const char* options, bool faults) {
  Instance i(get(bp_sim_get, options));
  const uint64_t a = i.alloc(4096);
  i.put(a, "x", 1);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*reinterpret_cast<volatile char*>(a) == 'x' ? 42 : 43);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(faults ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : WIFEXITED(status) && WEXITSTATUS(status) == 42);
  const auto view = find_group<bp_host_view>(normalised(*i.d));
  CHECK(view.has_value() != faults);
}

void options_list_what_is_known() {
  for (const char* wrong : {"devicse=3", "devices=65", "memory=2XB", "kind=odd", "stream", "devices=1,devices=2"}) {
    refusal.clear();
    CHECK(!get(bp_sim_get, wrong));
    CHECK(refusal.find("known: devices=<0..64>, memory=<size>, kind=unified|discrete, stream=async|inline") != std::string::npos);
  }
  const bp_driver* none = get(bp_sim_get, "devices=0");
  int32_t count = 5;
  OK(none->device_count(none->self, &count));
  CHECK(count == 0);
  OK(none->close(none->self));  // never opened
  for (const char* wrong : {"memory=1GiB", "devices=17", "devices=0", "devices=2,", "devices=", "dev"}) CHECK(!get(bp_minimal_get, wrong));
  CHECK(!get(bp_emulate_get, ""));
}

void peers_can_be_switched() {
  Instance i(get(bp_sim_get, "stream=inline,kind=discrete,memory=64MiB"));
  const bp_driver table = normalised(*i.d);
  const auto peer = find_group<bp_peer>(table);
  const auto exec = find_group<bp_host_exec>(table);
  const uint64_t other = i.alloc(8, 1);
  void* at = nullptr;
  CHECK(exec->map(exec->head.self, 0, other, &at) == BP_INVALID_ARGUMENT);
  OK(peer->enable(peer->head.self, 0, 1));
  OK(peer->enable(peer->head.self, 0, 1));
  OK(exec->map(exec->head.self, 0, other, &at));
}

void a_half_group_is_named() {
  bp_driver table = normalised(*get(bp_minimal_get, ""));
  table.stream_create = [](void*, int32_t, int32_t, uint32_t, bp_stream**) { return int32_t{BP_OK}; };
  CHECK(incomplete_group(table) == "group streams: slot stream_destroy is missing");
  refusal.clear();
  CHECK(!get(bp_emulate_get, "", &table));
  CHECK(refusal.find("stream_destroy") != std::string::npos);
  table.close(table.self);
  table.struct_size = offsetof(bp_driver, last_error) + 4;
  CHECK(incomplete_group(normalised(table)) == "group minimum: slot last_error is missing");
}

void another_abi_is_an_error_that_lists_the_changes() {
  CHECK(!abi_mismatch(BP_ABI_MAJOR, BP_ABI_MINOR));
  const std::string old = *abi_mismatch(0, 1);
  CHECK(old.starts_with("driver ABI 0.1, needed is 0.2; since 0.1 changed: "));
  for (const char* entry : {"copy", "copy_async", "fill", "event_record", "pointer_info", "stream_callback", "stream_from_native"}) {
    CHECK(old.find(entry) != std::string::npos);
  }
  CHECK(*abi_mismatch(0, BP_ABI_MINOR + 1) == "driver ABI 0.3, needed is 0.2");
  const bp_driver* sim = get(bp_sim_get, "memory=64MiB");
  bp_driver inner = *sim;
  inner.abi_minor = 1;
  CHECK(!get(bp_emulate_get, "", &inner) && refusal.find("copy_async (no kind") != std::string::npos);
  CHECK(!get(bp_fault_get, "", &inner) && refusal.find("copy_async (no kind") != std::string::npos);
  OK(sim->close(sim->self));
}

/// A runtime without host callbacks has streams all the same, also under the shims.
void streams_need_no_callbacks() {
  const bp_driver* sim = get(bp_sim_get, "stream=async,memory=64MiB");
  bp_driver inner = *sim;
  inner.stream_callback = nullptr;
  CHECK(!incomplete_group(inner) && is_complete(inner));
  const auto use = [](Instance& i) {
    CHECK(!i.d->stream_callback);
    const uint64_t a = i.alloc(64);
    const char pattern = 7;
    bp_stream* stream = i.stream();
    OK(i.d->fill(i.self, 0, stream, a, &pattern, 1, 64, 0));
    OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
    CHECK(i.take(a, 64) == std::vector<unsigned char>(64, 7));
  };
  {
    inner.flags |= BP_DRIVER_SERIALIZE;
    Instance i(get(bp_fault_get, "kernel=@2", get(bp_emulate_get, "", &inner)));
    use(i);
    const char pattern = 8;
    OK(i.d->fill(i.self, 0, nullptr, i.alloc(64), &pattern, 1, 64, 0));
    CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT && i.error().find("injected by fault.kernel=@2") != std::string::npos);
  }
}

void registered_memory_is_known_as_such() {
  for (bool emulated : {false, true}) {
    const bp_driver* sim = get(bp_sim_get, "stream=inline,memory=64MiB");
    bp_driver inner = *sim;
    inner.host_alloc = nullptr, inner.host_free = nullptr;  // emulate keeps the account then
    Instance i(emulated ? get(bp_emulate_get, "", &inner) : sim);
    std::vector<char> memory(4096);
    void* pinned = nullptr;
    OK(i.d->host_alloc(i.self, 64, 0, &pinned));
    OK(i.d->host_register(i.self, memory.data(), memory.size()));
    bp_pointer_info info{};
    info.struct_size = sizeof info;
    const auto kind = [&](const void* at) {
      OK(i.d->pointer_info(i.self, reinterpret_cast<uint64_t>(at), &info));
      return info.kind;
    };
    CHECK(kind(pinned) == BP_MEMORY_PINNED && kind(memory.data() + 4095) == BP_MEMORY_REGISTERED);
    CHECK(info.device == BP_HOST_DEVICE && info.base == reinterpret_cast<uint64_t>(memory.data()) && info.bytes == 4096);
    CHECK(i.d->host_unregister(i.self, pinned) == BP_INVALID_ARGUMENT && i.d->host_free(i.self, memory.data()) == BP_INVALID_ARGUMENT);
    OK(i.d->host_unregister(i.self, memory.data()));
    CHECK(kind(memory.data()) == BP_MEMORY_UNKNOWN);
    OK(i.d->host_free(i.self, pinned));
  }
}

void what_is_thrown_has_a_status_and_a_text() {
  Instance i(get(bp_handle_get, ""));
  uint64_t a = 7, b = 7;
  CHECK(i.d->memory_info(i.self, 0, &a, &b) == BP_UNSUPPORTED && i.error() == "UNSUPPORTED");
  CHECK(i.d->memory_info(i.self, 1, &a, &b) == BP_INTERNAL && i.error().find("no std::exception") != std::string::npos);
  CHECK(i.d->memory_info(i.self, 2, &a, &b) == BP_OUT_OF_MEMORY && i.error() == "the driver ran out of host memory");
  CHECK(i.d->memory_info(i.self, 3, &a, &b) == BP_INTERNAL && i.error() == "the board is gone");
  CHECK(i.d->free(i.self, 4, 0) == BP_INVALID_DEVICE && i.error() == "no device 4");
  CHECK(!i.d->stream_create && !i.d->fill && i.d->query_ext);
}

void places_do_not_overlap() {
  AddressMap<int> map(1 << 20, 1 << 20);
  std::map<uint64_t, uint64_t> model;  // base -> bytes
  unsigned seed = 1;
  const auto random = [&](unsigned limit) { return (seed = seed * 1103515245 + 12345) / 65536 % limit; };
  int full = 0;
  for (int n = 0; n < 20000; ++n) {
    if (model.empty() || random(100) < 55) {
      const uint64_t bytes = random(4) ? random(2000) : random(60000), alignment = uint64_t{1} << random(13);
      try {
        const uint64_t at = map.place(bytes, alignment, n);
        CHECK(at % alignment == 0 && at >= map.base() && at + bytes <= map.base() + map.bytes());
        const auto next = model.lower_bound(at);
        CHECK(next == model.end() || at + std::max<uint64_t>(bytes, 1) <= next->first);
        CHECK(next == model.begin() || std::prev(next)->first + std::prev(next)->second <= at);
        model[at] = bytes;
        CHECK(map.find(at)->handle == n && map.contains(at, bytes) && !map.contains(at, bytes + 1));
      } catch (const Error& error) {
        CHECK(error.status() == BP_OUT_OF_MEMORY);
        ++full;
      }
    } else {
      const auto victim = std::next(model.begin(), random(static_cast<unsigned>(model.size())));
      CHECK(!map.remove(victim->first + 1) || victim->second == 0);
      CHECK(map.remove(victim->first)->bytes == victim->second && !map.find(victim->first));
      model.erase(victim);
    }
  }
  CHECK(full > 0);
  for (const auto& [base, bytes] : model) CHECK(map.remove(base));
  CHECK(map.place(1 << 20, 1, 0) == 1 << 20);  // the gaps have merged
}

void a_polling_wait_ends_in_time() {
  int asked = 0;
  CHECK(poll(0, [&] { return ++asked, BP_PENDING; }) == BP_TIMEOUT && asked == 1);
  CHECK(poll(BP_NO_TIMEOUT, [&] { return ++asked < 200 ? BP_PENDING : BP_OK; }) == BP_OK && asked == 200);
  CHECK(poll(UINT64_MAX - 1, [] { return BP_FAULT; }) == BP_FAULT);
  const auto start = std::chrono::steady_clock::now();
  CHECK(poll(2 * kMs, [] { return BP_TIMEOUT; }) == BP_TIMEOUT);
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(2));
}

}  // namespace
