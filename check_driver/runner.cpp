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
#include <map>

#include "busy_stream.h"
#include "context.h"
#include "loader.h"
#include "process.h"

namespace backplane::check {
namespace runner_impl {

using Clock = std::chrono::steady_clock;

// The message of a child to its parent: fields that end with a NUL each.
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

Message verdict(const Options& options, const Check& check, int attempt) {
  Context context(options);
  set_hold_attempt(attempt);
  try {
    if (!(check.needs & starts_unloaded)) {
      context.load();
      context.require_needs(check.needs);
      if (check.needs & breaks_device) context.make_breakable();
      if (!(check.needs & starts_closed)) context.open();
    }
    check.run(context);
    return {"passed"};
  } catch (const Failure& failure) {
    return {"failed", failure.text, failure.rule};
  } catch (const NotOffered& missing) {
    return {"not offered", missing.reason};
  } catch (const NotRun& missing) {
    return {missing.again ? "again" : "not run", missing.reason};
  } catch (const driver::LoadFailure& failure) {
    return {"failed", failure.text, rule_of(failure.step)};
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

std::string Result::family() const {
  const std::string id = check->id;
  return id.substr(0, id.find('.'));
}

std::vector<std::string> families_not_run(const std::vector<Result>& results) {
  std::vector<std::string> families;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string family = results[i].family();
    if (i > 0 && results[i - 1].family() == family) continue;
    bool ran = false;
    const Result* missing = nullptr;
    for (const Result& result : results) {
      if (result.family() != family) continue;
      if (result.outcome == Outcome::not_run) {
        if (!missing) missing = &result;
      } else {
        ran = ran || result.outcome != Outcome::not_offered;  // a check that is skipped has its reason
      }
    }
    if (missing && !ran) families.push_back(family + " (" + missing->text + ")");
  }
  return families;
}

namespace runner_impl {

Result judged(const Options& options, const Check& check, int attempt) {
  const auto start = Clock::now();
  const Child child = run(options.limit_s, [&] { return verdict(options, check, attempt); });
  Result result;
  result.check = &check;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.output = child.output;
  const auto field = [&](size_t i) { return i < child.message.size() ? child.message[i] : std::string(); };
  const std::string last_call = child.call.empty() ? "" : "; the last call was " + child.call;
  if (!child.end.empty()) {
    result.outcome = Outcome::failed;
    result.text = child.end + last_call;
    result.rule = child.end.rfind("hung", 0) == 0 ? "every entry comes back: a wait ends with the work or with its timeout"
                                                  : "every entry returns a bp_status. No exception and no longjmp crosses the line";
    return result;
  }
  if (field(0) == "again" && attempt == 0) {
    Result longer = judged(options, check, 1);
    longer.seconds += result.seconds;
    return longer;
  }
  result.text = field(1);
  static const std::map<std::string, Outcome> outcomes = {{"passed", Outcome::passed},
                                                          {"not offered", Outcome::not_offered},
                                                          {"not run", Outcome::not_run},
                                                          {"again", Outcome::not_run},
                                                          {"load error", Outcome::load_error}};
  const auto known = outcomes.find(field(0));
  result.outcome = known == outcomes.end() ? Outcome::failed : known->second;
  if (result.outcome == Outcome::failed) {
    if (field(0).empty()) result.text = "the driver ended the process" + last_call;
    result.rule = field(2);
  }
  return result;
}

}  // namespace runner_impl

Result run_check(const Options& options, const Check& check) {
  if (const std::string* why = reason_for(options.skipped, check.id)) {
    Result result;
    result.check = &check;
    result.outcome = Outcome::skipped;
    result.reason = *why;
    return result;
  }
  Result result = runner_impl::judged(options, check, 0);
  if (const std::string* why = reason_for(options.expected, check.id)) {
    result.reason = *why;
    if (result.outcome == Outcome::failed) result.outcome = Outcome::expected;
    if (result.outcome == Outcome::passed) {
      result.outcome = Outcome::unexpected;
      result.text = "it passes, though it is expected to fail (" + *why + "): drop its --expect";
    }
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
      return {};  // the checks report why
    }
  });
  Account account;
  if (child.message.size() == 3) account = {child.message[0], child.message[1], child.message[2]};
  return account;
}

}  // namespace backplane::check
