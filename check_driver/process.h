// check_driver/process.h: child processes with a time limit, and the threads, files and addresses of this process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace backplane::check {

// How a child ended, "" for a normal end with code 0; else "crashed: SIGSEGV", "hung after 5 s", "ended with code 3".
std::string wait_for_child(pid_t child, double limit_s);

// Forks, runs body in the child, which then ends by exit (with static destructors) or by _exit, and waits. Returns as wait_for_child.
std::string in_child(const std::function<void()>& body, bool run_destructors, double limit_s = 10);

// Entries of a folder of /proc/self: "task" counts threads, "fd" open files. -1 where the system does not report it.
int count_proc(const char* folder);

// Bytes of address space that this process uses. -1 where the system does not report it.
long long address_space();

}  // namespace backplane::check
