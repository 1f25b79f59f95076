"""torch.library.Library on the device: kinds, keys, kernels, overrides (D01-D06, D11-D13, D18, D33)."""

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.library import Library, fallthrough_kernel

import torch_backplane
from torch_backplane.ops import registry

NS = "bp_test_libraries"
OPS = getattr(torch.ops, NS)

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),  # that a kernel is overridden
]


@pytest.fixture
def library():
    with torch.library._scoped_library(NS, "FRAGMENT") as made:
        yield made


@pytest.fixture
def another():
    """Another library of kernels for the same operators."""
    with torch.library._scoped_library(NS, "IMPL") as made:
        yield made


@pytest.fixture
def x(device):
    return torch.linspace(-0.9, 0.9, 5).to(device)


def test_D01_there_are_three_kinds_and_nothing_else():
    made = [Library(f"{NS}_kinds", kind) for kind in ("DEF", "FRAGMENT", "IMPL")]
    assert [library.kind for library in made] == ["DEF", "FRAGMENT", "IMPL"]
    with pytest.raises(ValueError, match=r"Unsupported kind: .*PART"):
        Library(NS, "PART")
    with pytest.raises(ValueError, match="prim is a reserved namespace"):
        Library("prim", "DEF")


@pytest.mark.parametrize("namespace", ["aten", f"{NS}_once"])
def test_D01_a_namespace_has_one_definition(namespace):
    first = None if namespace == "aten" else Library(namespace, "DEF")
    with pytest.raises(RuntimeError, match=f"Only a single TORCH_LIBRARY .* namespace {namespace}"):
        Library(namespace, "DEF")
    if first is not None:
        first._destroy()
        Library(namespace, "DEF")._destroy()  # the name is free again


def test_D02_a_library_of_kernels_carries_a_default_key(library, x):
    library.define("defaulted(Tensor x) -> Tensor")
    with torch.library._scoped_library(NS, "IMPL", "PrivateUse1") as ours:
        ours.impl("defaulted", lambda x: x + 1)
        assert torch.equal(OPS.defaulted(x), x + 1)
        assert [kernel.key for kernel in registry.kernels(f"{NS}::defaulted")] == ["PrivateUse1"]
        with pytest.raises(NotImplementedError, match="CPU"):
            OPS.defaulted(x.cpu())
        with pytest.raises(RuntimeError, match="inconsistent with the dispatch key"):
            ours.impl("defaulted", lambda x: x + 2, "CPU")
    with pytest.raises(RuntimeError, match="dispatch_key"):  # torch accepts it only for kernels
        Library(f"{NS}_key", "DEF", "PrivateUse1")


def test_D03_define_takes_alias_analysis_and_tags_and_returns_the_name(library):
    assert library.define("from_schema(Tensor(a!) x) -> ()", "FROM_SCHEMA") == "from_schema"
    assert library.define("careful(Tensor x) -> Tensor", "CONSERVATIVE", tags=torch.Tag.pointwise) == "careful"
    assert library.define("careful.some(Tensor x, int y) -> Tensor") == "careful"  # without the overload
    assert torch.Tag.pointwise in OPS.careful.default.tags
    assert torch.Tag.pointwise not in OPS.careful.some.tags
    with pytest.raises(RuntimeError, match="Invalid alias_analysis type PURE_FUNCTION"):
        library.define("pure(Tensor x) -> Tensor", "PURE_FUNCTION")


def test_D04_a_python_kernel_is_called_for_the_devices_tensors(library, x):
    library.define("traced(Tensor x, *, int n=2) -> Tensor[]")
    seen = []

    def kernel(x, *, n=2):
        seen.append((x.device, n))
        return [x + i for i in range(n)]

    library.impl("traced", kernel, "PrivateUse1")
    assert [t.cpu().tolist() for t in OPS.traced(x, n=3)] == [(x + i).cpu().tolist() for i in range(3)]
    OPS.traced(x)
    assert seen == [(x.device, 3), (x.device, 2)]


def test_D05_a_fallthrough_of_one_operator_passes_a_key_over(library, x):
    library.define("passed(Tensor x) -> Tensor")
    library.impl("passed", lambda x: x + 1, "PrivateUse1")
    library.impl("passed", fallthrough_kernel, "AutocastPrivateUse1")
    assert torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(f"{NS}::passed", "AutocastPrivateUse1")
    assert not torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(f"{NS}::passed", "PrivateUse1")
    with torch.autocast(x.device.type):
        assert torch.equal(OPS.passed(x), x + 1)


def test_D05_it_ends_with_its_library(library, another, x):
    library.define("cast(Tensor x) -> Tensor")
    library.impl("cast", lambda x: x + 1, "PrivateUse1")
    library.impl("cast", lambda x: x + 9, "AutocastPrivateUse1")
    with torch.autocast(x.device.type):
        assert torch.equal(OPS.cast(x), x + 9)
        another.impl("cast", fallthrough_kernel, "AutocastPrivateUse1")
        assert torch.equal(OPS.cast(x), x + 1)
        another._destroy()
        assert torch.equal(OPS.cast(x), x + 9)


def test_D05_the_whole_key_falls_through_by_the_sdks_registration():
    assert torch._C._dispatch_has_backend_fallback(DispatchKey.AutocastPrivateUse1)
    with (
        torch.library._scoped_library("_", "IMPL") as everything,
        pytest.raises(RuntimeError, match="fallback"),
    ):
        everything.fallback(fallthrough_kernel, "AutocastPrivateUse1")


def test_D06_a_kernel_receives_the_key_set_and_redispatches_with_it(library, x):
    library.define("wrapped(Tensor x) -> Tensor")
    library.impl("wrapped", lambda x: x * 2, "PrivateUse1")
    seen = []

    def autograd(keys, x):
        seen.append(keys)
        return OPS.wrapped.default.redispatch(keys & torch._C._after_autograd_keyset, x) + 100

    library.impl("wrapped", autograd, "AutogradPrivateUse1", with_keyset=True)
    torch.testing.assert_close(OPS.wrapped(x), x * 2 + 100)
    (keys,) = seen
    assert keys.has(DispatchKey.PrivateUse1)
    assert keys.highestPriorityTypeId() == DispatchKey.AutogradPrivateUse1


def test_D11_an_override_ends_with_its_library(x):
    before = torch.add(x, x)
    with torch.library._scoped_library("aten", "IMPL") as ours:
        ours.impl("add.Tensor", lambda self, other, *, alpha=1: self.clone(), "PrivateUse1")
        assert torch.equal(torch.add(x, x), x)
        assert torch.equal(torch.add(x.cpu(), x.cpu()), before.cpu())
    assert torch.equal(torch.add(x, x), before)


def test_D11_torch_warns_once_a_process(run_in_process, name):
    code = """
    import warnings
    import torch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library = torch.library.Library("aten", "IMPL", "PrivateUse1")
        library.impl("view", lambda self, size: self)
        library.impl("as_strided", lambda self, size, stride, storage_offset=None: self)
    print([("Overriding" in str(w.message), "aten::view(" in str(w.message)) for w in caught])
    """
    warned = [] if torch.version.cuda else [(True, True)]  # a CUDA build is silent
    assert run_in_process(code).stdout.splitlines() == [str(warned)]


def test_D12_a_second_python_kernel_is_an_error_when_overriding_is_off(library, another, x):
    library.define("mine(Tensor x) -> Tensor")
    library.impl("mine", lambda x: x + 1, "PrivateUse1")
    with pytest.raises(RuntimeError, match="already a kernel registered from python overriding mine"):
        another.impl("mine", lambda x: x + 2, "PrivateUse1", allow_override=False)
    another.impl("mine", lambda x: x + 3, "CPU", allow_override=False)  # another key
    assert torch.equal(OPS.mine(x), x + 1)


def test_D13_the_kernel_behind_an_override_can_be_called(x):
    behind = torch.library.get_kernel("aten::add.out", "PrivateUse1")
    keys = DispatchKeySet(DispatchKey.PrivateUse1)
    with torch.library._scoped_library("aten", "IMPL") as ours:
        seen = []

        def add(self, other, *, alpha=1, out):
            seen.append(alpha)
            return behind.call_boxed(keys, self, other, alpha=alpha, out=out)

        ours.impl("add.out", add, "PrivateUse1")
        out = torch.empty_like(x)
        assert torch.add(x, x, alpha=3, out=out) is out
    torch.testing.assert_close(out.cpu(), x.cpu() * 4)
    assert seen == [3]


def test_D18_queries_for_unknown_operators_raise(library):
    library.define("known(Tensor x) -> Tensor")
    library.impl("known", lambda x: x, "CPU")
    for ask in (  # not the one for fallthroughs, which crashes the process
        torch._C._dispatch_has_kernel_for_dispatch_key,
        torch._C._dispatch_has_computed_kernel_for_dispatch_key,
        torch._C._dispatch_get_computed_kernel_for_dispatch_key,
    ):
        with pytest.raises(RuntimeError, match=f"operator {NS}::unknown does not exist"):
            ask(f"{NS}::unknown", "PrivateUse1")
    with pytest.raises(RuntimeError, match=f"no kernel for PrivateUse1 on {NS}::known"):
        torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(f"{NS}::known", "PrivateUse1")
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NS}::known", "PrivateUse1")
    assert not torch._C._dispatch_has_kernel(f"{NS}::unknown")  # the one that asks whether there is any


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    ("returns", "wrong", "says"),
    [
        ("Tensor", lambda x: (x, x, x), "Unable to cast .* to Tensor"),
        ("(Tensor, Tensor)", lambda x: (x, 4), "Unable to cast 4 to Tensor"),
        ("(Tensor, Tensor)", lambda x: (x, x, x), "returned 3 results, and the schema has 2"),
        ("(Tensor, Tensor)", lambda x: (x,), "returned 1 results, and the schema has 2"),
        ("(Tensor, Tensor)", lambda x: x, "returned a Tensor, and the schema has 2 results"),
        ("Tensor[]", lambda x: [x, 4], "Unable to cast"),
        ("int", lambda x: 4.5, "Unable to cast"),
        ("()", lambda x: x, "to return None"),
    ],
)
def test_D33_results_are_checked_against_the_schema(returns, wrong, says, x):
    """How many results there are is checked by the SDK's Library: torch's own crashes, or gives what there is."""
    with torch_backplane.ops.Library(NS, "FRAGMENT") as library:
        library.define(f"result(Tensor x) -> {returns}")
        library.impl("result", wrong, "PrivateUse1")
        with pytest.raises(RuntimeError, match=says):
            OPS.result(x)


def test_D33_so_are_those_of_a_prototypes_kernel(x):
    with (
        torch_backplane.kernel("aten::frexp.Tensor", lambda self: (self, self, self)),
        pytest.raises(RuntimeError, match="returned 3 results, and the schema has 2"),
    ):
        torch.frexp(x)


def test_D33_an_exception_keeps_its_type(library, x):
    library.define("raises(Tensor x) -> Tensor")

    def kernel(x):
        raise OwnError("mine")

    library.impl("raises", kernel, "PrivateUse1")
    with pytest.raises(OwnError, match="mine"):
        OPS.raises(x)
    with pytest.raises(OwnError, match="mine"):
        OPS.raises(x.clone().requires_grad_())  # through the autograd key's C++
