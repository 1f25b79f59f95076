// drivers/sim/shared_file.h: memory that processes share without a name in a file system, by which nothing is left behind when one dies.
//
// It is a memfd, which another process of the same user opens through /proc/<pid>/fd. A handle names process, descriptor and inode, so that
// a number that was used again is noticed.
#pragma once

#include <atomic>
#include <cstdint>

#include <backplane/driver/ipc.h>

namespace backplane::driver::sim {

/// An open file, closed at the end.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  ~File();
  File(File&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  File& operator=(File&&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

/// What a handle may be one of.
enum class What : uint32_t { memory = 1, event = 2, rendezvous = 3 };

/// What the bytes of a handle are.
struct Name {
  char magic[8];
  What what;
  int32_t process;
  int32_t file;
  int32_t unused;
  uint64_t device;
  uint64_t inode;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Name) <= sizeof(bp_ipc_handle));

/// A new file of zeros; `name` is what /proc shows. Throws OUT_OF_MEMORY.
File make_file(const char* name, uint64_t bytes);

bp_ipc_handle handle_of(What what, int file, uint64_t offset, uint64_t bytes);
/// Throws INVALID_ARGUMENT for bytes that are no handle of that.
Name name_of(const bp_ipc_handle& handle, What what);
/// Opens the file that a name means, and no other. Throws INVALID_ARGUMENT.
File open_file(const Name& name);

/// True for a process that has ended, waited for or not.
bool has_ended(int32_t process);

/// Wakes who sleeps on a number that processes share; sleeps until it is another one than `seen` or the time is over, or for no reason.
void wake_all(std::atomic<uint32_t>& number);
void sleep_on(std::atomic<uint32_t>& number, uint32_t seen, uint64_t ns);

}  // namespace backplane::driver::sim
