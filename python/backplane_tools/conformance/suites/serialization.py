"""Tensors, modules and optimizers to a file and back, across devices; copies that keep what a tensor is."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch

from backplane_tools.conformance.checks import DTYPES, FunctionSuite, close, equal, expect, raises, second, skip


def saved(value: object, **options: Any) -> io.BytesIO:
    """The bytes of ``torch.save``."""
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


class SerializationSuite(FunctionSuite):
    """In memory, but for what needs a file."""

    name = "serialization"

    def save__dtypes(self, device: torch.device) -> None:
        for dtype in DTYPES:
            x = torch.randint(0, 2, (3, 5)).to(dtype)
            y = torch.load(saved(x.to(device)))
            equal((y.device, y.dtype), (device, dtype), "the device and dtype")
            close(y, x, str(dtype))

    def save__legacy_format(self, device: torch.device) -> None:
        x = torch.randn(3, 5)
        y = torch.load(saved(x.to(device), _use_new_zipfile_serialization=False))
        equal(y.device, device, "the device")
        close(y, x)

    def save__views_share_memory(self, device: torch.device) -> None:
        x = torch.arange(12.0, device=device)
        whole, part = torch.load(saved([x, x[2:10:2]]))
        close(part, torch.arange(12.0)[2:10:2])
        whole.add_(1)
        close(part, torch.arange(12.0)[2:10:2] + 1, "a view after a change of its base")

    def save__strides(self, device: torch.device) -> None:
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        y = torch.load(saved(x.to(device)))
        equal(y.stride(), x.stride(), "the strides")
        close(y, x)

    def save__conjugate_and_negative(self, device: torch.device) -> None:
        x = torch.randn(4, dtype=torch.complex64)
        conj, imag = torch.load(saved([x.to(device).conj(), x.to(device).conj().imag]))
        close(conj.resolve_conj(), x.conj().resolve_conj())
        close(imag.resolve_neg(), x.conj().imag.resolve_neg())

    def save__empty_and_scalar(self, device: torch.device) -> None:
        empty, scalar = torch.load(saved([torch.empty(0, 3, device=device), torch.tensor(5, device=device)]))
        equal((empty.shape, empty.device), (torch.Size([0, 3]), device), "the empty tensor")
        equal((scalar.item(), scalar.device), (5, device), "the scalar")

    def save__parameters(self, device: torch.device) -> None:
        p = torch.load(saved(torch.nn.Parameter(torch.ones(3, device=device), requires_grad=False)))
        expect(isinstance(p, torch.nn.Parameter) and not p.requires_grad, f"a parameter came back as {type(p)}")
        x = torch.load(saved(torch.ones(3, device=device, requires_grad=True)))
        expect(x.requires_grad and x.is_leaf, "requires_grad was lost")

    def save__sparse(self, device: torch.device) -> None:
        x = torch.eye(4).to_sparse()
        y = torch.load(saved(x.to(device)))
        equal((y.layout, y.device), (torch.sparse_coo, device), "the layout and device")
        close(y.to_dense(), torch.eye(4))

    def load__map_location(self, device: torch.device) -> None:
        x = torch.randn(5)
        ways: dict[str, Any] = {
            "a string": "cpu",
            "a device": torch.device("cpu"),
            "a dict": {str(device): "cpu"},
            "a function": lambda storage, location: storage.cpu(),
        }
        for name, where in ways.items():
            y = torch.load(saved(x.to(device)), map_location=where)
            equal(y.device.type, "cpu", f"the device after {name}")
            close(y, x, name)
        for there in (device.type, str(device), device):
            y = torch.load(saved(x), map_location=there)
            equal(y.device.type, device.type, f"the device after map_location={there!r}")
            close(y, x)

    def load__other_index(self, device: torch.device) -> None:
        second(device)
        x = torch.arange(3.0)
        for index in (0, 1):
            there = torch.device(device.type, index)
            equal(torch.load(saved(x.to(there))).device, there, "the device that was saved")
        y = torch.load(saved(x.to(f"{device.type}:1")), map_location=f"{device.type}:0")
        equal(y.device.index, 0, "the index after map_location")

    def load__missing_index(self, device: torch.device) -> None:
        count = self.module.device_count()
        with raises(RuntimeError, "", "map_location of a device that is not there"):
            torch.load(saved(torch.ones(3)), map_location=f"{device.type}:{count}")

    def load__weights_only(self, device: torch.device) -> None:
        x = torch.randn(3)
        loaded = torch.load(saved({"x": x.to(device), "step": 4, "names": ["a", "b"]}), weights_only=True)
        close(loaded["x"], x)
        equal((loaded["step"], loaded["names"]), (4, ["a", "b"]), "the rest")

    def load__mmap(self, device: torch.device) -> None:
        x = torch.randn(1000)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.pt"
            torch.save({"x": x.to(device)}, path)
            loaded = torch.load(path, map_location="cpu", mmap=True)
            close(loaded["x"], x)

    def load__assign(self, device: torch.device) -> None:
        source = torch.nn.Linear(4, 3)
        with torch.device("meta"):
            target = torch.nn.Linear(4, 3)
        target.load_state_dict(torch.load(saved(source.to(device).state_dict())), assign=True)
        equal(target.weight.device, device, "the weight's device")
        close(target.weight.detach(), source.weight.detach().cpu())

    def checkpoint__training(self, device: torch.device) -> None:
        def make(where: torch.device | str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
            net = torch.nn.Linear(4, 2).to(where)
            return net, torch.optim.Adam(net.parameters(), lr=0.1)

        def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
            optimizer.zero_grad()
            net(torch.ones(3, 4, device=next(net.parameters()).device)).pow(2).sum().backward()
            optimizer.step()

        net, optimizer = make(device)
        step(net, optimizer)
        buffer = saved({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
        step(net, optimizer)
        for where in (device, torch.device("cpu")):
            buffer.seek(0)
            state = torch.load(buffer, map_location=where)
            other, other_optimizer = make(where)
            other.load_state_dict(state["net"])
            other_optimizer.load_state_dict(state["optimizer"])
            step(other, other_optimizer)
            for p, q in zip(net.parameters(), other.parameters(), strict=True):
                close(q.detach(), p.detach().cpu(), f"a step after loading on {where}")

    def rng_state(self, device: torch.device) -> None:
        state = torch.load(saved(self.module.get_rng_state(device)))
        first = torch.rand(100, device=device).cpu()
        self.module.set_rng_state(state, device)
        close(torch.rand(100, device=device), first)

    def pickle(self, device: torch.device) -> None:
        x = torch.randn(3, 4)
        y = pickle.loads(pickle.dumps(x.to(device)))
        equal(y.device, device, "the device")
        close(y, x)

    def deepcopy(self, device: torch.device) -> None:
        net = torch.nn.Linear(3, 2).to(device)
        twin = copy.deepcopy(net)
        before = net.weight.detach().cpu().clone()
        with torch.no_grad():
            twin.weight.add_(1)
        close(net.weight.detach(), before, "the original after a change of the copy")
        equal(twin.weight.device, device, "the copy's device")
        x = torch.arange(6.0, device=device)
        whole, part = copy.deepcopy([x, x[::2]])
        whole.mul_(2)
        close(part, torch.arange(6.0)[::2] * 2, "a copied view after a change of its copied base")

    def storage(self, device: torch.device) -> None:
        x = torch.arange(6.0, device=device)
        held = x.untyped_storage()
        equal((held.device, held.nbytes()), (device, 24), "the storage's device and size")
        y = torch.load(saved(held), weights_only=False)
        equal(y.device, device, "the loaded storage's device")
        equal(y.cpu().tolist(), held.cpu().tolist(), "its bytes")
        expect(x.view(2, 3).untyped_storage().data_ptr() == held.data_ptr(), "a view has another storage")

    def attributes(self, device: torch.device) -> None:
        x = torch.ones(3, device=device)
        x.tag = "calibrated"  # type: ignore[attr-defined]
        equal(copy.deepcopy(x).tag, "calibrated", "an attribute after deepcopy")  # type: ignore[attr-defined]
        loaded = torch.load(saved(x), weights_only=False)
        equal(loaded.tag, "calibrated", "an attribute after save and load")

    def dlpack(self, device: torch.device) -> None:
        x = torch.arange(6.0, device=device)
        try:
            capsule = torch.utils.dlpack.to_dlpack(x[::2])
        except (RuntimeError, BufferError) as error:
            skip(f"no DLPack device type: {error}")
        y = torch.utils.dlpack.from_dlpack(capsule)
        equal(y.device, device, "the device")
        y.add_(1)
        close(x, torch.tensor([1.0, 1, 3, 3, 5, 5]), "the original after a change of its alias")
