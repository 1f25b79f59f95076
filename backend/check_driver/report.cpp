// check_driver/report.cpp: the table: one row a check, the reason under each failure, a summary line.
#include "report.h"

#include <backplane/driver.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

namespace backplane::check {
namespace report_impl {

constexpr char red[] = "\033[31m", green[] = "\033[32m", yellow[] = "\033[33m", bold[] = "\033[1m", dim[] = "\033[2m", plain[] = "\033[0m";
constexpr int what_width = 53;

// Broken at spaces into lines of at most `width`, each behind `indent`.
void print_wrapped(const std::string& text, const char* indent, size_t width) {
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min({text.find('\n', at), at + width, text.size()});
    if (end < text.size() && text[end] != '\n') {
      const size_t space = text.rfind(' ', end);
      if (space != std::string::npos && space > at) end = space;
    }
    printf("%s%.*s\n", indent, static_cast<int>(end - at), text.c_str() + at);
    at = end;
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n')) ++at;
  }
}

}  // namespace report_impl

Table::Table(const Options& options) : options_(options), width_(0) {
  const char* no_color = getenv("NO_COLOR");
  const char* term = getenv("TERM");
  colours_ = isatty(STDOUT_FILENO) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
  for (const Check& check : all_checks()) {
    if (selected(options, check.id)) width_ = std::max(width_, static_cast<int>(strlen(check.id)));
  }
}

void Table::head(const Account& account) const {
  printf("%sbackplane-check-driver%s, driver ABI %u.%u\n", colour(report_impl::bold), colour(report_impl::plain), BP_ABI_MAJOR,
         BP_ABI_MINOR);
  printf("  driver   %s\n", options_.driver.c_str());
  if (!options_.config.empty()) printf("  options  %s\n", options_.config.c_str());
  if (!account.shims.empty()) printf("  shims    %s\n", account.shims.c_str());
  if (!account.note.empty()) printf("           %s\n", account.note.c_str());
  if (!account.devices.empty()) printf("  devices  %s\n", account.devices.c_str());
  printf("\n");
  fflush(stdout);
}

void Table::row(const Result& result) const {
  const Check& check = *result.check;
  const bool offered = result.outcome != Outcome::not_offered;
  const bool passed = result.outcome == Outcome::passed;
  const char* word = passed ? "ok" : offered ? "FAIL" : "not offered";
  printf("  %s%-11s%s  %-*s  %s%-*s",
         colour(passed    ? report_impl::green
                : offered ? report_impl::red
                          : report_impl::yellow),
         word, colour(report_impl::plain), width_, check.id, offered ? "" : colour(report_impl::dim), report_impl::what_width, check.what);
  if (offered) {
    printf("  %6.2f s\n", result.seconds);
  } else {
    printf("  %s%s\n", result.text.c_str(), colour(report_impl::plain));
  }
  if (offered && !passed) {
    report_impl::print_wrapped(result.text, "               ", 120);
    if (!result.rule.empty()) report_impl::print_wrapped("driver.h says: " + result.rule, "               ", 120);
    if (!result.output.empty()) {
      printf("               the driver printed:\n");
      report_impl::print_wrapped(result.output, "                 ", 118);
    }
  }
  fflush(stdout);
}

void Table::foot(const std::vector<Result>& results, double seconds) const {
  const long failed = count_of(results, Outcome::failed);
  printf("\n  %s%ld passed, %ld failed, %ld not offered%s in %.1f s\n", colour(failed ? report_impl::red : report_impl::green),
         count_of(results, Outcome::passed), failed, count_of(results, Outcome::not_offered), colour(report_impl::plain), seconds);
}

}  // namespace backplane::check
