// check_driver/runner.cpp: fork, a time limit, and the child's verdict through a pipe.
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>

#include "context.h"
#include "loader.h"
#include "process.h"

namespace backplane::check {
namespace runner_impl {

using Clock = std::chrono::steady_clock;

// What a child tells its parent: fields that end with a NUL each.
using Message = std::vector<std::string>;

void send(int pipe, const Message& message) {
  std::string bytes;
  for (const std::string& field : message) bytes += field.substr(0, field.find('\0')) + '\0';
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(pipe, bytes.data() + at, bytes.size() - at);
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

std::string read_file(FILE* file, size_t limit) {
  std::string text(limit, '\0');
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  fseek(file, size > static_cast<long>(limit) ? size - static_cast<long>(limit) : 0, SEEK_SET);
  text.resize(fread(text.data(), 1, limit, file));
  return text;
}

struct Child {
  Message message;
  std::string end;  // of wait_for_child
  std::string call;
  std::string output;
};

// Runs body in a child and collects what it sent. The message goes through a file, so that no size of it can block the child.
Child run(double limit_s, const std::function<Message()>& body) {
  Child result;
  FILE* message = tmpfile();
  FILE* output = tmpfile();
  void* shared = mmap(nullptr, sizeof(Breadcrumb), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!message || !output || shared == MAP_FAILED) throw std::bad_alloc();
  auto* breadcrumb = static_cast<Breadcrumb*>(shared);
  fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);  // so that a hung check takes its own children along
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
#else
    (void)parent;
#endif
    dup2(fileno(output), STDOUT_FILENO);
    dup2(fileno(output), STDERR_FILENO);
    set_breadcrumb(breadcrumb);
    send(fileno(message), body());
    fflush(nullptr);
    _exit(0);
  }
  if (child > 0) setpgid(child, child);
  result.end = child < 0 ? "could not be forked" : wait_for_child(child, limit_s);
  if (child > 0) kill(-child, SIGKILL);
  const std::string bytes = read_file(message, 1 << 16);
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', at), bytes.size());
    result.message.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  result.output = read_file(output, 4000);
  breadcrumb->call[sizeof breadcrumb->call - 1] = 0;
  result.call = breadcrumb->call;
  munmap(shared, sizeof(Breadcrumb));
  fclose(message);
  fclose(output);
  return result;
}

Message verdict(const Options& options, const Check& check) {
  Context context(options);
  try {
    if (!(check.needs & starts_unloaded)) {
      context.load();
      context.require_needs(check.needs);
      if (!(check.needs & starts_closed)) context.open();
    }
    check.run(context);
    return {"passed"};
  } catch (const Failure& failure) {
    return {"failed", failure.text, failure.rule};
  } catch (const NotOffered& missing) {
    return {"not offered", missing.reason};
  } catch (const LoadFailure& failure) {
    return {"failed", failure.text, failure.rule};
  } catch (const LoadError& error) {
    return {"load error", error.text};
  } catch (const std::exception& error) {
    return {"failed", std::string(traced_call()) + " threw a C++ exception: " + error.what(),
            "No exception and no longjmp crosses the line"};
  } catch (...) {
    return {"failed", std::string(traced_call()) + " threw a C++ exception", "No exception and no longjmp crosses the line"};
  }
}

std::string gigabytes(uint64_t bytes) { return bytes ? format("%.1f GiB", static_cast<double>(bytes) / (1 << 30)) : "memory not stated"; }

}  // namespace runner_impl

long count_of(const std::vector<Result>& results, Outcome outcome) {
  return std::count_if(results.begin(), results.end(), [&](const Result& result) { return result.outcome == outcome; });
}

Result run_check(const Options& options, const Check& check) {
  const auto start = runner_impl::Clock::now();
  const runner_impl::Child child = runner_impl::run(options.limit_s, [&] { return runner_impl::verdict(options, check); });
  Result result;
  result.check = &check;
  result.seconds = std::chrono::duration<double>(runner_impl::Clock::now() - start).count();
  result.output = child.output;
  const auto field = [&](size_t i) { return i < child.message.size() ? child.message[i] : std::string(); };
  const std::string last_call = child.call.empty() ? "" : "; the last call was " + child.call;
  if (!child.end.empty()) {
    result.outcome = Outcome::failed;
    result.text = child.end + last_call;
    result.rule = child.end.rfind("hung", 0) == 0 ? "every entry comes back: a wait ends with the work or with its timeout"
                                                  : "every entry returns a bp_status. No exception and no longjmp crosses the line";
  } else if (field(0) == "passed") {
    result.outcome = Outcome::passed;
  } else if (field(0) == "not offered") {
    result.outcome = Outcome::not_offered;
    result.text = field(1);
  } else if (field(0) == "load error") {
    result.outcome = Outcome::load_error;
    result.text = field(1);
  } else {
    result.outcome = Outcome::failed;
    result.text = field(0).empty() ? "the driver ended the process" + last_call : field(1);
    result.rule = field(2);
  }
  return result;
}

Account describe(const Options& options) {
  const runner_impl::Child child = runner_impl::run(options.limit_s, [&]() -> runner_impl::Message {
    try {
      const Stack stack = load(options);
      std::string shims;
      for (const std::string& shim : stack.shims) shims += (shims.empty() ? "" : " over ") + shim;
      Context context(options);
      context.load();
      std::string devices = std::to_string(context.devices());
      for (int32_t d = 0; d < context.devices(); ++d) {
        const bp_device_properties& p = context.properties(d);
        devices += format("%s %.127s (%s)", d ? "," : ":", p.name, runner_impl::gigabytes(p.total_memory).c_str());
      }
      return {shims, stack.note, devices};
    } catch (...) {
      return {};  // the checks tell why
    }
  });
  Account account;
  if (child.message.size() == 3) account = {child.message[0], child.message[1], child.message[2]};
  return account;
}

}  // namespace backplane::check
