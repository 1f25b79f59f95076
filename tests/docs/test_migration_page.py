"""docs/migration.md: what it says of torch's older interfaces is so in the torch that is installed."""

import importlib.util
import inspect
import re
import subprocess
import sys
import typing
import warnings
from importlib.metadata import requires
from pathlib import Path

import pytest
import torch
from pages import code, table_rows
from torch import Tensor

PAGE = "docs/migration.md"
INCLUDE = Path(torch.__file__).parent / "include"
LEGACY = "ignore:torch._custom_op is deprecated"


@pytest.fixture
def library(backend_package):
    with torch.library._scoped_library("bp_test_migration", "FRAGMENT") as library:
        yield library


@pytest.fixture
def legacy_op(backend_package):
    from torch import _custom_ops
    from torch._custom_op.impl import global_registry

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _custom_ops.custom_op("bp_test_migration::scale", "(Tensor x, float n) -> Tensor")
    yield global_registry["bp_test_migration::scale"]
    global_registry["bp_test_migration::scale"]._destroy()


def scale(x: Tensor, n: float) -> Tensor: ...


def test_every_row_is_there_and_has_a_test():
    rows = [row[0] for row in table_rows(PAGE) if re.fullmatch(r"R\d\d", row[0])]
    assert rows == [f"R{number:02}" for number in range(1, 26)]
    tests = "".join((Path(__file__).parent / f"test_migration_{part}.py").read_text() for part in ("page", "cpp"))
    tested = {row for name in re.findall(r"^def (test_\w+)", tests, re.MULTILINE) for row in re.findall(r"R\d\d", name)}
    assert tested == set(rows)


def test_the_pages_python_runs(backend_package, tmp_path):
    """All blocks in one process, each with another namespace."""
    program = tmp_path / "program.py"
    sources = code(PAGE)
    assert len(sources) == 3
    program.write_text(
        "\n".join(re.sub(r"\bvendor(::|\.)", rf"vendor_{index}\1", text) for index, text in enumerate(sources))
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_R01_warns_and_knows_cpu_and_cuda_only(backend_package, device):
    from torch import _custom_ops
    from torch._custom_op import impl

    with pytest.warns(DeprecationWarning, match=r"torch\._custom_op is deprecated"):
        impl.custom_op("bp_test_migration::scale")(scale)
    try:
        for types in (device.type, "xpu"):
            with pytest.raises(ValueError, match=r"we only support device_type in dict_keys\(\['cpu', 'cuda'\]\)"):
                _custom_ops.impl("bp_test_migration::scale", device_types=types)(scale)
    finally:
        impl.global_registry["bp_test_migration::scale"]._destroy()


@pytest.mark.filterwarnings(LEGACY)
def test_R02_the_older_gradient_and_its_differentiability(legacy_op, device):
    from torch import _custom_ops

    name = "bp_test_migration::scale"
    with torch.library._scoped_library("bp_test_migration", "IMPL") as library:
        library.impl("scale", lambda x, n: x * n, "PrivateUse1")
        _custom_ops.impl_save_for_backward(name)(lambda inputs, output: inputs.n)
        backward = _custom_ops.impl_backward(name, output_differentiability=[False])
        backward(lambda ctx, n, grad: {"x": grad * n})
        x = torch.ones(2, device=device, requires_grad=True)
        assert not torch.ops.bp_test_migration.scale(x, 2.0).requires_grad


@pytest.mark.filterwarnings(LEGACY)
def test_R03_the_older_factory(legacy_op):
    legacy_op.impl_factory()(lambda n: torch.ones(2))
    assert torch._C._dispatch_has_kernel_for_dispatch_key("bp_test_migration::scale", "BackendSelect")


@pytest.mark.filterwarnings(LEGACY)
def test_R04_the_older_lookups(legacy_op):
    from torch._custom_op import impl

    from torch_backplane import ops

    name = "bp_test_migration::scale"
    assert impl._find_custom_op(name) is legacy_op
    assert impl.get_abstract_impl(name) is None
    assert ops.get(name).overload is impl.get_op(name) is torch.ops.bp_test_migration.scale.default
    assert not set(impl.__all__) & {"_find_custom_op", "get_abstract_impl", "get_op"}
    with pytest.raises(ValueError, match="did you mean bp_test_migration::scale"):
        ops.get("bp_test_migration::scal")


def test_R05_impl_abstract_is_register_fake(library):
    library.define("f(Tensor x) -> Tensor")
    with pytest.warns(FutureWarning, match=r"renamed to `torch\.library\.register_fake`"):
        torch.library.impl_abstract("bp_test_migration::f", lambda x: x.new_empty(7), lib=library)
    assert torch.ops.bp_test_migration.f(torch.ones(2, device="meta")).shape == (7,)


def test_R06_the_dispatcher_takes_no_second_fallback(backend_package):
    with torch.library._scoped_library("_", "IMPL") as library, pytest.raises(RuntimeError, match="fallback"):
        library.fallback(lambda op, *args: None, "PrivateUse1")


def test_R07_infer_schema_wants_mutates_args():
    from torch._custom_op.impl import infer_schema

    assert infer_schema is torch.library.infer_schema
    with pytest.raises(TypeError, match="mutates_args"):
        infer_schema(scale)
    assert infer_schema(scale, mutates_args=()) == "(Tensor x, float n) -> Tensor"


def test_R08_tuple_to_list_gives_the_builtin():
    from torch._library.infer_schema import tuple_to_list

    assert tuple_to_list(tuple[int, int]) == list[int]
    assert tuple_to_list(tuple[int, int]) != typing.List[int]  # noqa: UP006


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_R09_a_second_registration_replaces_the_first_unless_overriding_is_off(library, device):
    library.define("f(Tensor x) -> Tensor")
    x = torch.zeros(1, device=device)
    for added in (1, 2):
        library.impl("f", lambda x, added=added: x + added, "PrivateUse1")
        library._register_fake("f", lambda x, added=added: x.new_empty(added))
        assert torch.ops.bp_test_migration.f(x).item() == added
        assert torch.ops.bp_test_migration.f(x.to("meta")).shape == (added,)
    with pytest.raises(RuntimeError, match="already a kernel registered from python"):
        library.impl("f", torch.clone, "PrivateUse1", allow_override=False)
    with pytest.raises(RuntimeError, match="already has a fake impl registered"):
        library._register_fake("f", torch.clone, allow_override=False)


def test_R09_the_sdk_reports_a_second_kernel(library):
    from torch_backplane import kernel, ops

    library.define("f(Tensor x) -> Tensor")
    op = ops.get("bp_test_migration::f")
    op.register_kernel(None, lambda x: x)
    with pytest.warns(ops.OperatorWarning, match=rf"{__file__}:\d+"):
        op.register_kernel(None, lambda x: x)
    with ops.strict(), pytest.raises(ops.OperatorWarning):
        op.register_kernel(None, lambda x: x)
    op.destroy()

    def mine(self):
        return self

    with kernel("aten::erfinv", mine), pytest.raises(ValueError, match=rf"(?s){__file__}:\d+.*override=True"):
        kernel("aten::erfinv", mine)


def test_R10_a_higher_order_operator_is_a_subclass():
    from torch._ops import HigherOrderOperator

    with pytest.raises(TypeError, match="abstract"):
        HigherOrderOperator("bp_test_migration")
    assert "__call__" in HigherOrderOperator.__abstractmethods__


def test_R11_tables_that_were_renamed():
    op = torch.ops.aten.sin.default
    assert not hasattr(op, "python_key_mode_table")
    assert hasattr(op, "python_key_table")
    assert not hasattr(torch._ops, "_PyOpNamespace")
    assert hasattr(torch._ops, "_HigherOrderNamespace")
    assert callable(op.py_impl)


def test_R12_what_takes_a_script_object_is_ordered_by_its_schema(library):
    from torch._higher_order_ops.effects import _get_effect
    from torch._library.effects import EffectType

    from torch_backplane import ops

    library.define("taken(__torch__.torch.classes.profiler._RecordFunction o, Tensor x) -> Tensor")
    library.define("plain(Tensor x) -> Tensor")
    assert _get_effect("bp_test_migration::taken") is EffectType.ORDERED
    assert _get_effect("bp_test_migration::plain") is None
    ops.get("bp_test_migration::plain").register_effect()
    assert _get_effect("bp_test_migration::plain") is EffectType.ORDERED


def test_R13_what_is_gone_of_deploy():
    assert torch._running_with_deploy() is False
    assert not hasattr(torch._C, "_dispatch_is_main_interpreter")
    assert list(INCLUDE.rglob("HermeticPyObjectTLS.h")) == []


def test_R18_pinning_does_not_ask_the_devices_kernels(backend_package, device):
    def kernel(*args):
        raise AssertionError("asked")

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_pin_memory", kernel, "PrivateUse1")
        library.impl("is_pinned", kernel, "PrivateUse1")
        x = torch.ones(2)
        assert (x.pin_memory().is_pinned(), x.is_pinned()) == (True, False)
    dump = torch._C._dispatch_dump("aten::_pin_memory") + torch._C._dispatch_dump("aten::is_pinned")
    assert dump.count("CompositeExplicitAutograd[alias]") == 2


@pytest.mark.filterwarnings("ignore:The argument 'device'")
@pytest.mark.parametrize("call", ["pin_memory", "is_pinned"])
def test_R18_the_argument_is_deprecated(backend_package, device, call):
    with pytest.warns(DeprecationWarning, match=rf"The argument 'device' of Tensor\.{call}\(\) is deprecated"):
        getattr(torch.ones(2), call)(device.type)


def test_R22_a_wrong_path_is_an_os_error():
    with pytest.raises(OSError, match=r"/nowhere/libvendor\.so"):
        torch.ops.load_library("/nowhere/libvendor.so")


def test_R23_script_is_deprecated():
    with pytest.warns((DeprecationWarning, FutureWarning), match=r"`torch\.jit\.script` is deprecated"):
        torch.jit.script(torch.nn.Identity())


def test_R24_names_that_remain_and_what_needs_expecttest():
    from torch.testing._internal.optests import generate_tests

    extra = set(generate_tests.DEPRECATED_DEFAULT_TEST_UTILS) - set(generate_tests.DEFAULT_TEST_UTILS)
    assert extra == {"test_aot_dispatch_static"}
    default = inspect.signature(generate_tests.generate_opcheck_tests).parameters["test_utils"].default
    assert default == generate_tests.DEFAULT_TEST_UTILS
    common = Path(importlib.util.find_spec("torch.testing._internal.common_utils").origin).read_text()
    assert re.search(r"^import expecttest", common, re.MULTILINE)
    database = Path(importlib.util.find_spec("torch.testing._internal.custom_op_db").origin).read_text()
    assert "from torch.testing._internal.opinfo" in database
    assert not any(requirement.startswith("expecttest") for requirement in requires("torch"))
