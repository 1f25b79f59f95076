// tests/docs/cpp/handles.cpp: a runtime with handles, declared alone; the blocks of docs/handles.md follow, as members of a driver's class.
#include <backplane/driver/cxx/driver.hpp>

#include <memory>
#include <mutex>
#include <utility>

using vendor_buffer = struct vendor_buffer_object*;
using vendor_queue = struct vendor_queue_object*;
using vendor_event = struct vendor_event_object*;
vendor_buffer vendor_create(int32_t device, uint64_t bytes);
uint64_t vendor_address(vendor_buffer);
void vendor_release(vendor_buffer);
vendor_queue vendor_create_queue(int32_t device);
void vendor_release(vendor_queue);
void vendor_write(vendor_queue, vendor_buffer, uint64_t offset, const void* host, uint64_t bytes);
void vendor_read(vendor_queue, vendor_buffer, uint64_t offset, void* host, uint64_t bytes);
bool vendor_idle(int32_t device);
vendor_event vendor_marker(vendor_queue);
vendor_event vendor_user_event();
void vendor_wait(vendor_queue, vendor_event);
void vendor_set(vendor_event) noexcept;
int vendor_on_complete(vendor_event, void (*call)(vendor_event, int failed, void* arg), void* arg);

using namespace backplane::driver;

class Page : public Driver<Page> {
 public:
  explicit Page(const Host& host) : Driver(host) {}
  void device_count(int32_t* out) { *out = 1; }
  void device_properties(int32_t, bp_device_properties*) {}
  void open() {}
  vendor_queue queue(int32_t device, bp_stream* stream);
  std::mutex mutex_;
