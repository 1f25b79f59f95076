// modules/sources.cpp: finds a source by its name.
#include "modules/sources.h"

#include <c10/util/Exception.h>

namespace backplane {

std::string_view source_text(std::string_view name) {
  for (unsigned i = 0; i < detail::kSourceFileCount; ++i) {
    if (detail::kSourceFiles[i].name == name) return detail::kSourceFiles[i].text;
  }
  TORCH_CHECK(false, "the kernel library has no source '", name, "'");
}

}  // namespace backplane
