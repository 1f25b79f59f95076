// modules/sources.h: the texts of the kernel library, kernels/portable/**.bpc, which the build puts into lib<device>.so
// (cmake/EmbedSources.cmake). A file of the same name in a project's backend/kernels/ has taken the SDK's place.
#pragma once

#include <string_view>

namespace backplane {

struct SourceFile {
  const char* name;  // "pointwise.bpc"
  std::string_view text;
};

// The text of a file; throws for a name that is not there.
std::string_view source_text(std::string_view name);

namespace detail {
extern const SourceFile kSourceFiles[];  // generated
extern const unsigned kSourceFileCount;
}  // namespace detail

}  // namespace backplane
