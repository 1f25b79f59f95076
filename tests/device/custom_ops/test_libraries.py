"""torch.library.Library on the device: kinds, keys, kernels, overrides, tags, lifetimes."""

import gc

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._library import custom_ops
from torch._library.simple_registry import singleton
from torch.library import Library, _scoped_library, fallthrough_kernel

import torch_backplane
from torch_backplane.ops import registry

NAMESPACE = "bp_test_libraries"
OPS = getattr(torch.ops, NAMESPACE)

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),  # that a kernel is overridden
]


@pytest.fixture
def another():
    """Another library of kernels for the same operators."""
    with _scoped_library(NAMESPACE, "IMPL") as made:
        yield made


def test_D01_there_are_three_kinds_and_nothing_else():
    made = [Library(f"{NAMESPACE}_kinds", kind) for kind in ("DEF", "FRAGMENT", "IMPL")]
    assert [library.kind for library in made] == ["DEF", "FRAGMENT", "IMPL"]
    with pytest.raises(ValueError, match=r"Unsupported kind: .*PART"):
        Library(NAMESPACE, "PART")
    with pytest.raises(ValueError, match="prim is a reserved namespace"):
        Library("prim", "DEF")


@pytest.mark.parametrize("namespace", ["aten", f"{NAMESPACE}_once"])
def test_D01_a_namespace_has_one_definition(namespace):
    first = None if namespace == "aten" else Library(namespace, "DEF")
    with pytest.raises(RuntimeError, match=f"Only a single TORCH_LIBRARY .* namespace {namespace}"):
        Library(namespace, "DEF")
    if first is not None:
        first._destroy()
        Library(namespace, "DEF")._destroy()  # the name is free again


def test_D02_a_library_of_kernels_carries_a_default_key(ops, x):
    ops.define("defaulted(Tensor x) -> Tensor")
    with _scoped_library(NAMESPACE, "IMPL", "PrivateUse1") as ours:
        ours.impl("defaulted", lambda x: x + 1)
        assert torch.equal(ops.defaulted(x), x + 1)
        assert [kernel.key for kernel in registry.kernels(f"{NAMESPACE}::defaulted")] == ["PrivateUse1"]
        with pytest.raises(NotImplementedError, match="CPU"):
            ops.defaulted(x.cpu())
        with pytest.raises(RuntimeError, match="inconsistent with the dispatch key"):
            ours.impl("defaulted", lambda x: x + 2, "CPU")
    with pytest.raises(RuntimeError, match="dispatch_key"):  # torch accepts it only for kernels
        Library(f"{NAMESPACE}_key", "DEF", "PrivateUse1")


def test_D03_define_takes_alias_analysis_and_returns_the_name(ops):
    define = ops.library.define
    assert define("from_schema(Tensor(a!) x) -> ()", "FROM_SCHEMA") == "from_schema"
    assert define("careful(Tensor x) -> Tensor", "CONSERVATIVE", tags=torch.Tag.pointwise) == "careful"
    assert define("careful.some(Tensor x, int y) -> Tensor") == "careful"  # without the overload
    assert torch.Tag.pointwise not in ops.careful.some.tags
    with pytest.raises(RuntimeError, match="Invalid alias_analysis type PURE_FUNCTION"):
        define("pure(Tensor x) -> Tensor", "PURE_FUNCTION")


@pytest.mark.parametrize("form", [lambda tag: tag, lambda tag: (tag,), lambda tag: [tag, torch.Tag.core]])
def test_C79_D03_tags_are_given_and_read(ops, form):
    tags = form(torch.Tag.pointwise)
    given = [tags] if isinstance(tags, torch.Tag) else list(tags)
    assert ops.define("defined(Tensor x) -> Tensor", tags=tags).tags == given
    torch.library.define(f"{NAMESPACE}::named", "(Tensor x) -> Tensor", lib=ops.library, tags=tags)
    assert ops.named.default.tags == given
    custom = ops.custom("custom", torch.clone, schema="(Tensor x) -> Tensor", tags=tags)
    assert set(custom._opoverload.tags) == {*given, torch.Tag.pt2_compliant_tag}
    assert torch.Tag.pt2_compliant_tag in torch.ops.aten.add.out.tags


def test_D04_a_python_kernel_is_called_for_the_devices_tensors(ops, x):
    seen = []

    def kernel(x, *, n=2):
        seen.append((x.device, n))
        return [x + i for i in range(n)]

    ops.define("traced(Tensor x, *, int n=2) -> Tensor[]", PrivateUse1=kernel)
    assert [t.cpu().tolist() for t in ops.traced(x, n=3)] == [(x + i).cpu().tolist() for i in range(3)]
    ops.traced(x)
    assert seen == [(x.device, 3), (x.device, 2)]


def test_D05_a_fallthrough_of_one_operator_passes_a_key_over_until_its_library_ends(ops, another, x):
    def is_fallthrough(key):
        return torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(f"{NAMESPACE}::cast", key)

    ops.define("cast(Tensor x) -> Tensor", PrivateUse1=lambda x: x + 1, AutocastPrivateUse1=lambda x: x + 9)
    with torch.autocast(x.device.type):
        assert torch.equal(ops.cast(x), x + 9)
        another.impl("cast", fallthrough_kernel, "AutocastPrivateUse1")
        assert is_fallthrough("AutocastPrivateUse1")
        assert not is_fallthrough("PrivateUse1")
        assert torch.equal(ops.cast(x), x + 1)
        another._destroy()
        assert torch.equal(ops.cast(x), x + 9)


def test_D05_the_whole_key_falls_through_by_the_sdks_registration():
    assert torch._C._dispatch_has_backend_fallback(DispatchKey.AutocastPrivateUse1)
    with (
        _scoped_library("_", "IMPL") as everything,
        pytest.raises(RuntimeError, match="fallback"),
    ):
        everything.fallback(fallthrough_kernel, "AutocastPrivateUse1")


def test_D06_a_kernel_receives_the_key_set_and_redispatches_with_it(ops, x):
    seen = []

    def autograd(keys, x):
        seen.append(keys)
        return op.redispatch(keys & torch._C._after_autograd_keyset, x) + 100

    op = ops.define("wrapped(Tensor x) -> Tensor", PrivateUse1=lambda x: x * 2)
    ops.library.impl("wrapped", autograd, "AutogradPrivateUse1", with_keyset=True)
    torch.testing.assert_close(op(x), x * 2 + 100)
    (keys,) = seen
    assert keys.has(DispatchKey.PrivateUse1)
    assert keys.highestPriorityTypeId() == DispatchKey.AutogradPrivateUse1


def test_C67_D11_a_kernel_for_torchs_operator_is_the_devices_alone_and_ends_with_its_library(x):
    before = torch.abs(x)
    with _scoped_library("aten", "IMPL") as library:
        library.impl("abs", lambda self: self + 100, "PrivateUse1")
        assert torch.equal(x.abs(), x + 100)
        assert torch.equal(x.cpu().abs(), before.cpu())
        leaf = x.clone().requires_grad_()
        leaf.abs().sum().backward()
    assert torch.equal(leaf.grad, x.sgn())  # the gradient stays torch's
    assert torch.equal(torch.abs(x), before)


def test_C67_C77_a_kernel_for_an_operator_of_a_library_is_removed_and_the_operator_stays(ops, another, x):
    ops.define("f(Tensor x) -> Tensor", CompositeExplicitAutograd=lambda x: x + 1)
    another.impl("f", lambda x: x + 5, "PrivateUse1")
    assert torch.equal(ops.f(x), x + 5)
    assert torch.equal(ops.f(x.cpu()), x.cpu() + 1)
    another._destroy()
    assert torch.equal(ops.f(x), x + 1)


@pytest.mark.parametrize("by", ["scope", "collection"])
def test_C77_a_library_that_ends_frees_operators_fakes_and_names(x, by):
    for added in (1, 2):  # the name can be used again
        library = Library(NAMESPACE, "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x, added=added: x + added, "PrivateUse1")
        torch.library.register_fake(f"{NAMESPACE}::f", torch.empty_like, lib=library)
        assert torch.equal(OPS.f(x), x + added)
        assert singleton.find(f"{NAMESPACE}::f").fake_impl.kernel is not None
        if by == "scope":
            library._destroy()
        del library
        gc.collect()
        assert not hasattr(OPS, "f")
        assert singleton.find(f"{NAMESPACE}::f").fake_impl.kernel is None
        assert f"{NAMESPACE}::f" not in torch._C._dispatch_get_all_op_names()


def test_C78_registrations_without_a_library_last_for_the_process(x):
    """The only namespace of these tests that stays."""
    if "bp_test_lasting::f" not in torch._C._dispatch_get_all_op_names():
        torch.library.define("bp_test_lasting::f", "(Tensor x) -> Tensor")
        torch.library.impl("bp_test_lasting::f", x.device.type, lambda x: x + 1)
        torch.library.register_fake("bp_test_lasting::f", torch.empty_like)

    def custom(x: Tensor) -> Tensor:
        return x + 1

    torch.library.custom_op("bp_test_lasting::custom", custom, mutates_args=(), device_types=x.device.type)
    gc.collect()
    try:
        assert torch.equal(torch.ops.bp_test_lasting.custom(x), x + 1)
    finally:
        custom_ops.OPDEF_TO_LIB.pop("bp_test_lasting::custom")._destroy()
        del custom_ops.OPDEFS["bp_test_lasting::custom"]
    assert torch.equal(torch.ops.bp_test_lasting.f(x), x + 1)
    assert torch.ops.bp_test_lasting.f(x.to("meta")).shape == x.shape


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


def test_D12_a_second_python_kernel_is_an_error_when_overriding_is_off(ops, another, x):
    ops.define("mine(Tensor x) -> Tensor", PrivateUse1=lambda x: x + 1)
    with pytest.raises(RuntimeError, match="already a kernel registered from python overriding mine"):
        another.impl("mine", lambda x: x + 2, "PrivateUse1", allow_override=False)
    another.impl("mine", lambda x: x + 3, "CPU", allow_override=False)  # another key
    assert torch.equal(ops.mine(x), x + 1)


def test_D13_the_kernel_behind_an_override_can_be_called(x):
    behind = torch.library.get_kernel("aten::add.out", "PrivateUse1")
    keys = DispatchKeySet(DispatchKey.PrivateUse1)
    with _scoped_library("aten", "IMPL") as ours:
        seen = []

        def add(self, other, *, alpha=1, out):
            seen.append(alpha)
            return behind.call_boxed(keys, self, other, alpha=alpha, out=out)

        ours.impl("add.out", add, "PrivateUse1")
        out = torch.empty_like(x)
        assert torch.add(x, x, alpha=3, out=out) is out
    torch.testing.assert_close(out.cpu(), x.cpu() * 4)
    assert seen == [3]


def test_D18_queries_for_unknown_operators_raise(ops):
    ops.define("known(Tensor x) -> Tensor", CPU=lambda x: x)
    for ask in (  # not the one for fallthroughs, which crashes the process
        torch._C._dispatch_has_kernel_for_dispatch_key,
        torch._C._dispatch_has_computed_kernel_for_dispatch_key,
        torch._C._dispatch_get_computed_kernel_for_dispatch_key,
    ):
        with pytest.raises(RuntimeError, match=f"operator {NAMESPACE}::unknown does not exist"):
            ask(f"{NAMESPACE}::unknown", "PrivateUse1")
    with pytest.raises(RuntimeError, match=f"no kernel for PrivateUse1 on {NAMESPACE}::known"):
        torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(f"{NAMESPACE}::known", "PrivateUse1")
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::known", "PrivateUse1")
    assert not torch._C._dispatch_has_kernel(f"{NAMESPACE}::unknown")  # the one that asks whether there is any


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
    with torch_backplane.ops.Library(NAMESPACE, "FRAGMENT") as library:
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


def test_D33_an_exception_keeps_its_type(ops, x):
    class OwnError(Exception): ...

    def kernel(x):
        raise OwnError("mine")

    ops.define("raises(Tensor x) -> Tensor", PrivateUse1=kernel)
    for argument in (x, x.clone().requires_grad_()):  # the second through the autograd key's C++
        with pytest.raises(OwnError, match="mine"):
            ops.raises(argument)
