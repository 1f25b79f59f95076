// kernels/portable/unit/text.h: joins the parts of a kernel's text. Out of line: a text is made once in a process, and streams or chains of
// + would cost compile time at every call.
//
//   append(body, "const C ", letter, " = LOAD", k, "(a", k, ", i); ");
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace backplane::portable {

// A text with static storage, identified by its address.
class Literal {
 public:
  consteval Literal() = default;
  template <size_t size>
  consteval Literal(const char (&text)[size]) : text_(text) {}
  constexpr operator const char*() const { return text_; }
  std::string_view view() const { return text_; }

 private:
  const char* text_ = nullptr;
};

// A string, not owned, or an integer, written in decimal.
class Part {
 public:
  Part(Literal text) : Part(text.view()) { is_literal_ = true; }
  template <size_t size>
  consteval Part(const char (&text)[size]) : text_(text), number_(size - 1), is_literal_(true) {}
  template <typename Text>
    requires std::same_as<Text, const char*>
  Part(const Text& text) : Part(std::string_view(text)) {}
  Part(std::string_view text) : text_(text.data()), number_(static_cast<int64_t>(text.size())) {}
  Part(const std::string& text) : Part(std::string_view(text)) {}
  template <std::integral Number>
  Part(Number number) : text_(nullptr), number_(static_cast<int64_t>(number)) {}
  Part(char) = delete;

  bool is_number() const { return text_ == nullptr; }
  bool is_literal() const { return is_literal_; }
  int64_t number() const { return number_; }
  std::string_view text() const { return {text_, static_cast<size_t>(number_)}; }
  void append_to(std::string& text) const;

 private:
  const char* text_;  // NULL: a number
  int64_t number_;    // or the text's size
  bool is_literal_ = false;
};

// For a forwarded argument: an array's address may be that of a variable.
template <typename Value>
Part part_of(const Value& value) {
  if constexpr (std::is_array_v<Value>) {
    return std::string_view(value);
  } else {
    return value;
  }
}

void append_parts(std::string& text, std::initializer_list<Part> parts);
std::string join_parts(std::initializer_list<Part> parts);

template <typename... Parts>
void append(std::string& text, const Parts&... parts) {
  append_parts(text, {part_of(parts)...});
}
template <typename... Parts>
std::string join(const Parts&... parts) {
  return join_parts({part_of(parts)...});
}

// The text with every `what` replaced.
std::string replaced(std::string text, std::string_view what, const Part& by);

// Appends a #define.
template <typename... Parts>
void define(std::string& text, std::string_view word, const Parts&... meaning) {
  append_parts(text, {"#define ", word, " ", part_of(meaning)..., "\n"});
}

}  // namespace backplane::portable
