// check_driver/report.h: the results as a table on the terminal and as JUnit XML.
#pragma once

#include <vector>

#include "runner.h"

namespace backplane::check {

// Prints row by row. Colour on a terminal only, and not with NO_COLOR.
class Table {
 public:
  explicit Table(const Options& options);
  void head(const Account& account) const;
  void row(const Result& result) const;
  void foot(const std::vector<Result>& results, double seconds) const;

 private:
  const char* colour(const char* code) const { return colours_ ? code : ""; }

  const Options& options_;
  bool colours_;
  int width_;  // of the check names
};

// False if the file cannot be written; errno is the reason.
bool write_junit(const Options& options, const std::vector<Result>& results, double seconds);

// Text for XML 1.0: markup escaped, and what XML cannot hold replaced.
std::string xml_text(const std::string& text);

}  // namespace backplane::check
