// check_driver/junit.cpp: the results as JUnit XML: one test case for each check, its family as the class.
#include <stdio.h>

#include <initializer_list>
#include <map>

#include "report.h"

namespace backplane::check {
namespace junit_impl {

// Length of the valid UTF-8 sequence at text[at] that XML 1.0 may hold; 0 if there is none.
size_t xml_char(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  const size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xc2 && first < 0xe0 ? 2 : 0;
  if (!length) return 0;
  unsigned code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool shortest = code >= (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u);
  const bool allowed = code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) && code != 0xfffe && code != 0xffff;
  return shortest && allowed ? length : 0;
}

// What JUnit knows as skipped: a row that neither passed nor failed the run, and why. Empty for the others.
std::string left_out(const Result& result) {
  switch (result.outcome) {
    case Outcome::not_offered:
      return "not offered: " + result.text;
    case Outcome::not_run:
      return result.text;
    case Outcome::skipped:
      return "skipped: " + result.reason;
    case Outcome::expected:
      return "failed as expected (" + result.reason + "): " + result.text;
    default:
      return "";
  }
}

}  // namespace junit_impl

std::string xml_text(const std::string& text) {
  static const std::map<char, std::string> entities = {{'&', "&amp;"},   {'<', "&lt;"},   {'>', "&gt;"},   {'"', "&quot;"},
                                                       {'\'', "&apos;"}, {'\n', "&#10;"}, {'\r', "&#13;"}, {'\t', "&#9;"}};
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t length = junit_impl::xml_char(text, at);
    if (!length) {
      result += "\xef\xbf\xbd";  // U+FFFD
      ++at;
      continue;
    }
    const auto entity = entities.find(text[at]);
    result += entity == entities.end() ? text.substr(at, length) : entity->second;
    at += length;
  }
  return result;
}

bool write_junit(const Options& options, const std::vector<Result>& results, double seconds) {
  FILE* file = fopen(options.junit.c_str(), "w");
  if (!file) return false;
  const auto count = [&](std::initializer_list<Outcome> outcomes) {
    long sum = 0;
    for (Outcome outcome : outcomes) sum += count_of(results, outcome);
    return sum;
  };
  const long failures = count({Outcome::failed, Outcome::unexpected});
  const long skipped = count({Outcome::not_offered, Outcome::not_run, Outcome::skipped, Outcome::expected});
  fprintf(file, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  fprintf(file, "<testsuites name=\"backplane-check-driver\" tests=\"%zu\" failures=\"%ld\" errors=\"0\" skipped=\"%ld\" time=\"%.3f\">\n",
          results.size(), failures, skipped, seconds);
  fprintf(file, "  <testsuite name=\"%s\" tests=\"%zu\" failures=\"%ld\" errors=\"0\" skipped=\"%ld\" time=\"%.3f\">\n",
          xml_text(options.driver).c_str(), results.size(), failures, skipped, seconds);
  fprintf(file, "    <properties>\n      <property name=\"options\" value=\"%s\"/>\n", xml_text(options.config).c_str());
  for (const std::string& shim : options.shims) fprintf(file, "      <property name=\"shim\" value=\"%s\"/>\n", xml_text(shim).c_str());
  fprintf(file, "    </properties>\n");
  for (const Result& result : results) {
    fprintf(file, "    <testcase classname=\"%s\" name=\"%s\" time=\"%.3f\"", xml_text(result.family()).c_str(),
            xml_text(result.check->id).c_str(), result.seconds);
    if (result.outcome == Outcome::passed) {
      fprintf(file, "/>\n");
      continue;
    }
    if (const std::string why = junit_impl::left_out(result); !why.empty()) {
      fprintf(file, ">\n      <skipped message=\"%s\"/>\n", xml_text(why).c_str());
    } else {
      fprintf(file, ">\n      <failure message=\"%s\">driver.h says: %s</failure>\n", xml_text(result.text).c_str(),
              xml_text(result.rule).c_str());
      if (!result.output.empty()) fprintf(file, "      <system-out>%s</system-out>\n", xml_text(result.output).c_str());
    }
    fprintf(file, "    </testcase>\n");
  }
  fprintf(file, "  </testsuite>\n</testsuites>\n");
  const bool written = !ferror(file);
  return fclose(file) == 0 && written;
}

}  // namespace backplane::check
