"""The C++ that Inductor writes around the kernels: ``config.cpp_wrapper``, and AOTInductor's packages.

Subclasses a private class of torch, ``CppWrapperCpu``: from torch 2.13 on, tested on 2.13 and 2.15. The code is linked
only with torch and finds the backend by an operator (``backplane/generated.h``). A package has its kernels' text and
their code, for the current device's target and for those in ``config.aot_targets``.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V

from torch_backplane import _backend, compiler, paths
from torch_backplane.inductor import config
from torch_backplane.inductor.runtime import files_of, kernel_object
from torch_backplane.inductor.triton_cpp import TritonCalls, tune_while_compiling
from torch_backplane.inductor.wrapper import Reported, leave_calls_out_of_lists, lines_for_replays

_CONFIG = "torch_backplane.inductor.config.aot_targets"

# Operators of the table; torch's C shims of others are for its own devices.
_TABLE = "backplane::generated::api()."
OPERATORS = (
    "mm_out",
    "bmm_out",
    "addmm_out",
    "baddbmm_out",
    "convolution",
    "_scaled_dot_product_fused_attention_overrideable",
)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="kernels of a package")


def _targets(device: int) -> list[str]:
    """The targets for which a package has a kernel's code."""
    for name in config.aot_targets:
        if name not in compiler.targets():
            raise ValueError(
                f"{_CONFIG} names {name!r}, which the compiler of {_backend.device} does not support. It supports "
                + ", ".join(compiler.targets())
            )
    return list(dict.fromkeys([compiler.target(device).name, *config.aot_targets]))


def _prefix(*names: str) -> str:
    """The text in front of a program, without paths: environments that share Inductor's cache may be removed."""
    [include] = paths.include_paths()
    table = (Path(include) / "backplane" / "generated.h").read_text().replace("#pragma once\n", "")
    text = "\n".join((Path(__file__).parent / name).read_text() for name in names)
    return text.replace("#include <backplane/generated.h>\n", table).replace("BACKPLANE_DEVICE", _backend.device)


def _literal(text: str) -> str:
    """A string literal, in parts: a compiler may limit the length of one."""
    parts = [text[at : at + 8000] for at in range(0, len(text), 8000)] or [""]
    return " ".join(f'R"BPC({part})BPC"' for part in parts)


def _bytes(code: bytes) -> str:
    """A string literal of bytes, which compilers read many times faster than a list of numbers."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_ ")
    lines = (code[at : at + 4096] for at in range(0, len(code), 4096))
    return "\n".join(
        '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in line) + '"' for line in lines
    )


class GroupCppWrapper(TritonCalls, Reported, CppWrapperCpu):
    """The wrapper of a graph, and of its branches."""

    def __init__(self) -> None:
        self.device = _backend.device
        self.codes: dict[str, list[Future[tuple[str, bytes]]]] = {}
        self.by_python = False
        super().__init__()

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> CppWrapperCpu:
        leave_calls_out_of_lists()
        tune_while_compiling()
        return GroupCppWrapper()

    @staticmethod
    def get_device_include_path_jit(device: str) -> str:
        if device != _backend.device:
            return str(CppWrapperCpu.get_device_include_path_jit(device))
        return "#include <torch/csrc/inductor/cpp_wrapper/cpu.h>\n" + _prefix("cpp_prefix.h")

    @staticmethod
    def get_device_include_path_aot(device: str) -> str:
        if device != _backend.device:
            return str(CppWrapperCpu.get_device_include_path_aot(device))
        return _prefix("cpp_prefix.h", "aoti_prefix.h")

    def write_range(self, name: str, stack: ExitStack) -> None:
        self.wrapper_call.writeline(f'RAIIAtenRecordFunctionHandle range_of_a_report_("{name}", nullptr);')

    def write_header(self) -> None:
        V.graph.device_types = type(V.graph.device_types)(
            sorted(V.graph.device_types, key=lambda device: device != self.device)
        )  # the device's lines come before torch's headers
        if V.graph.aot_mode:
            inductor_config.aot_inductor.precompile_headers = False  # torch only has one for its own devices
        super().write_header()

    def define_dialect_kernel(self, name: str, text: str, metadata: str = "", **facts: Any) -> None:
        """Write a kernel as an object of the file; in a package with its code."""
        if V.graph.aot_mode:
            kernel = kernel_object(name, text, **facts)
            self.codes[name] = [_threads().submit(kernel.code_for, one) for one in _targets(facts["device"])]
        definitions = facts.get("definitions", "")
        library = files_of(definitions)
        files = ", ".join(f'"{file}"' for file in library)
        extents = ", ".join(f"{{{length}, {number}, {elements}}}" for length, number, elements in facts["extents"])
        members = [
            f'"{name}"',
            _literal(definitions),
            _literal(text),
            f"{name}_files",
            f"{name}_extents",
            f"{facts['written']}ull",
        ]
        numbers = (len(library), len(facts["extents"]), facts["per_item"], facts["pointers"], facts["values"])
        members += [str(number) for number in (*numbers, int(facts["reports"]))]
        codes = f"{name}_codes" if V.graph.aot_mode else "nullptr"
        lines = [
            metadata,
            f"static const char* const {name}_files[] = {{{files}}};",
            f"static const backplane::generated::Extent {name}_extents[] = {{{extents or '{1, -1, 0}'}}};",
            f"extern const backplane::generated::Code {name}_codes[];" if V.graph.aot_mode else "",
            f"static backplane::generated::Kernel {name}{{{{{', '.join(members)}}}, {codes}}};",
        ]
        self.header.splice("\n".join(lines) + "\n")

    def finalize_prefix(self) -> None:
        """Add the kernels' code, which threads have compiled meanwhile."""
        super().finalize_prefix()
        codes = type(self.prefix)()
        for name, futures in self.codes.items():
            rows = []
            for i, future in enumerate(futures):
                key, code = future.result()
                codes.splice(f"static const char {name}_code_{i}[] =\n{_bytes(code)};")
                rows.append(f'{{"{key}", {name}_code_{i}, {len(code)}}}')
            known = ", ".join([*rows, "{nullptr, nullptr, 0}"])
            codes.writeline(f"const backplane::generated::Code {name}_codes[] = {{{known}}};")
        codes.splice(self.prefix)
        self.prefix = codes

    def _generate_end_jit(self, result: Any) -> None:
        """Build as for the CPU: torch only has a precompiled header for its own devices."""
        self.device = "cpu"
        super()._generate_end_jit(result)
        self.device = _backend.device
        result.splice(lines_for_replays())

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: torch.device | None = None, triton: bool = True, **rest: Any
    ) -> None:
        if device is None or device.type != self.device:
            super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **rest)
            return
        if triton:
            self.call_triton_kernel(kernel_name, call_args, device=device, **rest)
            return
        tensors, numbers = call_args
        self.writeline(f"{kernel_name}.launch({{{', '.join(tensors)}}}, {{{', '.join(numbers)}}});")

    @staticmethod
    def get_c_shim_func_name(kernel: str, device: str) -> str:
        if kernel.startswith(_TABLE):
            return kernel
        if device != _backend.device or kernel.startswith("aoti_torch_"):
            return str(CppWrapperCpu.get_c_shim_func_name(kernel, device))
        return _TABLE + kernel.removesuffix("::call").split("::")[-1]

    def generate_c_shim_extern_kernel_call(self, kernel: str, args: list[str], device: str, **rest: Any) -> None:
        name = self.get_c_shim_func_name(kernel, device).removeprefix(_TABLE)
        if device == self.device and not name.startswith("aoti_torch_") and name not in OPERATORS:
            raise NotImplementedError(
                f"C++ that calls the operator {name} on {device} cannot be generated: of operators that are not"
                f" kernels it supports {', '.join(OPERATORS)}. torch.compile without cpp_wrapper calls any"
            )
        super().generate_c_shim_extern_kernel_call(kernel, args, device, **rest)

    def generate_fallback_kernel(self, node: Any) -> None:
        """Call the dispatcher, in a package through torch's proxy: torch's C shims are for its own devices."""
        devices = {one.get_device().type for one in (node, *node.inputs) if one.get_device() is not None}
        if self.device not in devices or node.op_overload._schema.name.removeprefix("aten::") in OPERATORS:
            super().generate_fallback_kernel(node)
            return
        arguments = node.export_extern_kernel_node()
        schema = node.op_overload._schema.arguments
        # Through Python, which makes None an undefined tensor, if None is given for a tensor that is not optional.
        self.by_python = any(
            given is None and isinstance(wanted.real_type, torch.TensorType)
            for given, wanted in zip(arguments, schema, strict=False)
        )
        self.generate_fallback_kernel_with_runtime_lookup(
            node.get_name(),
            node.python_kernel_name,
            lambda: [*node.codegen_args(), *node.codegen_kwargs()],
            node.op_overload,
            arguments,
            node.outputs or node.mutation_outputs,
        )
        self.by_python = False

    def _compatible_with_stableivalue(self, op: Any) -> bool:  # type: ignore[override]
        return not self.by_python and CppWrapperCpu._compatible_with_stableivalue(op)

    def _compatible_with_cpp_boxed_dispatch(self, op: Any) -> bool:  # type: ignore[override]
        return not self.by_python and CppWrapperCpu._compatible_with_cpp_boxed_dispatch(op)
