// drivers/spirv/expansion.cpp: macros: arguments, # and ##, and no macro within itself.
#include <algorithm>

#include "preprocessor.h"

namespace backplane::driver::spirv {

void Preprocessor::push(std::vector<Token> tokens, Symbol* expanding) {
  if (expanding) expanding->is_expanding = true;
  Context& context = contexts_.emplace_back();
  context.storage = std::move(tokens);
  context.at = context.storage.data();
  context.end = context.at + context.storage.size();
  context.expanding = expanding;
}

bool Preprocessor::read(Token& out) {
  while (contexts_.size() > floor_) {
    Context& context = contexts_.back();
    if (context.at != context.end) {
      out = *context.at++;
      return true;
    }
    if (context.expanding) context.expanding->is_expanding = false;
    contexts_.pop_back();
  }
  return !is_confined_ && read_text(out);
}

/// Whether the next token is "(", without reading it. Contexts that are used up stay open: a macro's name at its end is still within it.
bool Preprocessor::next_is_parenthesis() {
  for (size_t i = contexts_.size(); i > floor_; --i) {
    if (contexts_[i - 1].at != contexts_[i - 1].end) return contexts_[i - 1].at->is("(");
  }
  while (!is_confined_ && at_ < text_.size() && text_[at_].begins_line && text_[at_].is("#")) directive();
  return !is_confined_ && at_ < text_.size() && text_[at_].is("(");
}

Token Preprocessor::next() {
  Token token;
  while (read(token)) {
    if (token.kind == Token::Kind::name && !token.is_final && token.symbol->macro) {
      if (token.symbol->is_expanding) {
        token.is_final = true;
      } else if (expand(token)) {
        continue;
      }
    }
    return token;
  }
  token = {};
  token.line = line_;
  return token;
}

/// Replaces a macro's name by what it stands for; false if it is a function without arguments.
bool Preprocessor::expand(const Token& name) {
  const Macro& macro = *name.symbol->macro;
  if (macro.special != Macro::Special::none) {
    push({special(macro, name)}, nullptr);
    return true;
  }
  if (!macro.is_function) {
    push(substitute(macro, {}, name), name.symbol);
    return true;
  }
  if (!next_is_parenthesis()) return false;
  const Arguments arguments = read_arguments(macro, name);
  push(substitute(macro, arguments, name), name.symbol);
  return true;
}

Token Preprocessor::special(const Macro& macro, const Token& name) {
  Token out = name;
  const bool is_line = macro.special == Macro::Special::line;
  out.kind = is_line ? Token::Kind::number : Token::Kind::string;
  out.text = names_.keep(is_line ? std::to_string(line_) : '"' + file_ + '"');
  return out;
}

Preprocessor::Arguments Preprocessor::read_arguments(const Macro& macro, const Token& name) {
  Token token;
  read(token);  // the parenthesis
  Arguments out(1);
  for (size_t depth = 0;;) {
    if (!read(token)) fail(name.line, "the arguments of the macro " + std::string(name.text) + " have no end");
    if (token.kind == Token::Kind::name && token.symbol->macro && token.symbol->is_expanding) token.is_final = true;
    if (token.is(")") && depth-- == 0) break;
    if (token.is("(")) ++depth;
    const bool is_rest = macro.is_variadic && out.size() == macro.parameters.size();
    if (token.is(",") && depth == 0 && !is_rest) {
      out.emplace_back();
    } else {
      out.back().push_back(token);
    }
  }
  const size_t wanted = macro.parameters.size();
  if (wanted == 0 && out.size() == 1 && out[0].empty()) out.clear();
  if (macro.is_variadic && out.size() + 1 == wanted) out.emplace_back();
  if (out.size() != wanted) {
    fail(name.line,
         "the macro " + std::string(name.text) + " takes " + std::to_string(wanted) + " arguments, not " + std::to_string(out.size()));
  }
  return out;
}

std::vector<Token> Preprocessor::substitute(const Macro& macro, const Arguments& arguments, const Token& name) {
  std::vector<Token> out;
  std::vector<std::vector<Token>> expanded(arguments.size());
  std::vector<bool> is_expanded(arguments.size());
  const size_t count = macro.body.size();
  const auto is_join = [&](size_t i) { return macro.joins && i < count && macro.body[i].is("##"); };
  for (size_t i = 0; i < count; ++i) {
    const Token& token = macro.body[i];
    const size_t before = out.size();
    const int32_t parameter = macro.parameter_of[i];
    if (is_join(i) && i > 0 && i + 1 < count) {
      // The operands are not expanded; an empty one leaves the other.
      const int32_t right = macro.parameter_of[++i];
      std::vector<Token> tokens = right < 0 ? std::vector<Token>{macro.body[i]} : arguments[static_cast<size_t>(right)];
      const bool has_left = !out.empty() && out.back().kind != Token::Kind::nothing;
      if (!has_left && !out.empty()) out.pop_back();
      if (!tokens.empty() && has_left) {
        out.back() = join(out.back(), tokens[0]);
        tokens.erase(tokens.begin());
      }
      if (tokens.empty() && !has_left) tokens.emplace_back().kind = Token::Kind::nothing;
      out.insert(out.end(), tokens.begin(), tokens.end());
    } else if (macro.is_function && token.is("#") && i + 1 < count && macro.parameter_of[i + 1] >= 0) {
      out.push_back(text_of(arguments[static_cast<size_t>(macro.parameter_of[++i])]));
    } else if (parameter >= 0) {
      const auto index = static_cast<size_t>(parameter);
      const bool is_operand = is_join(i + 1);
      if (!is_operand && !is_expanded[index]) {
        expanded[index] = expand_all(arguments[index]);
        is_expanded[index] = true;
      }
      const std::vector<Token>& tokens = is_operand ? arguments[index] : expanded[index];
      if (tokens.empty() && is_operand) out.emplace_back().kind = Token::Kind::nothing;
      out.insert(out.end(), tokens.begin(), tokens.end());
    } else {
      out.push_back(token);
    }
    if (out.size() > before && before < out.size()) out[before].has_space = token.has_space;
  }
  if (macro.joins) std::erase_if(out, [](const Token& token) { return token.kind == Token::Kind::nothing; });
  for (Token& token : out) {
    token.line = name.line;
    token.begins_line = false;
  }
  if (!out.empty()) out[0].has_space = name.has_space;
  return out;
}

/// Tokens expanded by themselves, as an argument is.
std::vector<Token> Preprocessor::expand_all(const std::vector<Token>& tokens) {
  const bool needs =
      std::any_of(tokens.begin(), tokens.end(), [](const Token& token) { return token.kind == Token::Kind::name && token.symbol->macro; });
  if (!needs) return tokens;
  const size_t floor = floor_;
  const bool was_confined = is_confined_;
  floor_ = contexts_.size();
  is_confined_ = true;
  push(tokens, nullptr);
  std::vector<Token> out;
  for (Token token = next(); token.kind != Token::Kind::end; token = next()) out.push_back(token);
  floor_ = floor;
  is_confined_ = was_confined;
  return out;
}

Token Preprocessor::join(const Token& left, const Token& right) {
  const std::string_view text = names_.keep(std::string(left.text) + std::string(right.text));
  const std::vector<Token> tokens = tokenize(text, names_, file_);
  if (tokens.size() != 1) fail(left.line, "'" + std::string(left.text) + "' ## '" + std::string(right.text) + "' is not one token");
  return tokens[0];
}

Token Preprocessor::text_of(const std::vector<Token>& tokens) {
  std::string text = "\"";
  for (const Token& token : tokens) {
    if (token.has_space && text.size() > 1) text += ' ';
    for (const char c : token.text) {
      if ((c == '"' || c == '\\') && token.kind == Token::Kind::string) text += '\\';
      text += c;
    }
  }
  Token out;
  out.kind = Token::Kind::string;
  out.text = names_.keep(text + '"');
  return out;
}

}  // namespace backplane::driver::spirv
