// serialization/metadata.h: what a vendor attaches to a tensor (a layout, a format, a scale), kept by torch and saved with the tensor.
//
// torch keeps it over detach, .data and Parameter; the core's view kernels keep it over views. Operators that compute new values drop it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <map>
#include <string>

namespace backplane {

// The contents of a file: any text under any name.
using MetadataFields = std::map<std::string, std::string>;

// A vendor derives from this class and registers it by one line: static const backplane::extend::Metadata<FormatMeta> format_meta;
class TensorMeta : public c10::BackendMeta {
 public:
  // The name of the class in files: letters, digits, '.', '_' and '-'; the vendor's device first, for example "mydevice.format".
  virtual const char* kind() const = 0;

  // Version of the fields. Increase it when their meaning changes: files of a newer version are refused, older ones are passed on.
  virtual uint32_t version() const { return 1; }

  // A new object with the same content, for another tensor. Return c10::make_intrusive<FormatMeta>(*this).
  virtual c10::intrusive_ptr<TensorMeta> copy() const = 0;

  virtual MetadataFields serialize() const = 0;

  // `version` is the file's, 1 <= version <= version(). Throw for invalid fields: with TORCH_CHECK, whose text torch.load raises unchanged,
  // or any other exception, which it reports as a damaged file.
  virtual void deserialize(const MetadataFields& fields, uint32_t version) = 0;

  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>& self) const final;
};

// Registers the class with torch.load. At static initialization; a second class of the same kind throws.
void register_metadata(const char* kind, c10::intrusive_ptr<TensorMeta> (*make)());

// The tensor's metadata, NULL if it has none or one of another class. Valid while the tensor lives and its metadata is not replaced.
TensorMeta* tensor_metadata(const at::TensorBase& tensor);
template <typename Meta>
Meta* tensor_metadata(const at::TensorBase& tensor) {
  return dynamic_cast<Meta*>(tensor_metadata(tensor));
}

// Attaches it to this tensor object (not to its storage); an empty pointer removes it. ValueError for a tensor of another device.
void set_tensor_metadata(const at::TensorBase& tensor, c10::intrusive_ptr<TensorMeta> metadata);

// Copies the metadata of `from` to `to`; a no-op without metadata. For kernels that return a view.
inline void copy_tensor_metadata(const at::TensorBase& from, const at::TensorBase& to) {
  const auto metadata = from.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr();
  if (C10_UNLIKELY(metadata)) to.unsafeGetTensorImpl()->set_backend_meta(metadata->clone(metadata));
}

}  // namespace backplane
