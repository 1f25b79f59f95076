// fallback/values.h: the tensors in a boxed value, which is a tensor, a list of tensors or a list of optional tensors.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace backplane::fallback {

// Calls visit(tensor) for every defined tensor of a value.
template <typename Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    const c10::List<at::Tensor> list = value.toTensorList();
    for (const at::Tensor& tensor : list) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    const c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList();
    for (const std::optional<at::Tensor>& tensor : list) {
      if (tensor && tensor->defined()) visit(*tensor);
    }
  }
}

// The value with each defined tensor replaced.
template <typename Function>
c10::IValue map_tensors(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  if (value.isTensorList()) {
    const c10::List<at::Tensor> list = value.toTensorList();
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : list) mapped.push_back(tensor.defined() ? function(tensor) : tensor);
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    const c10::List<std::optional<at::Tensor>> list = value.toOptionalTensorList();
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : list) {
      mapped.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(function(*tensor)) : tensor);
    }
    return mapped;
  }
  return value;
}

}  // namespace backplane::fallback
