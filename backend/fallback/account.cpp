// fallback/account.cpp: the accounts of all operators, and where Python called them.
#include "fallback/account.h"

#include <chrono>
#include <map>
#include <mutex>

#include "fallback/fallback.h"
#include "fallback/plan.h"

namespace backplane::fallback {

namespace account {

std::atomic<bool> is_on{true};
std::atomic<uint32_t> site_epoch{1};

namespace {

std::mutex sites_mutex;  // protects every Account's sites; never held while Python is entered
std::atomic<SiteFinder> site_finder{nullptr};

// The clock's rate is measured since the library was loaded: c10's approximate clock counts the processor's ticks.
struct Moment {
  decltype(c10::getApproximateTime()) ticks = c10::getApproximateTime();
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
};
const Moment loaded;

double nanoseconds_per_tick() {
  const Moment now;
  const auto ticks = static_cast<double>(now.ticks - loaded.ticks);
  return ticks <= 0 ? 0 : std::chrono::duration<double, std::nano>(now.time - loaded.time).count() / ticks;
}

}  // namespace

// Once per operator and epoch: entering Python at every call would cost more than the call.
void find_site(Account& account) {
  account.site_epoch.store(site_epoch.load());
  std::string found = python_site();
  const std::lock_guard<std::mutex> lock(sites_mutex);
  if (account.first_site.empty()) account.first_site = found;
  account.site = std::move(found);
}

}  // namespace account

std::string python_site() {
  const SiteFinder find = account::site_finder.load();
  return find == nullptr ? "" : find();
}

void set_site_finder(SiteFinder finder) { account::site_finder = finder; }

bool accounting() { return account::is_on; }
void set_accounting(bool on) { account::is_on = on; }
void new_site_epoch() { ++account::site_epoch; }

// Operators that were removed and registered again have several plans.
std::vector<Count> counts() {
  const double rate = account::nanoseconds_per_tick();
  std::map<std::string, Count> found;
  for (Plan* plan : all_plans()) {
    const Account& account = plan->account;
    if (account.calls == 0 && account.widened == 0) continue;
    Count& count = found[plan->full_name];
    count.op = plan->full_name;
    count.calls += account.calls;
    count.to_host += account.to_host;
    count.to_device += account.to_device;
    count.shared += account.shared;
    count.widened += account.widened;
    count.nanoseconds += static_cast<uint64_t>(static_cast<double>(account.ticks) * rate);
    const std::lock_guard<std::mutex> lock(account::sites_mutex);
    if (count.first_site.empty()) count.first_site = account.first_site;
    if (!account.site.empty()) count.site = account.site;
  }
  std::vector<Count> result;
  for (auto& [op, count] : found) result.push_back(std::move(count));
  return result;
}

void reset_counts() {
  new_site_epoch();
  for (Plan* plan : all_plans()) {
    Account& account = plan->account;
    account.calls = account.ticks = account.to_host = account.to_device = account.shared = account.widened = 0;
    const std::lock_guard<std::mutex> lock(account::sites_mutex);
    account.first_site.clear();
    account.site.clear();
  }
}

}  // namespace backplane::fallback
