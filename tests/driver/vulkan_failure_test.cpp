// vulkan_failure_test.cpp: the driver over a loader that fails from a call on: what is sticky, what is not, and what still works behind it.
//
// usage: vulkan_failure_test DRIVER OPTIONS lost|full|memory
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <backplane/driver/cxx/load.hpp>

namespace {

using namespace backplane;

const bp_driver* table = nullptr;

void need(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAIL %s; last_error: %s\n", what, driver::last_error_text(*table).c_str());
  std::exit(1);
}

int called = 0, told = 0;
void callback(void*, int32_t status) { ++called, told = status; }

constexpr uint64_t kBytes = 4096;

/// Fills until it fails; the status then.
int32_t fill_until_it_fails(uint64_t address) {
  const uint32_t pattern = 7;
  for (int i = 0; i < 100; ++i) {
    const int32_t status = table->fill(table->self, 0, nullptr, address, &pattern, 4, kBytes / 4, 0);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

void lost(uint64_t address) {
  need(fill_until_it_fails(address) == BP_DEVICE_LOST, "a fill on a lost device is DEVICE_LOST");
  std::vector<char> host(kBytes);
  uint64_t other = 0;
  bp_event* event = nullptr;
  need(table->synchronize(table->self, 0, BP_NO_TIMEOUT) == BP_DEVICE_LOST, "and so is synchronize");
  need(table->stream_query(table->self, 0, nullptr) == BP_DEVICE_LOST, "and stream_query");
  need(table->copy(table->self, 0, nullptr, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, address, 0, kBytes, 0) ==
           BP_DEVICE_LOST,
       "and copy");
  need(table->alloc(table->self, 0, kBytes, 0, &other) == BP_DEVICE_LOST, "and alloc");
  need(table->event_create(table->self, 0, 0, &event) == BP_DEVICE_LOST, "and event_create");
  need(driver::last_error_text(*table).find("VK_ERROR_DEVICE_LOST") != std::string::npos, "the text names Vulkan's error");
  need(table->stream_callback(table->self, 0, nullptr, callback, nullptr) == BP_OK, "a callback is accepted");
  need(table->alloc(table->self, 1, kBytes, 0, &other) == BP_OK, "another device is not affected");
  need(table->free(table->self, 1, other) == BP_OK, "nor is its free");
  need(table->free(table->self, 0, address) == BP_OK, "free is OK");
}

/// What is queued when there is no memory for it is refused, and nothing else is.
void full(uint64_t address) {
  need(fill_until_it_fails(address) == BP_OUT_OF_MEMORY, "a submission without memory is OUT_OF_MEMORY");
  need(setenv("VULKAN_WRAP", "", 1) == 0, "setenv");
  need(fill_until_it_fails(address) == BP_OK, "and the next one is queued");
  need(table->synchronize(table->self, 0, BP_NO_TIMEOUT) == BP_OK, "and complete");
  need(table->free(table->self, 0, address) == BP_OK, "free is OK");
}

void memory(uint64_t address) {
  std::vector<uint64_t> all;
  int32_t status = BP_OK;
  for (int i = 0; i < 100 && status == BP_OK; ++i) {
    uint64_t one = 0;
    status = table->alloc(table->self, 0, kBytes, 0, &one);
    if (status == BP_OK) all.push_back(one);
  }
  need(status == BP_OUT_OF_MEMORY, "an allocation without memory is OUT_OF_MEMORY");
  need(driver::last_error_text(*table).find("VK_ERROR_OUT_OF_DEVICE_MEMORY") != std::string::npos, "the text names Vulkan's error");
  need(setenv("VULKAN_WRAP", "", 1) == 0, "setenv");
  uint64_t one = 0;
  need(table->alloc(table->self, 0, kBytes, 0, &one) == BP_OK, "and the next one has some");
  all.push_back(one);
  all.push_back(address);
  for (const uint64_t each : all) need(table->free(table->self, 0, each) == BP_OK, "free is OK");
}

}  // namespace

int main(int, char** words) {
  const std::string options = std::string(words[2]) + ",sub_devices=2";
  const bp_driver loaded = driver::checked_table(words[1], driver::ask(driver::open_library(words[1]), options, nullptr, nullptr));
  table = &loaded;
  need(table->open(table->self) == BP_OK, "open");
  uint64_t address = 0;
  need(table->alloc(table->self, 0, kBytes, 0, &address) == BP_OK, "alloc");
  const std::string which = words[3];
  which == "lost" ? lost(address) : which == "full" ? full(address) : memory(address);
  need(table->close(table->self) == BP_OK, "close is OK");
  if (which == "lost") {
    if (called != 1 || told != BP_DEVICE_LOST) return std::printf("FAIL the callback was called %d times, with %d\n", called, told), 1;
  }
  std::printf("%s: as the contract says\n", which.c_str());
  return 0;
}
