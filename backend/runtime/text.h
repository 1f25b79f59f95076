// runtime/text.h: converts a driver's texts for Python: invalid UTF-8 (another encoding, a truncated character) is replaced.
#pragma once

#include <string>
#include <string_view>

namespace backplane {

inline std::string readable(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  // Length of the character at `at`, 0 if it is invalid.
  const auto length = [&](size_t at) -> size_t {
    const unsigned first = byte(at);
    if (first < 0x80) return 1;
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() - at < bytes) return 0;
    for (size_t i = 1; i < bytes; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return 0;
    }
    const unsigned second = byte(at + 1);
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool outside = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);  // surrogates; beyond U+10FFFF
    return overlong || outside ? 0 : bytes;
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = length(at);
    if (bytes == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD
      ++at;
      continue;
    }
    out.append(text.substr(at, bytes));
    at += bytes;
  }
  return out;
}

// The text of a fixed-size field, up to its NUL or the end of the field.
template <size_t Size>
std::string readable(const char (&field)[Size]) {
  const std::string_view text(field, Size - 1);
  return readable(text.substr(0, text.find('\0')));
}

}  // namespace backplane
