// kernels/portable/text.h: joins the parts of a kernel's text, out of line: a text is made once a process, and streams or chains of + at
// every place would take a vendor's compiler longer than what they write is worth.
//
//   append(body, "const C ", letter, " = LOAD", k, "(a", k, ", i); ");
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace backplane::portable {

// A string, which the part does not own, or a whole number, which is written in decimal digits.
class Part {
 public:
  Part(const char* text) : text_(text), number_(kToItsEnd) {}
  Part(std::string_view text) : text_(text.data()), number_(static_cast<int64_t>(text.size())) {}
  Part(const std::string& text) : Part(std::string_view(text)) {}
  template <std::integral Number>
  Part(Number number) : text_(nullptr), number_(static_cast<int64_t>(number)) {}
  Part(char) = delete;

  void append_to(std::string& text) const;

 private:
  static constexpr int64_t kToItsEnd = -1;
  const char* text_;  // NULL: a number
  int64_t number_;    // or the text's size
};

void append_parts(std::string& text, std::initializer_list<Part> parts);
std::string join_parts(std::initializer_list<Part> parts);

template <typename... Parts>
void append(std::string& text, const Parts&... parts) {
  append_parts(text, {Part(parts)...});
}
template <typename... Parts>
std::string join(const Parts&... parts) {
  return join_parts({Part(parts)...});
}

// With another part wherever `what` stands.
std::string replaced(std::string text, std::string_view what, const Part& by);

// A line of #define.
template <typename... Parts>
void define(std::string& text, const Part& word, const Parts&... meaning) {
  append_parts(text, {"#define ", word, " ", Part(meaning)..., "\n"});
}

}  // namespace backplane::portable
