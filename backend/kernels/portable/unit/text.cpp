// kernels/portable/unit/text.cpp: appends parts to a string.
#include "kernels/portable/unit/text.h"

#include <charconv>

namespace backplane::portable {

void Part::append_to(std::string& text) const {
  if (is_number()) {
    char digits[20];  // enough for -2^63
    text.append(digits, std::to_chars(digits, digits + sizeof digits, number_).ptr);
  } else {
    text.append(this->text());
  }
}

void append_parts(std::string& text, std::initializer_list<Part> parts) {
  for (const Part& part : parts) part.append_to(text);
}

std::string join_parts(std::initializer_list<Part> parts) {
  std::string text;
  append_parts(text, parts);
  return text;
}

std::string replaced(std::string text, std::string_view what, const Part& by) {
  const std::string written = join_parts({by});
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + written.size()))
    text.replace(at, what.size(), written);
  return text;
}

}  // namespace backplane::portable
