// aoti_program.cpp: a package of AOTInductor in a program without Python: aoti_program LIBRARY-OF-THE-BACKEND PACKAGE DEVICE.
// Prints the sum of the model's first output for an input of ones, 8 by 64, with random numbers from the seed 7.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  if (dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  torch::inductor::AOTIModelPackageLoader model(argv[2]);
  const c10::Device device(argv[3]);
  at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(7);
  const at::Tensor x = at::ones({8, 64}, at::TensorOptions().device(device));
  std::printf("%.6f\n", model.run({x}).at(0).sum().to(at::kCPU).item<float>());
  return 0;
}
