// check_driver/report.cpp: the table: one row for each check, the reason under each failure, a summary line.
#include "report.h"

#include <backplane/driver.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace backplane::check {
namespace report_impl {

constexpr char red[] = "\033[31m", green[] = "\033[32m", yellow[] = "\033[33m", bold[] = "\033[1m", dim[] = "\033[2m", plain[] = "\033[0m";
constexpr int what_width = 53;

struct Look {
  const char* word;
  const char* colour;
  bool ran;
};

Look look_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::passed:
      return {"ok", green, true};
    case Outcome::expected:
      return {"expected", yellow, true};
    case Outcome::not_offered:
      return {"not offered", yellow, false};
    case Outcome::not_run:
      return {"not run", yellow, false};
    case Outcome::skipped:
      return {"skipped", yellow, false};
    default:
      return {"FAIL", red, true};
  }
}

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
  const report_impl::Look look = report_impl::look_of(result.outcome);
  printf("  %s%-11s%s  %-*s  %s%-*s", colour(look.colour), look.word, colour(report_impl::plain), width_, check.id,
         look.ran ? "" : colour(report_impl::dim), report_impl::what_width, check.what);
  if (look.ran) {
    printf("  %6.2f s\n", result.seconds);
  } else {
    printf("  %s%s\n", result.reason.empty() ? result.text.c_str() : result.reason.c_str(), colour(report_impl::plain));
  }
  if (result.outcome == Outcome::expected) report_impl::print_wrapped("as expected: " + result.reason, "               ", 120);
  if (look.ran && result.outcome != Outcome::passed) {
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
  const long failed = count_of(results, Outcome::failed) + count_of(results, Outcome::unexpected);
  printf("\n  %s%ld passed, %ld failed, %ld not offered", colour(failed ? report_impl::red : report_impl::green),
         count_of(results, Outcome::passed), failed, count_of(results, Outcome::not_offered));
  constexpr std::pair<Outcome, const char*> others[] = {
      {Outcome::not_run, "not run"}, {Outcome::expected, "failed as expected"}, {Outcome::skipped, "skipped"}};
  for (const auto& [outcome, word] : others) {
    if (const long count = count_of(results, outcome)) printf(", %ld %s", count, word);
  }
  printf("%s in %.1f s\n", colour(report_impl::plain), seconds);
}

}  // namespace backplane::check
