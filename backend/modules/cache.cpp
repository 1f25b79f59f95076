// modules/cache.cpp: files of kernels-2/ab/<key>: "BPK2", the SHA-1 of key and code in 40 hexadecimal digits, the code.
#include "modules/cache.h"

#include <c10/util/Exception.h>
#include <c10/util/hash.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "runtime/file_permissions.h"
#include "runtime/options.h"

namespace backplane {
namespace cache_impl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "BPK2";
constexpr size_t kDigest = 40;
constexpr auto kTimeout = std::chrono::seconds(60);
constexpr int kWritesBetweenPrunings = 64;

class File {
 public:
  // O_NONBLOCK: an open of a file that is not a regular file, such as a pipe, may block.
  File(const std::string& path, int flags, mode_t mode = 0600)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

  bool write_all(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(done));
    }
    return true;
  }
  std::optional<Code> read_all(size_t size) const {
    Code bytes(size);
    for (size_t done = 0; done < size;) {
      const ssize_t got = ::read(fd_, bytes.data() + done, size - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      done += static_cast<size_t>(got);
    }
    return bytes;
  }

 private:
  int fd_;
};

bool is_ours(const struct stat& status) { return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

std::string default_folder() {
  if (const auto given = env("CACHE_DIR")) return *given;
  // As for <PREFIX>_...: a setuid process ignores its caller's environment.
  const char* base = secure_getenv("XDG_CACHE_HOME");
  std::string path = base != nullptr && *base == '/' ? base : "";
  if (path.empty()) {
    const char* home = secure_getenv("HOME");
    if (home == nullptr || *home != '/') return "";
    path = std::string(home) + "/.cache";
  }
  return path + "/torch-backplane/" + device_name();
}

CacheFolder find_folder() {
  const std::string base = default_folder();
  if (base.empty()) return {"", "there is no home directory"};
  const std::string path = base + "/kernels-2";
  std::error_code failed;
  fs::create_directories(base, failed);
  if (!failed && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) failed = std::error_code(errno, std::generic_category());
  if (failed) return {"", path + " cannot be created: " + failed.message()};
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return {"", path + " is not a directory"};
  if (!is_ours(status)) return {"", path + " belongs to another user, or others may write to it"};
  try {
    require_private(path, "The cache of kernels");
  } catch (const c10::Error& error) {
    return {"", error.what_without_backtrace()};
  }
  return {path, ""};
}

std::string folder_of(const std::string& key) { return cache_folder().path + "/" + key.substr(0, 2); }
std::string path_of(const std::string& key) { return folder_of(key) + "/" + key; }

// Writes the bytes to a new file, then renames it, so that no reader sees a partial file.
bool place(const std::string& path, std::string_view head, std::string_view body) {
  static std::atomic<unsigned> number{0};
  const std::string unfinished = path + "." + std::to_string(getpid()) + "." + std::to_string(number++) + ".tmp";
  bool written = false;
  {
    const File file(unfinished, O_WRONLY | O_CREAT | O_EXCL);
    written = file && file.write_all(head) && file.write_all(body);
  }
  if (written && ::rename(unfinished.c_str(), path.c_str()) == 0) return true;
  ::unlink(unfinished.c_str());
  return false;
}

// With the key, so that a file under another key's name is detected.
std::string digest_of(const std::string& key, std::string_view code) { return c10::sha1(key + std::string(code)).str(); }

bool place_code(const std::string& path, const std::string& key, const Code& code) {
  const std::string_view body(code.data(), code.size());
  return place(path, std::string(kMagic) + digest_of(key, body), body);
}

// The code of such a file; nothing if it is damaged, or has another key.
std::optional<Code> code_in(const File& file, const std::string& key, size_t size) {
  constexpr size_t head = kMagic.size() + kDigest;
  const auto bytes = file.read_all(size);
  const std::string_view text = bytes ? std::string_view(bytes->data(), bytes->size()) : std::string_view();
  if (text.size() <= head || text.substr(0, kMagic.size()) != kMagic ||
      text.substr(kMagic.size(), kDigest) != digest_of(key, text.substr(head))) {
    return std::nullopt;
  }
  return Code(bytes->begin() + head, bytes->end());
}

// <package>/kernels, located from this library; "" if there is none, or if others may write to it.
std::string bundle_folder() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&cache_folder), &here) == 0 || here.dli_fname == nullptr) return "";
  const fs::path folder = fs::path(here.dli_fname).parent_path().parent_path() / "kernels";
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) return "";
  try {
    require_private(folder, "The folder of the package's compiled kernels");
  } catch (const c10::Error& error) {
    TORCH_WARN(error.what_without_backtrace(), "\nIt is not used");
    return "";
  }
  return folder;
}

// "512MiB" as bytes; 1 GiB if unset.
uint64_t size_limit() {
  const auto given = env("CACHE_SIZE");
  if (!given) return uint64_t{1} << 30;
  size_t end = 0;
  uint64_t value = 0;
  try {
    value = std::stoull(*given, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = given->substr(end);
  const int shift = unit == "KiB" ? 10 : unit == "MiB" ? 20 : unit == "GiB" ? 30 : unit.empty() ? 0 : -1;
  TORCH_CHECK(end != 0 && shift >= 0, BACKPLANE_ENV_PREFIX "_CACHE_SIZE=", *given, " is not a size: use bytes, or 512MiB, 2GiB");
  return value << shift;
}

// Removes the least recently used files until the rest is 80 % of the limit, and what killed writers left.
void prune() {
  struct Entry {
    fs::file_time_type used;
    uintmax_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uintmax_t total = 0;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  for (fs::recursive_directory_iterator at(cache_folder().path, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    const auto used = at->last_write_time(gone);
    const uintmax_t bytes = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (gone || !at->is_regular_file(gone)) continue;
    if (at->path().extension() == ".tmp" && now - used > std::chrono::hours(1)) {
      fs::remove(at->path(), gone);
      continue;
    }
    total += bytes;
    entries.push_back({used, bytes, at->path()});
  }
  const uint64_t limit = size_limit();
  if (total <= limit) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit / 10 * 8) return;
    std::error_code gone;
    if (fs::remove(entry.path, gone)) total -= entry.bytes;
  }
}

}  // namespace
}  // namespace cache_impl

const CacheFolder& cache_folder() {
  static const auto& folder = *new CacheFolder(cache_impl::find_folder());
  return folder;
}

std::string cache_key(const std::vector<std::string_view>& parts) {
  std::string all;
  for (const std::string_view part : parts) {
    all += std::to_string(part.size());  // so that different lists of parts have different texts
    all += '\n';
    all += part;
  }
  return c10::sha1(all).str();
}

std::optional<Code> read_cache(const std::string& key) {
  using namespace cache_impl;
  if (cache_folder().path.empty()) return std::nullopt;
  const File file(path_of(key), O_RDONLY);
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  struct stat folder{};
  if (!is_ours(status) || ::lstat(folder_of(key).c_str(), &folder) != 0 || !is_ours(folder)) return std::nullopt;
  auto code = code_in(file, key, static_cast<size_t>(status.st_size));
  if (!code) {
    forget_cached(key);
  } else if (::time(nullptr) - status.st_mtime > 24 * 60 * 60) {
    ::futimens(file.get(), nullptr);  // used: prune() removes others first
  }
  return code;
}

namespace cache_impl {
namespace {

struct Offered {
  std::mutex mutex;
  std::unordered_map<std::string, Code> by_key;  // a package may be unloaded while its kernels are in use
};
Offered& offered() {
  static auto& instance = *new Offered;
  return instance;
}

}  // namespace
}  // namespace cache_impl

void offer_code(const std::string& key, std::string_view code) {
  auto& offered = cache_impl::offered();
  const std::lock_guard<std::mutex> lock(offered.mutex);
  offered.by_key.try_emplace(key, code.begin(), code.end());
}

std::optional<Code> read_offered(const std::string& key) {
  auto& offered = cache_impl::offered();
  const std::lock_guard<std::mutex> lock(offered.mutex);
  const auto found = offered.by_key.find(key);
  return found == offered.by_key.end() ? std::nullopt : std::optional<Code>(found->second);
}

std::optional<Code> read_bundle(const std::string& key) {
  using namespace cache_impl;
  static const auto& folder = *new std::string(bundle_folder());
  if (folder.empty()) return std::nullopt;
  const File file(folder + "/" + key.substr(0, 2) + "/" + key, O_RDONLY);
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || (status.st_mode & S_IWOTH) != 0) return std::nullopt;
  return code_in(file, key, static_cast<size_t>(status.st_size));
}

void write_bundle(const std::string& folder, const std::string& key, const Code& code) {
  const std::string place = folder + "/" + key.substr(0, 2);
  std::error_code failed;
  cache_impl::fs::create_directories(place, failed);
  TORCH_CHECK(!failed && cache_impl::place_code(place + "/" + key, key, code), "A compiled kernel cannot be written to ", place,
              failed ? ": " + failed.message() : "");
}

void write_cache(const std::string& key, const Code& code) {
  using namespace cache_impl;
  if (cache_folder().path.empty()) return;
  ::mkdir(folder_of(key).c_str(), 0700);
  if (!place_code(path_of(key), key, code)) return;
  static std::atomic<int> writes{0};
  if (writes++ % kWritesBetweenPrunings == kWritesBetweenPrunings - 1) prune();
}

void forget_cached(const std::string& key) {
  if (!cache_folder().path.empty()) ::unlink(cache_impl::path_of(key).c_str());
}

CacheLock::CacheLock(const std::string& key) {
  using namespace cache_impl;
  if (cache_folder().path.empty()) return;
  ::mkdir(folder_of(key).c_str(), 0700);
  file_ = ::open((folder_of(key) + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  while (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The file stays, one in each folder: another process may be waiting for it.
CacheLock::~CacheLock() {
  if (file_ >= 0) ::close(file_);
}

std::string keep_failed_source(const std::string& key, std::string_view source, const char* extension) {
  if (cache_folder().path.empty()) return "";
  const std::string folder = cache_folder().path + "/failed";
  ::mkdir(folder.c_str(), 0700);
  const std::string path = folder + "/" + key + extension;
  return cache_impl::place(path, source, "") ? path : "";
}

}  // namespace backplane
