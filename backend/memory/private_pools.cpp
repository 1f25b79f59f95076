// memory/private_pools.cpp: which pool an allocation comes from, and the life of private pools.
#include <algorithm>

#include "memory/device_memory.h"

namespace backplane::memory {

// The first route that takes the stream decides. Filters run outside the lock: they are the caller's code.
DeviceMemory::PoolUse DeviceMemory::pool_for(const c10::Stream& stream) {
  std::shared_ptr<const std::vector<Route>> routes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    routes = routes_;
  }
  if (routes != nullptr) {
    for (const Route& route : *routes) {
      if (!route.filter(stream)) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = private_pools_.find(route.pool);
      if (found != private_pools_.end()) return PoolUse(*this, *found->second);
    }
  }
  return PoolUse(*this, pool_);
}

DeviceMemory::PoolUse::PoolUse(DeviceMemory& memory, Pool& used) : owner(memory), pool(used) {
  if (pool.is_private()) ++pool.references;
}

DeviceMemory::PoolUse::~PoolUse() {
  if (!pool.is_private()) return;
  const std::lock_guard<std::mutex> lock(owner.mutex_);
  --pool.references;
}

void DeviceMemory::begin_allocate_to_pool(c10::MempoolId_t id, Filter filter) {
  TORCH_CHECK((id != c10::MempoolId_t{0, 0}), "begin_allocate_to_pool: {0, 0} is the default pool");
  const std::lock_guard<std::mutex> lock(mutex_);
  auto routes = routes_ == nullptr ? std::vector<Route>() : *routes_;
  const bool routed = std::any_of(routes.begin(), routes.end(), [&](const Route& route) { return route.pool == id; });
  TORCH_CHECK(!routed, "begin_allocate_to_pool: allocations go to pool {", id.first, ", ", id.second, "} already");
  auto& pool = private_pools_[id];
  if (pool == nullptr) pool = std::make_unique<Pool>(id, statistics_);
  ++pool->references;
  routes.push_back({id, std::move(filter)});
  routes_ = std::make_shared<const std::vector<Route>>(std::move(routes));
}

void DeviceMemory::end_allocate_to_pool(c10::MempoolId_t id) {
  std::shared_ptr<const std::vector<Route>> old;  // filters are destroyed outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  auto routes = routes_ == nullptr ? std::vector<Route>() : *routes_;
  const auto ended = std::erase_if(routes, [&](const Route& route) { return route.pool == id; });
  TORCH_CHECK(ended != 0, "end_allocate_to_pool: no allocations go to pool {", id.first, ", ", id.second, "}");
  old = routes.empty() ? nullptr : std::make_shared<const std::vector<Route>>(std::move(routes));
  old.swap(routes_);
}

void DeviceMemory::release_pool(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = private_pools_.find(id);
  TORCH_CHECK(found != private_pools_.end() && found->second->references > 0, "release_pool: pool {", id.first, ", ", id.second,
              "} is not in use");
  --found->second->references;
}

}  // namespace backplane::memory
