"""Triton's interface of a compiler (``triton.backends.compiler.BaseBackend``): TTIR, then what the driver compiles."""

from __future__ import annotations

import dataclasses
import json
import re
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import BaseBackend, GPUTarget

from torch_backplane import __version__, _backend, compiler
from torch_backplane.triton import launch, options, releases
from torch_backplane.triton.lowering import lower
from torch_backplane.triton.pointers import Pointers
from torch_backplane.triton.reader import TextError, read
from torch_backplane.triton.translate import sources

EXTENSION = "bpc"
"""Of the last stage, in Triton's cache and in ``kernel.asm``: the text, its arguments and what it needs, as JSON."""
_PUBLIC = re.compile(r'tt\.func public @("[^"]*"|[^(]+)\(')
_MESSAGE = re.compile(r"\btt\.(print|assert)\b")


def lowered(ttir: str) -> dict[str, Any]:
    """The facts of a kernel of the dialect, for groups of the current target."""
    target = compiler.target()
    return dataclasses.asdict(lower(ttir, target.group_size, target.subgroup_size))


class DialectBackend(BaseBackend):
    """The compiler of the one backend of the process."""

    supports_native_tensor_specialization = True
    binary_ext = EXTENSION

    def __init__(self, target: GPUTarget) -> None:
        releases.check()
        super().__init__(target)

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether it is the device of the process."""
        return target.backend == _backend.device

    def hash(self) -> str:
        """Of all but the kernel that decides the last stage."""
        return f"{__version__}-{sources()}-{self.target}-{'+'.join(compiler.target().languages)}"

    def parse_options(self, opts: dict[str, Any]) -> Any:
        """The options of a launch."""
        return options.parse(opts, str(self.target.arch))

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """What hooks of a launch are given."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, opts: Any) -> dict[str, Any]:
        """The smallest blocks that ``tl.dot`` takes."""
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1)}

    def get_module_map(self) -> dict[str, ModuleType]:
        """The module that a kernel's ``triton.language.extra.libdevice`` is."""
        from triton.language.extra.cuda import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, ctx: Any) -> None:
        """There are none beside Triton's own."""

    @staticmethod
    def _make_ttir(module: Any, metadata: dict[str, Any]) -> Any:
        from triton._C.libtriton import ir, passes

        manager = ir.pass_manager(module.context)
        manager.enable_debug()
        passes.common.add_inliner(manager)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # until 3.8
            passes.ttir.add_rewrite_tensor_pointer(manager)
        passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
        passes.common.add_canonicalizer(manager)
        passes.ttir.add_combine(manager)
        passes.ttir.add_reorder_broadcast(manager)
        passes.common.add_cse(manager)
        passes.common.add_symbol_dce(manager)
        try:
            manager.run(module, "make_ttir")
        except TypeError:  # 3.5
            manager.run(module)
        return module

    @staticmethod
    def _make_dialect(text: str, metadata: dict[str, Any]) -> bytes:
        facts = lowered(text)
        metadata["name"] = facts["name"]
        metadata["shared"] = facts["local_bytes"]
        metadata["messages"] = len(facts["messages"])
        metadata["accesses"] = facts["accesses"]
        return json.dumps(facts).encode()

    @staticmethod
    def _compile_ttir(text: str, metadata: dict[str, Any], opts: Any) -> bytes:
        name = _PUBLIC.search(text)
        assert name is not None
        metadata["name"], metadata["messages"] = name.group(1).strip('"'), 0
        facts = {"ttir": text, "triton": triton.__version__, "num_warps": opts.num_warps, "num_stages": opts.num_stages}
        facts["parameters"], metadata["shared"] = launch.compile_ttir(metadata["name"], facts)
        try:
            metadata["accesses"] = Pointers(read(text)).accesses
        except TextError:  # the driver's compiler may know more of the language
            metadata["accesses"] = "b" * facts["parameters"].count("p")
        return json.dumps(facts).encode()

    def _make_last(self, module: Any, metadata: dict[str, Any], opts: Any) -> bytes:
        """A target that takes TTIR compiles it, except kernels with messages, if it takes the dialect too.

        The launch reads the messages of a kernel of the dialect.
        """
        text, languages = str(module), compiler.target().languages
        if "ttir" not in languages or ("dialect" in languages and _MESSAGE.search(text)):
            return self._make_dialect(text, metadata)
        return self._compile_ttir(text, metadata, opts)

    def add_stages(self, stages: dict[str, Any], opts: Any, language: Any = None) -> None:
        """TTIR, then what the driver compiles."""
        if language is not None and language.name == "GLUON":
            raise NotImplementedError(
                f"Gluon kernels name the layouts of NVIDIA's and AMD's chips, which {_backend.device} does not have; "
                "write the kernel with triton.language"
            )
        stages["ttir"] = lambda module, metadata: self._make_ttir(module, metadata)
        stages[EXTENSION] = lambda module, metadata: self._make_last(module, metadata, opts)
