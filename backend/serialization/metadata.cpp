// serialization/metadata.cpp: the registry of metadata classes, and the two functions that torch.save and torch.load call.
//
// torch passes a map of string -> bool, so the values are encoded in a key, one per tensor:
//   backplane.metadata/1/<kind>/<version>/<length of fields>/<fields>       fields: name=value&name=value, other bytes as %XX
#include "serialization/metadata.h"

#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <charconv>
#include <mutex>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace backplane {

namespace metadata_impl {
namespace {

constexpr std::string_view kPrefix = "backplane.metadata/";
constexpr uint32_t kEncoding = 1;  // of the key itself

using Make = c10::intrusive_ptr<TensorMeta> (*)();

struct Registry {
  std::mutex mutex;
  std::map<std::string, Make, std::less<>> kinds;
};

Registry& registry() {
  static auto* const instance = new Registry();
  return *instance;
}

Make find_kind(std::string_view kind) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.kinds.find(kind);
  return found == all.kinds.end() ? nullptr : found->second;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

template <class Keep>
std::string escape(std::string_view text, const Keep& keep) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (keep(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return out;
}

std::string escape(std::string_view text) { return escape(text, is_plain); }

// Text from a file for a message, which a NUL would end.
std::string shown(std::string_view text) {
  return escape(text, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; });
}

// The number that the whole of `text` represents in that base; false if it is not a number.
bool parse_number(std::string_view text, uint32_t& out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool unescape(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    uint32_t byte = 0;
    if (i + 2 >= text.size() || !parse_number(text.substr(i + 1, 2), byte, 16)) return false;
    out += static_cast<char>(byte);
    i += 2;
  }
  return true;
}

std::string encode_fields(const MetadataFields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    if (!out.empty()) out += '&';
    out += escape(name) + '=' + escape(value);
  }
  return out;
}

bool decode_fields(std::string_view text, MetadataFields& fields) {
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const auto pair = text.substr(0, end);
    const auto equals = pair.find('=');
    std::string name, value;
    if (equals == std::string_view::npos || !unescape(pair.substr(0, equals), name) || !unescape(pair.substr(equals + 1), value))
      return false;
    fields[name] = value;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// Splits `text` at '/' into `count` parts; the last one keeps the rest. Fewer if there are fewer.
std::vector<std::string_view> split(std::string_view text, size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const auto end = text.find('/');
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

constexpr const char* kHint = " torch.load(..., map_location='cpu') reads the values without their metadata.";

// torch.save: adds one key, if the tensor has metadata.
void save(const at::Tensor& tensor, std::unordered_map<std::string, bool>& map) {
  const auto* held = tensor.unsafeGetTensorImpl()->get_backend_meta();
  if (held == nullptr) return;
  const auto* metadata = dynamic_cast<const TensorMeta*>(held);
  TORCH_CHECK(
      metadata != nullptr, "torch.save: the tensor on ", tensor.device().str(),
      " has metadata of a class that does not derive from backplane::TensorMeta, so it cannot be saved. Derive the class from it, or "
      "save tensor.cpu().");
  TORCH_CHECK(find_kind(metadata->kind()) != nullptr, "torch.save: metadata of kind '", metadata->kind(),
              "' is not registered, so torch.load could not read it. Register its class with backplane::extend::Metadata.");
  const std::string fields = encode_fields(metadata->serialize());
  map[c10::str(kPrefix, kEncoding, '/', metadata->kind(), '/', metadata->version(), '/', fields.size(), '/', fields)] = true;
}

// torch.load: the reverse. conj and neg are removed from the map already; an unknown key would be lost.
void load(const at::Tensor& tensor, std::unordered_map<std::string, bool>& map) {
  const std::string* found = nullptr;
  for (const auto& [key, value] : map) {
    TORCH_CHECK_VALUE(key.compare(0, kPrefix.size(), kPrefix) == 0, "tensor metadata: '", shown(key), "' is not a key of a tensor on ",
                      tensor.device().str(), ", so it would be lost; the tensor was saved on another device, perhaps.", kHint);
    if (!value) continue;
    TORCH_CHECK(found == nullptr, "torch.load: a tensor has two entries of metadata, '", shown(*found), "' and '", shown(key),
                "': the file is damaged.", kHint);
    found = &key;
  }
  if (found == nullptr) return;
  const auto parts = split(std::string_view(*found).substr(kPrefix.size()), 5);
  uint32_t encoding = 0;
  TORCH_CHECK(parse_number(parts[0], encoding) && encoding != 0, "torch.load: cannot read the metadata '", shown(*found),
              "': the file is damaged.", kHint);
  TORCH_CHECK(encoding <= kEncoding, "torch.load: the file's metadata has encoding ", encoding,
              ", this torch-backplane (" BACKPLANE_VERSION ") reads up to ", kEncoding,
              ". Load it with the version that saved it, or a newer one.", kHint);
  uint32_t version = 0;
  uint32_t length = 0;
  TORCH_CHECK(parts.size() == 5 && parse_number(parts[2], version) && version != 0 && parse_number(parts[3], length),
              "torch.load: cannot read the metadata '", shown(*found), "': the file is damaged.", kHint);
  const std::string kind(parts[1]);
  TORCH_CHECK(parts[4].size() == length, "torch.load: the metadata of kind '", shown(kind), "' says that it has ", length, " bytes, found ",
              parts[4].size(), ": the file is damaged.", kHint);
  const Make make = find_kind(kind);
  TORCH_CHECK(make != nullptr, "torch.load: the file was saved with tensor metadata of kind '", shown(kind), "', which this build of '",
              BACKPLANE_DEVICE_NAME, "' does not know. Load it with the build that saved it.", kHint);
  const auto metadata = make();
  TORCH_CHECK(version <= metadata->version(), "torch.load: the file's metadata of kind '", kind, "' has version ", version,
              ", this build reads up to ", metadata->version(), ". Load it with the build that saved it, or a newer one.", kHint);
  MetadataFields fields;
  TORCH_CHECK(decode_fields(parts[4], fields), "torch.load: cannot read the metadata '", shown(*found), "': the file is damaged.", kHint);
  try {
    metadata->deserialize(fields, version);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {  // from the vendor's class, such as std::stoll's
    TORCH_CHECK(false, "torch.load: cannot read the metadata of kind '", shown(kind), "' (", error.what(), "): the file is damaged.",
                kHint);
  }
  set_tensor_metadata(tensor, metadata);
}

// torch accepts one pair per device type and process, and keeps the first.
struct Register {
  Register() {
    const auto& registered = torch::jit::GetBackendMetaSerialization();
    if (!registered[static_cast<size_t>(kDevice)].has_value()) torch::jit::TensorBackendMetaRegistry(kDevice, save, load);
  }
};
const Register plug;

}  // namespace
}  // namespace metadata_impl

c10::intrusive_ptr<c10::BackendMeta> TensorMeta::clone(const c10::intrusive_ptr<c10::BackendMeta>& /*self*/) const { return copy(); }

void register_metadata(const char* kind, c10::intrusive_ptr<TensorMeta> (*make)()) {
  const std::string name = kind;
  TORCH_CHECK_VALUE(!name.empty() && metadata_impl::escape(name) == name,
                    "The kind of a metadata class is its name in files: letters, "
                    "digits, '.', '_' and '-', got '",
                    name, "'.");
  auto& all = metadata_impl::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TORCH_CHECK(all.kinds.emplace(name, make).second, "Two metadata classes are registered as '", name, "'. Give each its own kind().");
}

TensorMeta* tensor_metadata(const at::TensorBase& tensor) {
  return dynamic_cast<TensorMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

void set_tensor_metadata(const at::TensorBase& tensor, c10::intrusive_ptr<TensorMeta> metadata) {
  TORCH_CHECK_VALUE(tensor.device().type() == kDevice, "Tensor metadata belongs to tensors on '", c10::Device(kDevice).str(),
                    "', this one is on '", tensor.device().str(), "'.");
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(metadata));
}

}  // namespace backplane
