// dispatch/library.cpp: defines a vendor's own operators (backplane/library.h).
#include <backplane/library.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dispatch/registration.h"

namespace backplane {

Kernels& Operator::kernels(const char* key) {
  for (auto& [known, kernels] : definitions_.kernels_) {
    if (known == key) return kernels;
  }
  return definitions_.kernels_
      .emplace_back(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple(definitions_.site_, key))
      .second;
}

void Operator::at_end(std::function<void()> check) { definitions_.at_end_.push_back(std::move(check)); }

Definitions::Definitions(const detail::Site& site)
    : site_(site), library_(*new torch::Library(torch::Library::FRAGMENT, site.name_space, std::nullopt, site.file, site.line)) {}

void Definitions::python_module(const char* name) {
  library_.set_python_module(name);
  detail::add_python_module(site_, name);
}

Operator Definitions::def(const char* schema, std::initializer_list<at::Tag> tags) {
  c10::FunctionSchema parsed = torch::schema(schema);
  std::string name = parsed.name();
  const size_t colons = name.find("::");
  if (colons != std::string::npos) name.erase(0, colons + 2);
  if (!parsed.overload_name().empty()) name += "." + parsed.overload_name();
  const std::vector<at::Tag> all_tags(tags);
  library_.def(std::move(parsed), all_tags);
  return {*this, std::move(name)};
}

void Definitions::finish() {
  for (const auto& check : at_end_) check();
}

namespace detail {

LibraryBlock::LibraryBlock(const Site& site, void (*block)(Definitions&)) {
  try {
    Definitions definitions(site);
    block(definitions);
    definitions.finish();
  } catch (const std::exception& error) {
    add_registration_error(site, error);
  }
}

}  // namespace detail
}  // namespace backplane
