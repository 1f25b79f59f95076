// tests/driver/opencl_fork_test.cpp: children that are forked while other threads compile, compile themselves. Arguments: driver, options.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/cxx/groups.hpp>
#include <backplane/driver/cxx/load.hpp>

using namespace backplane::driver;

namespace {

constexpr char kernel[] =
    "typedef struct { i64 n; } Count;\n"
    "BP_KERNEL(fill, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) { if (BP_GROUP_ID(0) < bp_arg.n) out[BP_GROUP_ID(0)] = ";

/// True if a source that nobody has compiled before gives code.
bool compiles(const bp_compiler& compiler, int value) {
  bp_target_properties target{};
  target.struct_size = sizeof target;
  const char* prelude = nullptr;
  if (compiler.target(compiler.head.self, 0, &target) || compiler.prelude(compiler.head.self, target.target, &prelude)) return false;
  const std::string source = "#define BP_GROUP 1\n#define BP_PER_ITEM 16\n#define BP_HAS_F64 0\n#define BP_VECTOR_BYTES 16\n" +
                             std::string(prelude) + kernel + std::to_string(value) + "; }\n";
  const bp_compile_request request = {sizeof request, target.target, source.c_str(), "forked", "", 0, 0, nullptr, 0, 0};
  bp_compile_result result{};
  result.struct_size = sizeof result;
  const bool made = compiler.compile(compiler.head.self, &request, &result) == BP_OK && result.bytes > 0;
  compiler.release(compiler.head.self, &result);
  return made;
}

}  // namespace

int main(int, char** arguments) {
  const Answer answer = ask(open_library(arguments[1]), arguments[2], nullptr, nullptr);
  const bp_driver table = checked_table(arguments[1], answer);
  const bp_compiler compiler = *find_group<bp_compiler>(table);
  const int base = static_cast<int>(::getpid()) * 1000;
  if (!compiles(compiler, base)) return std::puts("nothing compiles"), 1;
  std::atomic<bool> ends{false};
  std::atomic<int> made{0}, failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!ends) ++(compiles(compiler, base + 100 + made) ? made : failed);
    });
  }
  int children = 0;
  for (int i = 0; i < 8; ++i) {
    const int before = made;
    while (made == before && failed == 0) std::this_thread::yield();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // a lock that is never given back
      ::_exit(compiles(compiler, base + 1 + i) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    children += status == 0;
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  table.close(table.self);
  std::printf("%d children compiled, %d failures\n", children, failed.load());
  return 0;
}
