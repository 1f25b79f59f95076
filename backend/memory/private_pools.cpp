// memory/private_pools.cpp: selects the pool of an allocation, and owns private pools.
#include <algorithm>

#include "memory/caching_allocator.h"
#include "memory/device_cache.h"

namespace backplane::memory {

// The last route that accepts the stream decides, so that pools nest. Filters run outside the lock: they are the caller's code.
DeviceCache::PoolUse DeviceCache::pool_for(const c10::Stream& stream) {
  std::shared_ptr<const std::vector<Route>> routes;
  {
    const Locked lock(*this);
    routes = routes_;
  }
  if (routes != nullptr) {
    for (auto route = routes->rbegin(); route != routes->rend(); ++route) {
      if (!route->filter(stream)) continue;
      const Locked lock(*this);
      const auto found = private_pools_.find(route->pool);
      if (found != private_pools_.end()) return PoolUse(*this, *found->second);
    }
  }
  return PoolUse(*this, pool_);
}

DeviceCache::PoolUse::PoolUse(DeviceCache& memory, Pool& used) : owner(memory), pool(used) {
  if (pool.is_private()) ++pool.references;
}

DeviceCache::PoolUse::~PoolUse() {
  if (!pool.is_private()) return;
  const Locked lock(owner);
  --pool.references;
}

// Under the lock; the caller holds the reference.
void DeviceCache::take_pool(c10::MempoolId_t id, const PoolOptions& options) {
  TORCH_CHECK((id != c10::MempoolId_t{0, 0}), "the pool {0, 0} is the default pool, which is not a private one");
  auto& pool = private_pools_[id];
  if (pool == nullptr) {
    pool = std::make_unique<Pool>(id, statistics_);
    pool->use_on_oom = options.use_on_oom;
    pool->no_split = options.no_split;
    pool->source = options.source;
  }
  ++pool->references;
}

void DeviceCache::retain_pool(c10::MempoolId_t id, const PoolOptions& options) {
  const Locked lock(*this);
  take_pool(id, options);
}

void DeviceCache::begin_allocate_to_pool(c10::MempoolId_t id, Filter filter, const PoolOptions& options) {
  const Locked lock(*this);
  auto routes = routes_ == nullptr ? std::vector<Route>() : *routes_;
  const bool routed = std::any_of(routes.begin(), routes.end(), [&](const Route& route) { return route.pool == id; });
  TORCH_CHECK(!routed, "begin_allocate_to_pool: allocations go to pool {", id.first, ", ", id.second, "} already");
  take_pool(id, options);
  routes.push_back({id, std::move(filter)});
  routes_ = std::make_shared<const std::vector<Route>>(std::move(routes));
}

void DeviceCache::end_allocate_to_pool(c10::MempoolId_t id) {
  std::shared_ptr<const std::vector<Route>> old;  // filters are destroyed outside the lock
  const Locked lock(*this);
  auto routes = routes_ == nullptr ? std::vector<Route>() : *routes_;
  const auto ended = std::erase_if(routes, [&](const Route& route) { return route.pool == id; });
  TORCH_CHECK(ended != 0, "end_allocate_to_pool: no allocations go to pool {", id.first, ", ", id.second, "}");
  old = routes.empty() ? nullptr : std::make_shared<const std::vector<Route>>(std::move(routes));
  old.swap(routes_);
}

int DeviceCache::pool_references(c10::MempoolId_t id) {
  const Locked lock(*this);
  const auto found = private_pools_.find(id);
  return found == private_pools_.end() ? 0 : found->second->references;
}

void DeviceCache::release_pool(c10::MempoolId_t id) {
  const Locked lock(*this);
  const auto found = private_pools_.find(id);
  TORCH_CHECK(found != private_pools_.end() && found->second->references > 0, "release_pool: pool {", id.first, ", ", id.second,
              "} is not in use");
  --found->second->references;
}

}  // namespace backplane::memory
