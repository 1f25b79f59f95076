// drivers/spirv/preprocessor.cpp: directives.
#include "preprocessor.h"

#include <algorithm>

namespace backplane::driver::spirv {

Preprocessor::Preprocessor(std::string_view text, Names& names, const std::string& unit,
                           const std::vector<std::pair<std::string, std::string>>& defined)
    : names_(names), file_(unit), text_(tokenize(text, names, unit)) {
  for (const auto& [name, body] : defined) define(tokenize(names_.keep(name + " " + body), names_, unit));
  for (const auto& [name, special] : {std::pair{"__LINE__", Macro::Special::line}, std::pair{"__FILE__", Macro::Special::file}}) {
    Macro& macro = macros_.emplace_back();
    macro.name = &names_.symbol(name);
    macro.special = special;
    macro.name->macro = &macro;
  }
}

bool Preprocessor::read_text(Token& out) {
  for (;;) {
    if (at_ == text_.size()) {
      if (!groups_.empty()) fail(groups_.back().line, "an #if without #endif");
      return false;
    }
    if (text_[at_].begins_line && text_[at_].is("#")) {
      directive();
      continue;
    }
    out = text_[at_++];
    out.line = static_cast<uint32_t>(out.line + line_shift_);
    line_ = out.line;
    return true;
  }
}

std::vector<Token> Preprocessor::rest_of_line() {
  std::vector<Token> out;
  for (; at_ < text_.size() && !text_[at_].begins_line; ++at_) out.push_back(text_[at_]);
  return out;
}

void Preprocessor::directive() {
  const auto number = static_cast<uint32_t>(text_[at_].line + line_shift_);
  line_ = number;
  ++at_;
  std::vector<Token> line = rest_of_line();
  if (line.empty()) return;
  const std::string_view name = line[0].text;
  const auto named = [&]() -> Symbol& {
    if (line.size() != 2 || line[1].kind != Token::Kind::name) fail(number, "#" + std::string(name) + " takes one name");
    return *line[1].symbol;
  };
  const auto open = [&](bool is_taken) {
    groups_.push_back({number, is_taken, is_taken, false});
    if (!is_taken) skip_group();
  };
  if (name == "define") {
    define({line.begin() + 1, line.end()});
  } else if (name == "undef") {
    named().macro = nullptr;
  } else if (name == "ifdef") {
    open(named().macro != nullptr);
  } else if (name == "ifndef") {
    open(named().macro == nullptr);
  } else if (name == "if") {
    open(condition({line.begin() + 1, line.end()}, number));
  } else if (name == "elif" || name == "else") {
    if (groups_.empty() || groups_.back().has_else) fail(number, "#" + std::string(name) + " without #if");
    groups_.back().has_else = name == "else";
    skip_group();  // the group that ends here was taken
  } else if (name == "endif") {
    if (groups_.empty()) fail(number, "#endif without #if");
    groups_.pop_back();
  } else if (name == "line") {
    line_directive(line);
  } else if (name == "error") {
    std::string message;
    for (size_t i = 1; i < line.size(); ++i) message += std::string(message.empty() ? "" : " ") + std::string(line[i].text);
    fail(number, "#error: " + message);
  } else if (name == "include") {
    fail(number, "#include: a unit of the dialect is one text; there are no files to include");
  } else if (name != "pragma") {
    fail(number, "#" + std::string(name) + " is no directive");
  }
}

/// At the line behind one whose group is not taken, or that ended one: moves behind the line from which on tokens are taken.
void Preprocessor::skip_group() {
  for (size_t depth = 0; at_ < text_.size(); ++at_) {
    if (!text_[at_].begins_line || !text_[at_].is("#") || at_ + 1 == text_.size() || text_[at_ + 1].begins_line) continue;
    const std::string_view name = text_[at_ + 1].text;
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      ++depth;
    } else if (name == "endif") {
      if (depth-- == 0) return;  // directive() reads it
    } else if (depth == 0 && (name == "elif" || name == "else")) {
      Group& group = groups_.back();
      const auto number = static_cast<uint32_t>(text_[at_].line + line_shift_);
      if (group.has_else) fail(number, "#" + std::string(name) + " behind #else");
      at_ += 2;
      const std::vector<Token> line = rest_of_line();
      group.has_else = name == "else";
      if (!group.was_taken && (name == "else" || condition(line, number))) {
        group.was_taken = true;
        return;
      }
      --at_;
    }
  }
}

void Preprocessor::define(std::vector<Token> line) {
  const uint32_t number = line.empty() ? line_ : static_cast<uint32_t>(line[0].line + line_shift_);
  if (line.empty() || line[0].kind != Token::Kind::name) fail(number, "#define takes a name");
  Macro& macro = macros_.emplace_back();
  macro.name = line[0].symbol;
  size_t at = 1;
  if (line.size() > 1 && line[1].is("(") && !line[1].has_space) {
    macro.is_function = true;
    for (at = 2;; ++at) {
      if (at < line.size() && line[at].is(")") && macro.parameters.empty()) break;
      if (at >= line.size()) fail(number, "#define " + std::string(macro.name->name) + ": its parameters have no end");
      if (line[at].is("...")) {
        macro.is_variadic = true;
        macro.parameters.push_back(&names_.symbol("__VA_ARGS__"));
      } else if (line[at].kind == Token::Kind::name && !macro.is_variadic) {
        macro.parameters.push_back(line[at].symbol);
      } else {
        fail(number, "#define " + std::string(macro.name->name) + ": a parameter is a name");
      }
      ++at;
      if (at < line.size() && line[at].is(")")) break;
      if (at >= line.size() || !line[at].is(",")) fail(number, "#define " + std::string(macro.name->name) + ": its parameters have no end");
    }
    ++at;
  }
  macro.body.assign(line.begin() + static_cast<std::ptrdiff_t>(std::min(at, line.size())), line.end());
  if (!macro.body.empty()) macro.body[0].has_space = false;
  for (const Token& token : macro.body) {
    const auto found = std::find(macro.parameters.begin(), macro.parameters.end(), token.symbol);
    const bool is_parameter = token.kind == Token::Kind::name && found != macro.parameters.end();
    macro.parameter_of.push_back(is_parameter ? static_cast<int32_t>(found - macro.parameters.begin()) : -1);
    if (token.is("##") || (macro.is_function && token.is("#"))) macro.joins = true;
  }
  macro.name->macro = &macro;
}

bool Preprocessor::condition(const std::vector<Token>& line, uint32_t number) {
  std::vector<Token> asked;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!line[i].is_name("defined")) {
      asked.push_back(line[i]);
      continue;
    }
    const bool has_parenthesis = i + 1 < line.size() && line[i + 1].is("(");
    i += has_parenthesis ? 2 : 1;
    if (i >= line.size() || line[i].kind != Token::Kind::name) fail(number, "defined takes a name");
    Token answer;
    answer.kind = Token::Kind::number;
    answer.text = line[i].symbol->macro ? "1" : "0";
    answer.line = number;
    asked.push_back(answer);
    if (has_parenthesis && (++i >= line.size() || !line[i].is(")"))) fail(number, "defined( without )");
  }
  return evaluate(expand_all(asked), number, file_) != 0;
}

void Preprocessor::line_directive(const std::vector<Token>& line) {
  uint64_t value = 0;
  bool is_unsigned = false, is_long = false;
  if (line.size() < 2 || !integer_value(line[1].text, value, is_unsigned, is_long)) fail(line_, "#line takes a number");
  line_shift_ = static_cast<int64_t>(value) - static_cast<int64_t>(line[0].line) - 1;
  if (line.size() > 2 && line[2].kind == Token::Kind::string) file_ = std::string(line[2].text.substr(1, line[2].text.size() - 2));
}

int64_t Preprocessor::value_of(std::string_view macro, int64_t fallback) {
  Symbol& symbol = names_.symbol(macro);
  if (!symbol.macro || symbol.macro->is_function) return fallback;
  return evaluate(expand_all(symbol.macro->body), line_, file_);
}

}  // namespace backplane::driver::spirv
