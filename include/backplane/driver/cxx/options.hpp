// backplane/driver/cxx/options.hpp: reads a driver's option string, "devices=4,memory=2GiB", with errors that list every known key.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.hpp"

namespace backplane::driver {

/// Use: construct from bp_host.config, ask for every key that the driver knows, then call finish(). A bad value or an unknown key is
/// reported by finish() alone, so that its text can list all keys with what they take.
///
///     Options options(host.config());
///     devices_ = options.integer("devices", 2, 0, 64);
///     memory_ = options.size("memory", 8 * GiB);
///     kind_ = options.choice("kind", Kind::unified, {{"unified", Kind::unified}, {"discrete", Kind::discrete}});
///     options.finish();
class Options {
 public:
  explicit Options(std::string_view text) {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      const std::string_view item = trimmed(text.substr(at, end - at));
      at = end + 1;
      if (item.empty()) continue;
      const size_t equals = item.find('=');
      if (equals == std::string_view::npos) {
        problem("'" + std::string(item) + "' is not key=value");
        continue;
      }
      const std::string key(trimmed(item.substr(0, equals)));
      for (const Given& other : given_) {
        if (other.key == key) problem("'" + key + "' is given twice");
      }
      given_.push_back({key, std::string(trimmed(item.substr(equals + 1))), false});
    }
  }

  /// A whole number in [least, greatest].
  int64_t integer(const char* key, int64_t value, int64_t least, int64_t greatest) {
    const std::string form = "<" + std::to_string(least) + ".." + std::to_string(greatest) + ">";
    if (const std::string* text = take(key, form)) {
      const std::optional<int64_t> number = parse<int64_t>(*text);
      if (number && *number >= least && *number <= greatest) return *number;
      bad_value(key, *text, "a number from " + std::to_string(least) + " to " + std::to_string(greatest));
    }
    return value;
  }

  /// Bytes: "4096", "64KiB", "512MiB", "2GiB", "1TiB"; at least 1.
  uint64_t size(const char* key, uint64_t value) {
    if (const std::string* text = take(key, "<size>")) {
      if (const std::optional<uint64_t> bytes = parse_size(*text)) return *bytes;
      bad_value(key, *text, "a size such as 512MiB or 2GiB");
    }
    return value;
  }

  /// One of a few words.
  template <class Value>
  Value choice(const char* key, Value value, std::initializer_list<std::pair<const char*, Value>> words) {
    std::string form;
    for (const auto& word : words) form += (form.empty() ? "" : "|") + std::string(word.first);
    if (const std::string* text = take(key, form)) {
      for (const auto& word : words) {
        if (*text == word.first) return word.second;
      }
      bad_value(key, *text, form);
    }
    return value;
  }

  /// Any text without a comma. form: how the list of known keys shows it.
  std::string text(const char* key, std::string value = "", const char* form = "<text>") {
    const std::string* given = take(key, form);
    return given ? *given : value;
  }

  /// Throws Error(BP_INVALID_ARGUMENT) for the first thing that was wrong.
  void finish() const {
    std::string wrong = problem_;
    for (const Given& option : given_) {
      if (wrong.empty() && !option.known) wrong = "unknown option '" + option.key + "'";
    }
    if (!wrong.empty()) throw Error(BP_INVALID_ARGUMENT, "options: " + wrong + "; known: " + known_);
  }

 private:
  struct Given {
    std::string key, value;
    bool known;
  };

  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
  }

  template <class Number>
  static std::optional<Number> parse(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
  }

  static std::optional<uint64_t> parse_size(std::string_view text) {
    uint64_t unit = 1;
    for (const auto& [name, bytes] : {std::pair{"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}}) {
      if (text.size() >= 3 && text.substr(text.size() - 3) == name) {
        unit = bytes;
        text.remove_suffix(3);
      }
    }
    const std::optional<uint64_t> number = parse<uint64_t>(text);
    if (!number || *number == 0 || *number > UINT64_MAX / unit) return std::nullopt;
    return *number * unit;
  }

  const std::string* take(const char* key, const std::string& form) {
    known_ += (known_.empty() ? "" : ", ") + std::string(key) + "=" + form;
    for (Given& option : given_) {
      if (option.key == key) {
        option.known = true;
        return &option.value;
      }
    }
    return nullptr;
  }

  void bad_value(const char* key, const std::string& found, const std::string& needed) {
    problem(std::string(key) + "=" + found + ": " + needed + " is needed");
  }

  void problem(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  std::vector<Given> given_;
  std::string known_, problem_;
};

}  // namespace backplane::driver
