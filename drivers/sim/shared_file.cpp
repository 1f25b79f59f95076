// drivers/sim/shared_file.cpp: memfds, handles of them, and what wakes another process.
#include "shared_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::sim {
namespace {

constexpr char kMagic[8] = "bp-sim1";

const char* text_of(What what) { return what == What::memory ? "memory" : what == What::event ? "an event" : "a communicator"; }

}  // namespace

File::~File() {
  if (number_ >= 0) ::close(number_);
}

File make_file(const char* name, uint64_t bytes) {
  File file(memfd_create(name, MFD_CLOEXEC));
  if (file.number() < 0 || ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) {
    throw Error(BP_OUT_OF_MEMORY, std::string("no memory that processes share: ") + std::strerror(errno));
  }
  return file;
}

bp_ipc_handle handle_of(What what, int file, uint64_t offset, uint64_t bytes) {
  struct stat status{};
  if (fstat(file, &status) != 0) throw Error(BP_INTERNAL, std::string("ipc: fstat: ") + std::strerror(errno));
  Name name{{}, what, getpid(), file, 0, status.st_dev, status.st_ino, offset, bytes};
  std::memcpy(name.magic, kMagic, sizeof kMagic);
  bp_ipc_handle handle{};
  std::memcpy(handle.bytes, &name, sizeof name);
  return handle;
}

Name name_of(const bp_ipc_handle& handle, What what) {
  Name name;
  std::memcpy(&name, handle.bytes, sizeof name);
  if (std::memcmp(name.magic, kMagic, sizeof kMagic) != 0 || name.what != what) {
    throw Error(BP_INVALID_ARGUMENT, std::string("ipc: these bytes are no handle of ") + text_of(what));
  }
  return name;
}

File open_file(const Name& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  File file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.number() < 0) {
    const bool gone = errno == ENOENT || errno == ESRCH;
    throw Error(BP_INVALID_ARGUMENT, "ipc: cannot open " + path + ": " + (gone ? "the process has ended" : std::strerror(errno)));
  }
  struct stat status{};
  // The sums below, up to whole pages, cannot overflow then.
  const auto inside = [&](uint64_t size) { return name.offset <= size && name.bytes <= size - name.offset; };
  if (fstat(file.number(), &status) == 0 && status.st_dev == name.device && status.st_ino == name.inode &&
      inside(static_cast<uint64_t>(status.st_size))) {
    return file;
  }
  throw Error(BP_INVALID_ARGUMENT, "ipc: " + path + " is not what the handle means: that process has closed it");
}

bool has_ended(int32_t process) {
  if (process == getpid()) return false;
  const File file(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (file.number() < 0) return errno == ESRCH;
  pollfd ended{file.number(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 1;
}

void wake_all(std::atomic<uint32_t>& number) { syscall(SYS_futex, &number, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void sleep_on(std::atomic<uint32_t>& number, uint32_t seen, uint64_t ns) {
  const timespec nap{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &number, FUTEX_WAIT, seen, &nap, nullptr, 0);
}

}  // namespace backplane::driver::sim
