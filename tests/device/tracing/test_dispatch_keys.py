"""Dispatch keys and key sets as torch's bindings have them for the device (D20, D23, D24, D26, D27, D35)."""

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet

C = torch._C
pytestmark = pytest.mark.once

VARIANTS = ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")


def key(functionality=""):
    return getattr(DispatchKey, f"{functionality}PrivateUse1")


def keys(*names):
    found = DispatchKeySet(DispatchKey.Undefined)
    for name in names:
        found = found | DispatchKeySet(getattr(DispatchKey, name))
    return found


@pytest.mark.parametrize(
    ("variant", "functionality"),
    [
        ("", "Dense"),
        ("Autograd", "AutogradFunctionality"),
        *((one, one) for one in ("Sparse", "SparseCsr", "Quantized", "NestedTensor")),
        ("Autocast", None),  # each device's own, not one of all
    ],
)
def test_D20_D23_keys_map_to_names_and_functionalities_and_back(variant, functionality):
    name, found = f"{variant}PrivateUse1", key(variant)
    assert C._parse_dispatch_key(name) == C._dispatch_key_parse(name) == found
    assert C._dispatch_key_name(found) == name
    assert C._to_functionality_key(found) == (getattr(DispatchKey, functionality) if functionality else found)
    assert functionality is None or found in C._functionality_to_backend_keys(C._to_functionality_key(found))


def test_D23_the_autograd_key_knows_its_back_end():
    assert C._dispatch_get_backend_keyset_from_autograd(key("Autograd")).has(key())
    assert not C._dispatch_get_backend_keyset_from_autograd(DispatchKey.AutogradCPU).has(key())


def test_D24_sets_can_be_joined_asked_and_ranked():
    both = keys("PrivateUse1") | keys("AutogradPrivateUse1")
    assert [both.has(key(one)) for one in ("", "Autograd", "Autocast")] == [True, True, False]
    assert both.highestPriorityTypeId() == key("Autograd")
    assert (both & keys("AutogradPrivateUse1")) == keys("AutogradPrivateUse1")
    assert both == keys("PrivateUse1").add(key("Autograd"))
    assert DispatchKeySet.from_raw_repr(both.raw_repr()) == both
    assert C._dispatch_keyset_to_string(both) == "DispatchKeySet(PrivateUse1, AutogradPrivateUse1)"


def test_D24_keys_of_back_ends_are_taken_away_for_all_of_them():
    both = keys("PrivateUse1", "AutogradPrivateUse1")
    left = both - keys("AutogradPrivateUse1")
    assert left == keys("PrivateUse1")
    assert both.remove(key("Autograd")) == left
    assert both.remove(DispatchKey.AutogradCPU) == left  # one functionality for all
    assert not (keys("CPU", "PrivateUse1") - keys("PrivateUse1")).has(DispatchKey.CPU)


def test_D24_a_tensors_keys_lose_autograd_below_it(device):
    found = C._dispatch_keys(torch.ones(1, device=device))
    assert found.highestPriorityTypeId() == key("Autocast")
    below = found & C._after_autograd_keyset
    assert not below.has(key("Autograd"))
    assert not below.has(key("Autocast"))
    assert below.has(DispatchKey.ADInplaceOrView)
    assert (found & C._after_ADInplaceOrView_keyset).highestPriorityTypeId() == key()


def test_D26_the_predefined_sets_contain_the_device():
    for found in (
        C._after_autograd_keyset,
        C._after_ADInplaceOrView_keyset,
        C._dispatch_keyset_full(),
        C._dispatch_keyset_full_after(key("Autograd")),
        C._additional_keys_to_prop_for_wrapper_tensors,
    ):
        assert found.has(key())


def test_D26_a_wrapper_tensor_has_the_keys_of_its_device(device):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, size, device):
            return torch.Tensor._make_wrapper_subclass(cls, size, device=device)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    found = C._dispatch_keys(Wrapper((2,), device))
    for present in (key(), key("Autograd"), key("Autocast"), DispatchKey.Python, DispatchKey.ADInplaceOrView):
        assert found.has(present)
    assert not found.has(DispatchKey.CPU)


@pytest.mark.parametrize(
    ("alias", "variants"),
    [
        ("CompositeExplicitAutograd", {"", "Sparse", "Quantized"}),
        ("CompositeExplicitAutogradNonFunctional", {""}),
        ("CompositeImplicitAutograd", {"", "Autograd", "Sparse", "Quantized", "NestedTensor"}),
        ("CompositeImplicitAutogradNestedTensor", {"NestedTensor"}),
        ("Autograd", {"Autograd"}),
    ],
)
def test_D27_the_device_belongs_to_the_right_aliases(alias, variants):
    def included(backend):
        names = {variant: getattr(DispatchKey, variant + backend, None) for variant in VARIANTS}
        found = getattr(DispatchKey, alias)
        return {v for v, name in names.items() if name is not None and C._dispatch_is_included_in_alias(name, found)}

    assert included("PrivateUse1") == included("CPU")
    assert included("PrivateUse1") >= variants


def test_D27_it_is_no_autogradother_back_end_but_its_layouts_are():
    others = C._dispatch_autogradother_backends
    assert [v for v in VARIANTS if others.has(key(v))] == ["Sparse", "SparseCsr", "Quantized"]
    assert not others.has(key())


def test_D35_plain_tensors_are_not_taken_for_subclasses(device):
    plain = torch.ones(2, device=device)
    assert not C._dispatch_isTensorSubclassLike(plain)
    assert not C._dispatch_isTensorSubclassLike(torch.nn.Parameter(plain))
    assert not C._dispatch_isTensorSubclassLike(plain.t())
    with torch._subclasses.FakeTensorMode() as mode:
        assert C._dispatch_isTensorSubclassLike(mode.from_tensor(plain))
