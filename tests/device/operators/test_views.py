"""View operators share memory with their source, and carry its metadata."""

import inspect
from pathlib import Path

import pytest
import torch
import torchgen
from portable.compare import same_error
from torchgen.gen import parse_native_yaml

VIEWS = {
    "view": lambda x: x.view(4, 6),
    "view_dtype": lambda x: x.view(torch.int32),
    "reshape": lambda x: x.reshape(4, 6),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 2), 3),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[0],
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x[:1].expand(5, 3, 4),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "flatten": lambda x: x.flatten(),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, dim=2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "chunk": lambda x: x.chunk(2, dim=2)[1],
    "movedim": lambda x: x.movedim(0, 2),
    "alias": torch.ops.aten.alias,
    "detach": lambda x: x.detach(),
    "reshape_alias": lambda x: torch.ops.aten._reshape_alias(x, [6, 4], [4, 1]),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "view_as": lambda x: x.view_as(torch.empty(6, 4)),
    "t": lambda x: x[0].t(),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
    "neg_view": torch._neg_view,
}


def source(device):
    return torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).to(device)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_E15_a_view_equals_the_cpus_and_shares_memory(device, view):
    x, cpu = source(device), source("cpu")
    seen, expected = view(x), view(cpu)
    assert seen.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert (seen.shape, seen.dtype) == (expected.shape, expected.dtype)
    assert (seen.stride(), seen.storage_offset()) == (expected.stride(), expected.storage_offset())
    assert torch.equal(seen.cpu(), expected)


def test_E16_writes_through_a_view_are_seen(device):
    x, cpu = source(device), source("cpu")
    for t in (x, cpu):
        t.view(24, 1)[5] = -1
        t[1:, ::2].mul_(2)
        t.transpose(0, 2)[1] = t.select(2, 3).t()
    assert torch.equal(x.cpu(), cpu)
    x = torch.zeros(4, device=device)
    x.unfold(0, 2, 2).fill_(7)
    assert x.tolist() == [7, 7, 7, 7]
    y = torch.zeros(2, dtype=torch.complex64, device=device)
    torch.view_as_real(y)[:, 1] = 3
    assert y.tolist() == [3j, 3j]
    z = torch.zeros(2, 2, device=device)
    torch.view_as_complex(z).fill_(1 + 2j)
    assert z.tolist() == [[1, 2], [1, 2]]


def test_E16_no_view_operator_of_torch_is_left_to_the_fallback(device):
    """Every view operator has a kernel, is composed of others, or has a layout that this device does not support."""
    folder = Path(inspect.getfile(torchgen)).parent / "packaged" / "ATen" / "native"
    left = []
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    for function in parsed.native_functions:
        name = f"aten::{function.func.name}"
        aliases = any(r.annotation is not None and not r.annotation.is_write for r in function.func.returns)
        if aliases and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"):
            kinds = ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
            if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, f"Composite{kind}") for kind in kinds):
                left.append(name)
    of_sparse = {f"aten::{name}" for name in ("_sparse_broadcast_to", "_indices", "_values")}
    of_nested = {f"aten::_nested_{name}" for name in ("view_from_buffer", "view_from_jagged", "get_values")}
    assert set(left) <= of_sparse | of_nested


@pytest.mark.parametrize("bad", [lambda x: x.view(5), lambda x: x.t().view(-1), lambda x: x.as_strided((100,), (1,))])
def test_view_errors_are_the_cpus(device, bad):
    same_error(device, bad, torch.ones(2, 3))


def test_E13_conj_and_neg_views_are_lazy(device):
    x = torch.tensor([1 + 2j, 3 - 4j], device=device)
    assert x.conj().is_conj()
    assert x.conj().data_ptr() == x.data_ptr()
    assert x.conj().imag.is_neg()
    assert x.conj().resolve_conj().tolist() == [1 - 2j, 3 + 4j]
