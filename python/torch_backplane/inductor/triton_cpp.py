"""Calls of Triton kernels in the C++ that Inductor writes, ``config.cpp_wrapper`` and AOTInductor's packages.

torch runs each kernel once while it compiles, with tensors of the right shapes, to choose among its configurations
(``config.triton.autotune_at_compile_time``). The chosen one is written as a kernel of the dialect, with a function that
computes the grid. Tested on torch 2.13 and 2.15.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor import config, ir
from torch._inductor.codegen.cpp_utils import cexpr
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SymbolicCallArg
from torch._inductor.virtualized import V

from torch_backplane import _backend, compiler
from torch_backplane.compat import replaces
from torch_backplane.inductor.language import language
from torch_backplane.inductor.triton_code import SequenceKernel


@dataclass(frozen=True)
class _Chosen:
    """A compiled kernel with the configuration that was the fastest."""

    binary: bytes
    """The last stage of ``torch_backplane.triton.compiler``."""
    configuration: dict[str, Any]
    signature: dict[str, str]
    """The type of each parameter of the user's function, by its name."""


@dataclass(frozen=True)
class _Call:
    """What the call sites of a kernel have in common."""

    facts: dict[str, Any]
    """Inductor's ``inductor_meta``, from which the grid is computed."""
    device: int


_chosen: dict[str, _Chosen] = {}


def _keep_chosen() -> None:
    """Let Inductor hand the chosen kernel over; it has a list of devices, with the file format of each."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner, config_to_dict

    from torch_backplane.triton.compiler import EXTENSION

    @replaces(CachingAutotuner, "save_gpu_kernel")
    def save(known: Any, self: Any, stream: Any, launcher: Any) -> None:
        if self.device_props.type != _backend.device:
            known(self, stream, launcher)
            return
        compiled = launcher.bin
        _chosen[self.inductor_meta["kernel_name"]] = _Chosen(
            compiled.asm[EXTENSION], config_to_dict(launcher.config), dict(compiled.src.signature)
        )
        self.cuda_kernel_saved = True


def tune_while_compiling() -> None:
    """Let torch choose configurations before it writes the C++ of a graph with Triton kernels; for packages it does."""
    has_kernels = language() == "triton" or any(
        isinstance(one, ir.UserDefinedTritonKernel) for one in V.graph.operations
    )
    if not V.graph.aot_mode and has_kernels:
        config.triton.autotune_at_compile_time = True


class TritonCalls:
    """Methods of the C++ wrapper for Triton kernels."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        super().__init__()

    @classmethod
    def _get_triton_info_kernel_cls(cls) -> type[Any]:
        return SequenceKernel

    def _define_kernel_helper(self: Any, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        """A Triton kernel is defined in the code that torch runs while it compiles."""
        gpu = kwargs.get("gpu", args[1] if len(args) > 1 else False)
        if gpu:
            PythonWrapperCodegen._define_kernel_helper(self, kernel_name, kernel_body, *args, **kwargs)
        else:
            super()._define_kernel_helper(kernel_name, kernel_body, *args, **kwargs)  # type: ignore[misc]

    def call_triton_kernel(
        self: Any, name: str, arguments: list[Any], *, inductor_meta: dict[str, Any], **rest: Any
    ) -> None:
        """Write a call; :meth:`generate_and_run_autotune_block` defines the function that it calls."""
        if not config.triton.autotune_at_compile_time:
            raise NotImplementedError(
                f"{name}: a package with Triton kernels needs their configurations when it is compiled; leave "
                "torch._inductor.config.triton.autotune_at_compile_time at None"
            )
        if name not in self.kernel_autotune_names:
            PythonWrapperCodegen._generate_kernel_call_helper(
                self, name, arguments, inductor_meta=inductor_meta, triton=True, **rest
            )
        self._calls.setdefault(name, _Call(inductor_meta, rest["device"].index or 0))
        self.writeline(f"call_{name}({', '.join(map(_argument, arguments))});")

    def generate_and_run_autotune_block(self: Any) -> None:
        """Define the kernels once torch has chosen their configurations."""
        _keep_chosen()
        super().generate_and_run_autotune_block()  # type: ignore[misc]
        for name, call in self._calls.items():
            self._define_call(name, call, _chosen.pop(name))

    def _define_call(self: Any, name: str, call: _Call, chosen: _Chosen) -> None:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        from torch_backplane.triton.compiler import lowered
        from torch_backplane.triton.launch import in_dialect

        facts = json.loads(chosen.binary)
        if "ttir" in facts:
            if "dialect" not in compiler.target().languages:
                raise NotImplementedError(
                    f"{name}: C++ launches kernels of the dialect, and the driver compiles TTIR alone; compile the "
                    "program without config.cpp_wrapper, and not to a package"
                )
            facts = lowered(facts["ttir"])
        if facts["messages"]:
            raise NotImplementedError(
                f"{name}: C++ cannot read what a Triton kernel prints or asserts. Remove its tl.device_print; "
                "torch._inductor.config.assert_indirect_indexing = False compiles it without its tl.device_assert"
            )
        refused = [one for one, kind in chosen.signature.items() if kind.startswith("tensordesc")]
        if refused:
            raise NotImplementedError(
                f"{name}: C++ cannot pass the tensor descriptor {refused[0]}. Make it in the kernel, by "
                "tl.make_tensor_descriptor of a pointer, a shape and strides"
            )
        self.define_dialect_kernel(name, **in_dialect(facts), device=call.device)
        constants = {*call.facts.get("declared_constexpr_names", ()), *chosen.configuration}
        passed = [one for one in chosen.signature if one not in constants]
        of_grid = call.facts.get("extra_launcher_args")  # None: the kernel is Inductor's, whose names the grid uses
        names = {one: one if of_grid is None else f"a{i}" for i, one in enumerate(passed)}
        parameters = [*names.values(), *(of_grid or [])]
        grid = GridExpr.from_meta(call.facts, chosen.configuration, mode="cpp")
        taken = {one: kind for one, kind in chosen.signature.items() if kind != "constexpr"}
        tensors = [names[one] for one, kind in taken.items() if kind.startswith("*")]
        numbers = [_number(names[one], kind) for one, kind in taken.items() if not kind.startswith("*")]
        self.header.splice(
            f"""
            template <{", ".join(f"class T{i}" for i in range(len(parameters)))}>
            static void call_{name}({", ".join(f"const T{i}& {one}" for i, one in enumerate(parameters))}) {{
              {" ".join(grid.prefix)}
              const int64_t grid[3] = {{{grid.x_grid}, {grid.y_grid}, {grid.z_grid}}};
              if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;
              {name}.launch({{{", ".join(tensors)}}}, {{{", ".join([*numbers, "grid[0], grid[1], grid[2]"])}}});
            }}
            """
        )


def _argument(value: Any) -> str:
    if isinstance(value, str | SymbolicCallArg):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"std::strtod({value.hex()!r}, nullptr)".replace("'", '"') if value - value else repr(value)
    return str(cexpr(V.graph.sizevars.simplify(sympy.sympify(value))))


def _number(name: str, kind: str) -> str:
    """A number as the integer that the kernel takes: that of its bits if it is a float."""
    if kind in ("fp64", "f64"):
        return f"backplane::generated::bits_of_float64({name})"
    if kind[0] in "fb":
        return f"backplane::generated::bits_of_float32({name})"
    return f"static_cast<int64_t>({name})"
