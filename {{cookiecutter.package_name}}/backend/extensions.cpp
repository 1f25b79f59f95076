// backend/extensions.cpp: where parts of the core are replaced by your own: derive from a class of <backplane/extend.h>, register it by one
// line. As it stands, nothing is replaced. To be replaced so: allocator, generator, hooks, storage creation, copy path, metadata of
// tensors; the SDK's examples/extend has one of each.
//
// An example: a number that says in which memory format a tensor is. It survives detach(), views, torch.save and torch.load.
//
// #include <backplane/extend.h>
// #include <torch/library.h>
//
// namespace {
//
// class FormatMeta : public backplane::TensorMeta {
//  public:
//   int64_t format = 0;
//
//   const char* kind() const override { return "{{ cookiecutter.device_name }}.format"; }
//   uint32_t version() const override { return 1; }
//   c10::intrusive_ptr<TensorMeta> copy() const override { return c10::make_intrusive<FormatMeta>(*this); }
//   backplane::MetadataFields serialize() const override { return { {"format", std::to_string(format)} }; }
//   void deserialize(const backplane::MetadataFields& fields, uint32_t) override { format = std::stoll(fields.at("format")); }
// };
//
// const backplane::extend::Metadata<FormatMeta> metadata;
//
// void set_format(const at::Tensor& tensor, int64_t format) {
//   auto meta = c10::make_intrusive<FormatMeta>();
//   meta->format = format;
//   backplane::set_tensor_metadata(tensor, std::move(meta));
// }
//
// int64_t get_format(const at::Tensor& tensor) {
//   const auto* meta = backplane::tensor_metadata<FormatMeta>(tensor);
//   return meta == nullptr ? 0 : meta->format;
// }
//
// }  // namespace
//
// TORCH_LIBRARY_FRAGMENT({{ cookiecutter.package_name }}, m) {
//   m.def("set_format(Tensor tensor, int format) -> ()", set_format);
//   m.def("get_format(Tensor tensor) -> int", get_format);
// }
