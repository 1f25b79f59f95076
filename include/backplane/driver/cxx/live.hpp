// backplane/driver/cxx/live.hpp: the runtime's objects that a driver has made and not yet destroyed: streams, events, buffers.
//
// close() must release what its caller has left behind, and a destroy of a stranger's handle must be an error, not a crash:
//
//     LiveHandles<vendor_queue*> queues_{vendor_queue_release};
//     *out = reinterpret_cast<bp_stream*>(queues_.add(vendor_queue_create(...)));      // stream_create
//     queues_.destroy(reinterpret_cast<vendor_queue*>(stream), "stream_destroy");      // stream_destroy
//                                                                                      // the destructor: the rest
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "error.hpp"

namespace backplane::driver {

/// Handle: a pointer or a number. Thread safe; `destroy` is called without the lock.
template <class Handle>
class LiveHandles {
 public:
  explicit LiveHandles(std::function<void(Handle)> destroy) : destroy_(std::move(destroy)) {}
  ~LiveHandles() { destroy_all(); }
  LiveHandles(const LiveHandles&) = delete;
  LiveHandles& operator=(const LiveHandles&) = delete;

  /// Keeps a handle and gives it back. Destroys it if there is no memory to keep it.
  Handle add(Handle handle) {
    try {
      std::lock_guard lock(mutex_);
      if (numbers_.emplace(handle, next_++).second) return handle;
    } catch (const std::bad_alloc&) {
      destroy_(handle);
      throw;
    }
    throw Error(BP_INTERNAL, "the runtime gave the same handle twice");
  }

  bool contains(Handle handle) const {
    std::lock_guard lock(mutex_);
    return numbers_.count(handle) != 0;
  }

  /// Destroys one. Throws Error(BP_INVALID_ARGUMENT) for a handle that is not live; `call` names the entry.
  void destroy(Handle handle, const char* call) {
    if (!forget(handle)) throw Error(BP_INVALID_ARGUMENT, std::string(call) + ": no live handle of this driver");
    destroy_(handle);
  }

  /// Lets one go without destroying it; false if it is not live.
  bool forget(Handle handle) {
    std::lock_guard lock(mutex_);
    return numbers_.erase(handle) != 0;
  }

  /// Destroys all, the latest first. For close; also what the destructor does.
  void destroy_all() noexcept {
    std::vector<std::pair<size_t, Handle>> left;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [handle, number] : numbers_) left.emplace_back(number, handle);
      numbers_.clear();
    }
    std::sort(left.begin(), left.end(), std::greater<>());
    for (const auto& [number, handle] : left) destroy_(handle);
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return numbers_.size();
  }

 private:
  const std::function<void(Handle)> destroy_;
  mutable std::mutex mutex_;
  std::unordered_map<Handle, size_t> numbers_;  // handle -> when it came
  size_t next_ = 0;
};

/// Objects that a call may still use while another thread ends them. A handle is the object's address; each object has a `device`, which
/// compares with what the caller names. Thread safe; nothing is destroyed under the lock.
template <class Object>
class SharedHandles {
 public:
  using Shared = std::shared_ptr<Object>;

  template <class Handle>
  void add(Shared object, Handle** out) {
    std::lock_guard lock(mutex_);
    auto* const handle = reinterpret_cast<Handle*>(object.get());
    live_.emplace(handle, std::move(object));
    *out = handle;
  }

  /// Throws Error(BP_INVALID_ARGUMENT) with that text for a handle that is not live, or another device's.
  template <class Device>
  Shared find(const void* handle, const Device& device, const char* text) const {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end() || found->second->device != device) throw Error(BP_INVALID_ARGUMENT, text);
    return found->second;
  }
  /// The same, and it is live no longer.
  template <class Device>
  Shared take(const void* handle, const Device& device, const char* text) {
    Shared last = find(handle, device, text);
    std::lock_guard lock(mutex_);
    if (live_.erase(handle) == 0) throw Error(BP_INVALID_ARGUMENT, text);
    return last;
  }

  /// Ends all of which `which` is true.
  template <class Which>
  std::vector<Shared> take_if(Which&& which) {
    std::vector<Shared> taken;
    std::lock_guard lock(mutex_);
    for (auto at = live_.begin(); at != live_.end();) {
      if (!which(*at->second)) {
        ++at;
        continue;
      }
      taken.push_back(std::move(at->second));
      at = live_.erase(at);
    }
    return taken;
  }
  void clear() {
    static_cast<void>(take_if([](const Object&) { return true; }));
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Shared> live_;
};

}  // namespace backplane::driver
