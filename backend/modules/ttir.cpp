// modules/ttir.cpp: a line of text, then the driver's code.
#include "modules/ttir.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "runtime/device.h"

namespace backplane {
namespace {

constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.$";

bool is_of(const char* text, const char* letters) { return text != nullptr && text[std::strspn(text, letters)] == '\0'; }

}  // namespace

Code with_ttir_facts(const bp_compile_result& result) {
  const auto want = [](bool holds, const char* rule) {
    TORCH_CHECK(holds, "The compiler of ", device_name(), " describes a module of TTIR wrongly: ", rule,
                " (backplane/driver/compiler.h). Run torch-backplane check-driver for details");
  };
  want(is_of(result.kernel, kLetters) && result.kernel[0] != '\0', "kernel is no name of letters, digits, _ . and $");
  want(is_of(result.parameters, "pifd"), "parameters has another letter than p, i, f and d, or is NULL");
  want(result.group_size != 0, "group_size is 0");
  std::ostringstream head;
  head << result.group_size << ' ' << result.local_bytes << ' ' << result.kernel << ' ' << result.parameters << '\n';
  const std::string text = head.str();
  Code code(text.begin(), text.end());
  const auto* bytes = static_cast<const char*>(result.code);
  code.insert(code.end(), bytes, bytes + result.bytes);
  return code;
}

TtirFacts ttir_facts_of(const Code& code) {
  TtirFacts facts;
  const auto end = std::find(code.begin(), code.end(), '\n');
  std::istringstream head(std::string(code.begin(), end));
  head >> facts.group_size >> facts.local_bytes >> facts.kernel >> facts.parameters;
  TORCH_INTERNAL_ASSERT(end != code.end() && !facts.kernel.empty(), "code of TTIR without its facts");
  facts.size = static_cast<size_t>(end - code.begin()) + 1;
  return facts;
}

}  // namespace backplane
