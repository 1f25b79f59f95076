// tests/driver/broken/module.cpp: defects of the family module.
#include "shim.h"

namespace broken {
namespace {

int32_t inner_launch(void* self, int32_t device, bp_stream* stream, const bp_launch& launch) {
  return INNER_GROUP(of(self).in_module, launch, device, stream, &launch);
}

struct Held {
  int32_t device;
  bp_stream* stream;
  bp_launch launch;
  std::vector<uint8_t> args;  // a copy, if there is one
};
std::vector<Held> held;

void launch_held(void* self) {
  for (Held& h : held) {
    if (!h.args.empty()) h.launch.args = h.args.data();
    inner_launch(self, h.device, h.stream, h.launch);
  }
  held.clear();
}

}  // namespace

void add_module_defects(Defects& d) {
  // Keeps one module.
  d["module.load"] = instead<&bp_module::load, [](Shim& s, int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    uint64_t& kept = s.address;
    if (kept) return *out = reinterpret_cast<bp_module_code*>(kept), ok;
    const int32_t status = INNER_GROUP(s.in_module, load, device, code, bytes, out);
    if (status == ok) kept = reinterpret_cast<uint64_t>(*out);
    return status;
  }>;
  // Any name is a kernel's.
  d["module.function"] =
      instead<&bp_module::function, [](Shim& s, int32_t device, bp_module_code* module, const char* name, const bp_signature* signature,
                                       bp_function** out, bp_function_properties* properties) {
        const auto find = [&](const char* it) {
          return INNER_GROUP(s.in_module, function, device, module, it, signature, out, properties);
        };
        const int32_t status = find(name);
        return status == BP_INVALID_ARGUMENT ? find("affine") : status;
      }>;
  d["module.refused"] =
      after<&bp_module::load, [](Shim& s, int32_t status, int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
        return status == BP_INVALID_ARGUMENT ? (*out = reinterpret_cast<bp_module_code*>(0x1000), ok) : status;
      }>;
  d["module.values"] = [](Shim& s) {
    // The last 8 bytes are lost.
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      const auto* bytes = static_cast<const uint8_t*>(launch->args);
      std::vector<uint8_t> args(bytes, bytes + launch->args_bytes);
      std::fill(args.end() - 8, args.end(), uint8_t{0});
      bp_launch cut = *launch;
      cut.args = args.data();
      return inner_launch(self, device, stream, cut);
    };
  };
  d["module.most"] = [](Shim& s) {
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      return launch->args_bytes > 256 ? int32_t{BP_INVALID_ARGUMENT} : inner_launch(self, device, stream, *launch);
    };
  };
  d["module.read_at_once"] = [](Shim& s) {
    // Arguments are read when somebody waits.
    s.module.launch = [](void*, int32_t device, bp_stream* stream, const bp_launch* launch) {
      held.push_back({device, stream, *launch, {}});
      return ok;
    };
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      launch_held(self);
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["module.order"] = [](Shim& s) {
    // Kernels run when somebody waits.
    s.module.launch = [](void*, int32_t device, bp_stream* stream, const bp_launch* launch) {
      const auto* bytes = static_cast<const uint8_t*>(launch->args);
      held.push_back({device, stream, *launch, {bytes, bytes + launch->args_bytes}});
      return ok;
    };
    s.table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
      launch_held(self);
      return INNER(of(self), stream_synchronize, device, stream, timeout);
    };
  };
  d["module.pending"] = [](Shim& s) {
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      INNER(of(self), stream_synchronize, device, stream, BP_NO_TIMEOUT);
      return inner_launch(self, device, stream, *launch);
    };
  };
  d["module.events"] = [](Shim& s) {
    // Every other kernel runs on another stream, and late.
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      if (++of(self).calls % 2) {
        stream = side_stream(of(self));
        INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, sleep_for_a_while, nullptr, nullptr);
      }
      return inner_launch(self, device, stream, *launch);
    };
  };
  d["module.grid"] = [](Shim& s) {
    // Two dimensions are enough.
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      bp_launch flat = *launch;
      flat.grid[2] = 1;
      return inner_launch(self, device, stream, flat);
    };
  };
  d["module.sizes"] = [](Shim& s) {
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      const int32_t status = inner_launch(self, device, stream, *launch);
      return status == BP_INVALID_ARGUMENT ? ok : status;
    };
  };
  d["module.devices"] = instead<&bp_module::load, [](Shim& s, int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    if (device == 1) return int32_t{BP_INVALID_ARGUMENT};
    return INNER_GROUP(s.in_module, load, device, code, bytes, out);
  }>;
  d["module.unload"] = [](Shim& s) {
    // Ends all modules.
    s.module.unload = [](void* self, int32_t device, bp_module_code* module) {
      of(self).closing = true;
      return INNER_GROUP(of(self).in_module, unload, device, module);
    };
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      return of(self).closing ? int32_t{BP_INVALID_ARGUMENT} : inner_launch(self, device, stream, *launch);
    };
  };
  d["module.threads"] = [](Shim& s) {
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      if (of(self).inside.exchange(true)) return int32_t{BP_INTERNAL};
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const int32_t status = inner_launch(self, device, stream, *launch);
      of(self).inside = false;
      return status;
    };
  };
  d["module.fault"] = [](Shim& s) {
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      const int32_t status = inner_launch(self, device, stream, *launch);
      return status == BP_FAULT ? ok : status;
    };
  };
  d["module.lost"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (status == BP_DEVICE_LOST) of(self).faulted = true;
      return status;
    };
    s.module.unload = [](void* self, int32_t device, bp_module_code* module) {
      return of(self).faulted ? int32_t{BP_DEVICE_LOST} : INNER_GROUP(of(self).in_module, unload, device, module);
    };
  };
}

}  // namespace broken
