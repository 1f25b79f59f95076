// modules/cache.h: compiled code on disk, from one process to the next.
//
// A file is named by the SHA-1 of everything that its code depends on. It is code that this process will run: it is read only if it and its
// folder belong to the user and nobody else can write to them, and if its key and contents match the checksum in it. An error of the cache
// (no home, read-only, a full disk) costs time and is not raised.
//
//   <PREFIX>_CACHE_DIR, else $XDG_CACHE_HOME or ~/.cache with /torch-backplane/<device>; in it kernels-2/ab/<key>
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backplane {

using Code = std::vector<char>;

// Where the files are; without a cache nothing, and the reason.
struct CacheFolder {
  std::string path;  // empty: no cache
  std::string refusal;
};
const CacheFolder& cache_folder();

// Code that came with the package, in <package>/kernels beside its lib/: written by `torch-backplane precompile`, read before the cache,
// trusted like the package's libraries.
std::optional<Code> read_bundle(const std::string& key);
void write_bundle(const std::string& folder, const std::string& key, const Code& code);  // throws if it cannot be written

// Code that came inside a program, in an AOTInductor package: read first, trusted like the program. It is copied.
void offer_code(const std::string& key, std::string_view code);
std::optional<Code> read_offered(const std::string& key);

// The name for these texts: 40 hexadecimal digits.
std::string cache_key(const std::vector<std::string_view>& parts);

// The code of a key. A damaged file is removed.
std::optional<Code> read_cache(const std::string& key);
void write_cache(const std::string& key, const Code& code);
void forget_cached(const std::string& key);

// One process compiles a key while the others wait for its file, 60 s at most.
class CacheLock {
 public:
  explicit CacheLock(const std::string& key);
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  int file_ = -1;
};

// Keeps the source of a unit that the compiler refused; returns its path, or "" if it could not be kept.
std::string keep_failed_source(const std::string& key, std::string_view source, const char* extension);

}  // namespace backplane
