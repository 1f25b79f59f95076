"""A vendor's second library of operators, cpp/vendor_ops.cpp, loaded into the process; and one full of mistakes."""

import ctypes
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torch_backplane.ops
from torch_backplane import testing
from torch_backplane.ops import registry

pytestmark = [pytest.mark.once, pytest.mark.xdist_group("vendor_library")]  # compiled once

HERE = Path(__file__).parents[1]
ops = torch.ops.bpvendor


@pytest.fixture(scope="session")
def library(compiled):
    path = compiled(HERE / "cpp" / "vendor_ops.cpp")
    torch_backplane.ops.load_library(path)
    return path


@pytest.fixture(autouse=True)
def _loaded(library, device):
    pass


def on_both(function, device, *inputs):
    """The results and gradients of the device, moved to the CPU, and the CPU's."""
    answers = []
    for place in (device, "cpu"):
        leaves = [x.detach().clone().to(place).requires_grad_(x.is_floating_point()) for x in inputs]
        results = function(*leaves)
        results = results if isinstance(results, (tuple, list)) else [results]
        sum((result * result.detach().cos()).sum() for result in results).backward()
        grads = [leaf.grad for leaf in leaves if leaf.requires_grad]
        answers.append([None if x is None else x.detach().cpu() for x in (*results, *grads)])
    return answers


def as_on_the_cpu(function, device, *inputs):
    for got, expected in zip(*on_both(function, device, *inputs), strict=True):
        torch.testing.assert_close(got, expected)


def test_B01_a_library_is_loaded_and_recorded(library, tmp_path):
    torch.ops.load_library(str(library))  # a second time is nothing new
    assert str(library) in torch.ops.loaded_libraries
    missing = tmp_path / "libmissing.so"
    for load in (torch.ops.load_library, torch_backplane.ops.load_library):
        with pytest.raises(OSError, match=r"libmissing\.so"):
            load(str(missing))
    assert str(missing) not in torch.ops.loaded_libraries


def test_B02_the_flags_of_dlopen_are_changed_while_it_loads_alone(library, monkeypatch):
    before = sys.getdlopenflags()
    during = []

    def load(path):
        during.append(sys.getdlopenflags())
        raise OSError(path)

    torch_backplane.ops.load_library(library)
    assert sys.getdlopenflags() == before
    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(OSError, match="vendor_ops"):
        torch.ops.load_library(str(library))
    assert during == [before | os.RTLD_GLOBAL]
    assert sys.getdlopenflags() == before


def test_A20_an_operator_of_cpp_is_found_by_its_name():
    found = torch._library.utils.lookup_op("bpvendor::square_add")
    assert found is ops.square_add.default
    assert registry.overload("bpvendor::square_add") is found
    assert torch.Tag.pt2_compliant_tag in found.tags


def test_A20_an_unknown_name_says_what_to_load():
    with pytest.raises(AttributeError, match=r"not_loaded.* has no attribute 'op'"):
        torch._library.utils.lookup_op("not_loaded::op")
    with pytest.raises(ValueError, match=r"no operator of 'not_loaded' is loaded; load it first: .*load_library"):
        registry.schema("not_loaded::op")
    with pytest.raises(ValueError, match=r"did you mean bpvendor::square_add"):
        registry.schema("bpvendor::square_ad")


@pytest.mark.parametrize(("dtype", "in_kernel"), [(torch.float32, 1), (torch.int64, 0)])
def test_references_to_the_callers_tensors_come_back(device, dtype, in_kernel):
    """From the kernel, and from the fallback for a dtype that the kernel does not support."""
    x = torch.arange(6, dtype=dtype).to(device)
    y, twice, square = torch.ones_like(x), torch.empty_like(x), torch.empty_like(x)
    names = "bpvendor::twice_and_square.out", "bpvendor::twice_"
    before = [testing.kernel_calls(name) for name in names]
    results = ops.twice_and_square.out(x, twice=twice, square=square)
    assert results[0] is twice
    assert results[1] is square
    assert twice.tolist() == [0, 2, 4, 6, 8, 10]
    assert square.tolist() == [0, 1, 4, 9, 16, 25]
    assert ops.twice_(y, x) is y
    assert y.tolist() == [1, 2, 3, 4, 5, 6]
    assert [testing.kernel_calls(name) - count for name, count in zip(names, before, strict=True)] == [
        in_kernel,
        in_kernel,
    ]


def test_C62_gradients_by_another_operator(device):
    """Results by the device's kernel, gradients by what ``backward`` names: of inputs, results and plain arguments."""
    x, y = torch.linspace(-2, 2, 12).view(3, 4), torch.linspace(0, 1, 12).view(3, 4)
    index = torch.arange(12).view(3, 4)
    before = testing.kernel_calls("bpvendor::square_add")
    as_on_the_cpu(ops.square_add, device, x, y)
    assert testing.kernel_calls("bpvendor::square_add") == before + 1
    as_on_the_cpu(lambda x: ops.scaled_exp(x, 0.5), device, x)
    grad = on_both(lambda x: ops.scaled_exp(x, 0.5), device, x)[0][1]
    result = x.exp() * 0.5
    torch.testing.assert_close(grad, result.cos() * result)
    for second in (y, None):
        inputs = (x, index) if second is None else (x, second, index)
        call = (lambda x, i: ops.sum_and_product(x, None, i)) if second is None else ops.sum_and_product
        got, expected = on_both(call, device, *inputs)
        assert len(got) == (3 if second is None else 4)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
        if second is not None:
            assert got[3] is None  # sum_and_product_backward names grad_x alone


def test_C62_gradcheck_and_modes(device):
    x = torch.linspace(-1, 1, 6, dtype=torch.float64, device=device).requires_grad_()
    assert torch.autograd.gradcheck(ops.square_add, (x, x.detach().clone().requires_grad_()))
    with torch.no_grad():
        assert ops.square_add(x, x).grad_fn is None
    assert ops.square_add(x.detach(), x.detach()).grad_fn is None
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: ops.cube(x).sum())(x.detach())
    y = ops.scaled_exp(x, 2.0)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_C62_a_call_that_the_kernel_does_not_support_is_the_references(device):
    before = testing.kernel_calls("bpvendor::square_add")
    x = torch.arange(3.0)
    assert torch.equal(ops.square_add(x.to(device), torch.ones(1, device=device)).cpu(), x * x + 1)
    assert testing.kernel_calls("bpvendor::square_add") == before


def test_E45_a_kernel_on_the_autograd_key(device):
    assert registry.has_kernel("bpvendor::halve_alias", "AutogradPrivateUse1")
    x = torch.ones(3, device=device, requires_grad=True)
    y = ops.halve_alias(x)
    assert y._is_view()
    assert y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [0.5] * 3
    as_on_the_cpu(ops.cube, device, torch.linspace(-1, 1, 5))  # calls itself below autograd, and so the kernel


@pytest.mark.parametrize("op", ["halve_input", "halve_alias"])
@pytest.mark.parametrize("whole", [False, True], ids=["eager", "compiled"])
def test_E44_a_function_may_return_its_input(device, op, whole):
    def run(x):
        return getattr(ops, op)(x) * 3

    run = torch.compile(run, backend="aot_eager", fullgraph=True) if whole else run
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = run(x)
    y.sum().backward()
    assert y.tolist() == [3.0, 6.0]
    assert x.grad.tolist() == [1.5, 1.5]
    z = (x * 1).detach()
    assert run(z).tolist() == [3.0, 6.0]


def test_a_pair_compiles_whole(device):
    def loss(x, y):
        return ops.square_add(x, y * 2).sum()

    inputs = torch.linspace(-1, 1, 8).view(2, 4), torch.ones(2, 4)
    whole = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got, _ = on_both(whole, device, *inputs)
    _, expected = on_both(loss, device, *inputs)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_D10_the_rules_of_autocast(device):
    x = torch.linspace(0, 1, 4, device=device)
    half = x.to(torch.bfloat16)
    with torch.autocast(device.type, torch.bfloat16):
        assert ops.square_add(x, x).dtype == torch.bfloat16
        assert ops.scaled_exp(half, 2.0).dtype == torch.float32
        index = torch.arange(4, device=device)
        assert [r.dtype for r in ops.sum_and_product(half, x, index)] == [torch.float32] * 2
        assert ops.sum_and_product(half, None, index)[0].dtype == torch.bfloat16
        assert ops.square_add(x.double(), x.double()).dtype == torch.float64
        leaf = x.clone().requires_grad_()
        ops.square_add(leaf, x).float().sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * half.float())
    assert ops.square_add(x, x).dtype == torch.float32


def test_D43_the_module_of_the_fakes_is_named_and_imported():
    assert torch._C._dispatch_pystub("bpvendor::square_add", "")[0] == "vendor_ops_fakes"
    assert torch._C._dispatch_pystub("bpvendor::halve_alias", "") is None
    assert "vendor_ops_fakes" in sys.modules


def test_C49_the_pair_of_operator_and_fake_is_checked(device, monkeypatch):
    """A fake in another module than the named one is refused; one for an operator without, where torch is strict."""
    from torch._subclasses import FakeTensorMode

    def register(scoped, name):
        torch.library.register_fake(f"bpvendor::{name}", torch.empty_like, lib=scoped, _stacklevel=0)

    with FakeTensorMode() as mode, torch.library._scoped_library("bpvendor", "FRAGMENT") as scoped:
        x = mode.from_tensor(torch.ones(2, 3, device=device))
        assert ops.square_add(x, x).shape == (2, 3)
        assert ops.square_add(x, x).device.type == device.type
        register(scoped, "cube")
        with pytest.raises(RuntimeError, match=r"'vendor_ops_fakes' but it was actually found in .*vendor_ops.cpp"):
            ops.cube(x)
        register(scoped, "names_no_module")
        with monkeypatch.context() as strict:
            strict.setattr("torch._utils_internal.REQUIRES_SET_PYTHON_MODULE", True)
            with pytest.raises(RuntimeError, match=r"companion C\+\+ `m.set_python_module\(.*vendor_ops.cpp"):
                ops.names_no_module(x)
        assert ops.names_no_module(x).shape == (2, 3)
        with pytest.raises(RuntimeError, match=r"bpvendor\.scaled_exp"):
            ops.scaled_exp(x, 1.0)
    meta = torch.ones(2, device="meta")
    with pytest.raises(NotImplementedError, match="bpvendor::scaled_exp: We could not find the fake impl"):
        ops.scaled_exp(meta, 1.0)
    monkeypatch.delitem(sys.modules, "vendor_ops_fakes")
    with pytest.raises(NotImplementedError, match="need to import the 'vendor_ops_fakes' Python module"):
        ops.scaled_exp(meta, 1.0)


BAD = """
    import sys
    import torch
    import torch_backplane.ops
    import {package}

    if len(sys.argv) > 2:
        torch.ops.load_library(sys.argv[1])
        sys.exit()
    try:
        torch_backplane.ops.load_library(sys.argv[1])
    except ImportError as error:
        print(error)
    try:
        torch.library.define("bpbad::python_defines", "(Tensor x, int n) -> Tensor")
    except RuntimeError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def printed(compiled, backend_package):
    """The errors of loading cpp/bad_ops.cpp, one on each line; and the output of torch's own loader."""
    code = textwrap.dedent(BAD).format(package=backend_package.__name__)
    command = [sys.executable, "-c", code, compiled(HERE / "cpp" / "bad_ops.cpp")]
    runs = [subprocess.run([*command, *more], capture_output=True, text=True) for more in ([], ["stock"])]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    return runs[0].stdout, runs[1].stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('m.def("broken', "expected"),
        ('BACKPLANE_LIBRARY(bpbad, m) { m.def("first(Tensor x) -> Tensor"); }', "multiple times"),
        ('BACKPLANE_KERNELS(bpbad, m) { m.impl("first"', "has a kernel for PrivateUse1 already, registered"),
        ('m.def("second', "bpbad::second"),
        ('m.impl("nobody_defines"', 'no operator bpbad::nobody_defines. Define it by BACKPLANE_LIBRARY'),
        ("PrivateUse7", "could not parse dispatch key: PrivateUse7"),
        ('"no_such_module"', "there is no Python module no_such_module"),
        ('.backward("no_backward")', "bpbad::no_backward"),
        ('m.python_module("math")', "math was imported for it and has not defined it"),
        ('.backward("fourth_backward")', "the parameter z of bpbad::fourth_backward"),
        ('.backward("fifth_backward")', "has tensors for 2. Return one for each tensor among its inputs"),
        ('.backward("sixth_backward")', "write none of their arguments"),
        ('.backward("seventh_backward")', "take no lists of tensors"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(printed, line, text):
    source = (HERE / "cpp" / "bad_ops.cpp").read_text().splitlines()
    (at,) = [i for i, code in enumerate(source) if line in code]
    block = max(i for i in range(at + 1) if source[i].startswith("BACKPLANE_"))
    errors = re.split(r"\n  (?=\S*bad_ops\.cpp:)", printed[0])
    assert [error for error in errors if f"bad_ops.cpp:{block + 1}: " in error and text in error]


@pytest.mark.long
def test_a_signature_is_compared_when_python_defines_the_operator(printed):
    _, _, error = printed[0].partition("operators of")[2].partition("operator: bpbad::python_defines")
    assert "bad_ops.cpp" in error


@pytest.mark.long
def test_torchs_own_loader_warns(printed):
    assert "not registered: " in printed[1]
    assert "torch_backplane.ops.load_library(path) raises this" in printed[1]
