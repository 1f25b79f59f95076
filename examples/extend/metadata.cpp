// extend/metadata.cpp: metadata of one's own on a tensor: here the number of a memory format that only the vendor's kernels understand.
//
// Derive from TensorMeta. torch keeps the object over detach, .data and Parameter, the SDK's view kernels over views, and torch.save writes
// its fields; torch.load makes the object anew. Operators that compute new values do not carry it over: what they return is in no format.
#include <backplane/extend.h>
#include <torch/library.h>

namespace {

class FormatMeta : public backplane::TensorMeta {
 public:
  int64_t format = 0;

  const char* kind() const override { return "extdevice.format"; }
  uint32_t version() const override { return 2; }
  c10::intrusive_ptr<TensorMeta> copy() const override { return c10::make_intrusive<FormatMeta>(*this); }
  backplane::MetadataFields serialize() const override { return {{"format", std::to_string(format)}}; }

  // Version 1 wrote the same number as "layout".
  void deserialize(const backplane::MetadataFields& fields, uint32_t version) override {
    const auto field = fields.find(version == 1 ? "layout" : "format");
    TORCH_CHECK(field != fields.end(), "extdevice.format: the file holds no format number.");
    format = std::stoll(field->second);
  }
};

const backplane::extend::Metadata<FormatMeta> metadata;

// The operators by which kernels' authors and users reach it.
void set_format(const at::Tensor& tensor, int64_t format) {
  auto meta = c10::make_intrusive<FormatMeta>();
  meta->format = format;
  backplane::set_tensor_metadata(tensor, std::move(meta));
}

std::optional<int64_t> get_format(const at::Tensor& tensor) {
  const auto* const meta = backplane::tensor_metadata<FormatMeta>(tensor);
  return meta == nullptr ? std::nullopt : std::optional<int64_t>(meta->format);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("set_format(Tensor tensor, int format) -> ()", set_format);
  m.def("get_format(Tensor tensor) -> int?", get_format);
}
