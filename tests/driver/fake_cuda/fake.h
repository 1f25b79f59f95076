// tests/driver/fake_cuda/fake.h: a libcuda.so.1 for machines without a GPU: what drivers/cuda calls, with memory of the host as the GPUs',
// a thread for each stream, and rules as strict as CUDA's about contexts, handles, ranges and forks. It runs no kernel: it reads what a
// module holds and records what is launched.
//
// Environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_MEMORY in bytes (4 GiB each), FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_FAIL="cuInit=999":
// calls that fail. Functions for tests stand at the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver.h>

#include "../../../drivers/cuda/cuda_api.h"

namespace backplane::driver::cuda {

/// A function of libcuda.so.1; its type is held against the list in cuda_api.h (modules.cpp).
#define FAKE(name, ...) extern "C" BP_EXPORT CUresult name(__VA_ARGS__)

struct ContextObject;
struct CaptureObject;

/// Work in the order of submission, on a separate thread. What fails makes the context fail; what comes behind it reports that.
struct StreamObject {
  using Job = std::function<void(CUresult error)>;
  explicit StreamObject(ContextObject& of) : context(of) {}
  ~StreamObject();

  void push(Job job);
  bool idle();
  void wait();

  ContextObject& context;
  CaptureObject* capture = nullptr;  // that it is in

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;
};

struct ContextObject {
  explicit ContextObject(int of) : ordinal(of) {}
  const int ordinal;
  int retained = 0;
  std::atomic<CUresult> error{CUDA_SUCCESS};
  std::unique_ptr<StreamObject> legacy;
  std::map<StreamObject*, std::unique_ptr<StreamObject>> streams;
  std::set<int> peers;
};

/// The records of an event: which was asked for last, and which have completed. In separate memory, so that processes can share it.
struct Records {
  static constexpr uint64_t kKept = 1024;
  std::atomic<uint64_t> asked, done[kKept];
  std::atomic<int64_t> time[kKept];  // ns
  bool complete(uint64_t record) const { return done[record % kKept].load() >= record; }
};

struct EventObject {
  ContextObject* context;
  unsigned flags;
  bool opened = false;  // of another process
  int file = -1;
  std::shared_ptr<Records> records;
  uint64_t capture = 0;    // id of the capture that its latest record is in
  std::set<size_t> point;  // and there, what it stands behind
};

/// Work of a capture; `after` are numbers of nodes.
struct GraphNode {
  StreamObject::Job job;
  std::set<size_t> after;
};

enum class Kind { device, managed, mapped, opened, pinned, registered };

struct Block {
  uint64_t bytes;
  int ordinal;
  Kind kind;
  int file;
};

struct Parameter {
  size_t offset, bytes;
};

struct FunctionObject {
  std::string name;
  ContextObject* context;
  std::vector<Parameter> parameters;
  size_t parameter_bytes() const { return parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes; }
};

struct ModuleObject {
  ContextObject* context;
  std::map<std::string, FunctionObject> functions;
};

/// The process's fake. Leaked, so that threads may outlive main.
struct State {
  std::recursive_mutex mutex;  // of all that follows but what a call waits for
  pid_t started_in = 0;
  std::vector<std::unique_ptr<ContextObject>> contexts;
  std::map<uint64_t, Block> blocks;
  std::map<uint64_t, uint64_t> reserved;
  std::map<uint64_t, Block> created;  // cuMemCreate: by handle
  std::set<EventObject*> events;
  std::set<ModuleObject*> modules;
  std::vector<uint64_t> used;  // bytes of each device

  struct Failure {
    CUresult result;
    int after, times;
  };
  std::map<std::string, Failure> failures;
  bool recording = false;
  std::string calls;  // a line each
};

State& state();
int device_count();
uint64_t device_bytes();
int capability();

/// What every call begins with: a failure that was asked for, or CUDA that was not started in this process.
CUresult enter(const char* name);
void record(const std::string& line);
/// The calling thread's context; its error, or INVALID_CONTEXT if there is none.
CUresult current(ContextObject** out);
CUresult stream_of(CUstream handle, StreamObject** out);

// Captures (graphs.cpp).

/// This thread runs a graph's nodes.
extern thread_local bool running_graph;

/// Queues work, or a capture takes it.
CUresult submit(StreamObject& stream, StreamObject::Job job);
/// False if no capture has to do with it.
bool record_captured(StreamObject& stream, EventObject& event, CUresult* result);
bool wait_captured(StreamObject& stream, EventObject& event, CUresult* result);
/// What a capture makes of a call that it cannot hold: `with`, and it is invalid.
CUresult refuse_captured(StreamObject& stream, CUresult with = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
CUresult refuse_captured(EventObject& event);
CUresult refuse_unsafe(const char* name);

/// Memory that another process can open by the file.
void* map_file(int* file, uint64_t bytes);
/// A file of another process, or -1.
int open_file_of(pid_t process, int file);
/// file: of another process's event, or -1.
EventObject* make_event(ContextObject& context, unsigned flags, int file);
bool reserve_bytes(int ordinal, uint64_t bytes);
/// Whether [address, address + bytes) is device memory as a whole.
bool on_device(uint64_t address, uint64_t bytes);
void release_context(ContextObject& context);

#define ENTER() \
  if (const CUresult result = enter(__func__)) return result
#define ENTER_CONTEXT()             \
  ENTER();                          \
  ContextObject* context = nullptr; \
  if (const CUresult result = current(&context)) return result
#define ENTER_STREAM(handle)  \
  ENTER_CONTEXT();            \
  StreamObject* on = nullptr; \
  if (const CUresult result = stream_of(handle, &on)) return result

}  // namespace backplane::driver::cuda
