"""Every extension point of <backplane/extend.h>, by its example: a counter or a value shows whose part is in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # the first test builds the backend

Run = Callable[..., dict[str, Any]]


def test_allocator(on_extdevice: Run) -> None:
    """The vendor's segment_alloc and segment_free see every byte that the allocator reserves."""
    seen = on_extdevice(
        """
        before = ops.segments()
        x = torch.empty(64 << 20, dtype=torch.uint8, device="extdevice")
        held = (ops.segments(), ops.segment_bytes(), torch.accelerator.memory_reserved())
        del x
        torch.accelerator.empty_cache()
        report(before=before, held=held, after=(ops.segments(), ops.segment_bytes()))
        """
    )
    assert seen["before"] == 0
    segments, counted, reserved = seen["held"]
    assert segments >= 1
    assert counted == reserved >= 64 << 20
    assert seen["after"] == [0, 0]


def test_generator(on_extdevice: Run) -> None:
    """Operators take their numbers from the vendor's class: the default generator, a clone and a sharer of one."""
    seen = on_extdevice(
        """
        x = torch.empty(100, device="extdevice")
        counts, offsets = [ops.ranges_taken()], []
        generator = torch.Generator("extdevice").manual_seed(5)
        clone = generator.clone_state()
        for g in (None, generator, clone, generator.graphsafe_get_state()):
            x.uniform_(generator=g)
            counts.append(ops.ranges_taken())
            offsets.append(g.get_offset() if g else None)
        report(counts=counts, offsets=offsets)
        """
    )
    assert seen["counts"] == [0, 1, 2, 3, 4]
    for offset in seen["offsets"][1:]:
        assert offset > 0
        assert offset % 1024 == 0


def test_hooks(on_extdevice: Run) -> None:
    seen = on_extdevice(
        """
        before = (ops.pinned_asked(), ops.storages_resized())
        pinned = torch.empty(4).pin_memory().is_pinned()
        x = torch.arange(4, device="extdevice")
        x.untyped_storage().resize_(4096)
        after = (ops.pinned_asked(), ops.storages_resized())
        report(before=before, pinned=pinned, after=after, values=x.tolist())
        """
    )
    assert seen["before"] == [0, 0]
    assert seen["pinned"] is True
    assert seen["after"][0] >= 1
    assert seen["after"][1] == 1
    assert seen["values"] == [0, 1, 2, 3]


def test_capture(on_extdevice: Run) -> None:
    """While a stream is recorded, what cannot be raises and says what to do; the rest works, as other streams do."""
    seen = on_extdevice(
        """
        stream, event = torch.Stream("extdevice"), torch.Event("extdevice")
        x, pinned = torch.tensor([1.0, 2.0, 3.0, 4.0], device="extdevice"), torch.empty(4).pin_memory()
        event.record()

        def kinds():
            yield lambda: stream.synchronize()
            yield lambda: torch.accelerator.synchronize()
            yield lambda: event.synchronize()
            yield lambda: x.cpu()
            yield lambda: torch.extdevice.host_view(x).__enter__()
            yield lambda: x.__dlpack__(dl_device=(1, 0))
            yield lambda: torch.linalg.inv(x.reshape(2, 2))

        def outcomes():
            for action in kinds():
                try:
                    action()
                    yield ""
                except RuntimeError as error:
                    yield str(error).split("\\n")[0]

        with stream:
            free = list(outcomes())
            ops.record_stream_id(stream.stream_id)
            asked = torch.extdevice.is_current_stream_capturing()
            refused = list(outcomes())
            pinned.copy_(x, non_blocking=True)
            positive = x.abs()
        elsewhere = (torch.extdevice.is_current_stream_capturing(), x.tolist())
        ops.record_stream_id(-1)
        stream.synchronize()
        values = (pinned.tolist(), positive.tolist())
        report(free=free, asked=asked, refused=refused, elsewhere=elsewhere, values=values)
        """
    )
    assert seen["free"] == [""] * 7
    assert seen["asked"] is True
    waits = [f"A wait for {what}" for what in ("the stream", "the device", "an event")]
    views = ["A host view"] * 2
    what = [*waits, "aten::copy_ between the host and the device", *views, "aten::linalg_inv_ex"]
    for said, beginning in zip(seen["refused"], what, strict=True):
        assert said.startswith(beginning), said
        assert "cannot be recorded: stream " in said
        assert "before the capture begins or after it has ended" in said
    assert seen["elsewhere"] == [False, [1, 2, 3, 4]]
    assert seen["values"] == [[1, 2, 3, 4]] * 2


def test_storage_e40(on_extdevice: Run) -> None:
    """E40: the vendor's StorageImpl, made without memory (it allocates) and round given memory; views share it."""
    seen = on_extdevice(
        """
        x = torch.empty(8, device="extdevice")
        y = torch.zeros(2, 3, device="extdevice").t().contiguous()
        storage = torch.UntypedStorage(64, device="extdevice")
        tensors = [x, x.view(2, 4), y, torch.empty(0, device="extdevice").set_(storage)]
        numbers = [ops.storage_number(t) for t in tensors]
        places = [t.data_ptr() for t in tensors]
        alive = ops.storages_alive()
        x.resize_(4096)
        kept = ops.storage_number(x) == numbers[0]
        del tensors, storage, x, y
        report(numbers=numbers, places=places, kept=kept, alive=alive, left=ops.storages_alive())
        """
    )
    first, view, *others = seen["numbers"]
    assert first == view > 0
    assert len({first, *others}) == 3
    assert min(others) > 0
    assert 0 not in seen["places"]
    assert seen["kept"] is True
    assert seen["alive"] >= 3
    assert seen["left"] == 0


def test_metadata_is_carried_e41(on_extdevice: Run) -> None:
    """E41: over detach, .data, Parameter and views, as separate copies; new values have none."""
    seen = on_extdevice(
        """
        x = torch.ones(2, 3, device="extdevice")
        none = ops.get_format(x)
        ops.set_format(x, 7)
        kept = dict(
            detach=x.detach(), data=x.data, parameter=torch.nn.Parameter(x), view=x.view(-1), slice=x[1:], select=x[0],
            transpose=x.t(), as_strided=x.as_strided((2,), (1,)), alias=torch.ops.aten.alias(x), chunk=x.chunk(2)[1],
            unfold=x.unfold(1, 2, 1), expand=x.expand(4, 2, 3), dtype=x.view(torch.int32),
        )
        formats = {name: ops.get_format(t) for name, t in kept.items()}
        ops.set_format(kept["detach"], 9)
        own = ops.get_format(x)
        report(none=none, formats=formats, own=own, sum=ops.get_format(x + x), cpu=ops.get_format(x.cpu()))
        """
    )
    assert seen["none"] is None
    assert set(seen["formats"].values()) == {7}, seen["formats"]
    assert seen["own"] == 7
    assert seen["sum"] is None
    assert seen["cpu"] is None


def test_metadata_is_saved_e42(on_extdevice: Run, tmp_path: Path) -> None:
    """E42: torch.save and torch.load, weights_only and mmap too; tensors without metadata pass; the CPU drops it."""
    seen = on_extdevice(
        """
        file = sys.argv[1]
        x = torch.arange(6., device="extdevice").view(2, 3)
        ops.set_format(x, 42)
        plain = torch.ones(2, device="extdevice")
        conj = torch.tensor([1 + 2j], device="extdevice").conj()
        ops.set_format(conj, 6)
        torch.save(dict(x=x, row=x[1], p=torch.nn.Parameter(x), plain=plain, conj=conj), file)
        found = {}
        for name, options in dict(full={}, pickle=dict(weights_only=False), mmap=dict(mmap=True)).items():
            got = torch.load(file, **options)
            found[name] = {key: ops.get_format(t) for key, t in got.items()}
            assert str(got["x"].device) == "extdevice:0" and torch.equal(got["x"].cpu(), x.cpu())
            assert isinstance(got["p"], torch.nn.Parameter)
            assert got["conj"].is_conj() and got["conj"].cpu().item() == 1 - 2j
        on_cpu = torch.load(file, map_location="cpu")
        report(found=found, cpu=[str(on_cpu["x"].device), ops.get_format(on_cpu["x"]), on_cpu["x"].tolist()])
        """,
        tmp_path / "x.pt",
    )
    for formats in seen["found"].values():
        assert formats == {"x": 42, "row": 42, "p": 42, "plain": None, "conj": 6}
    assert seen["cpu"] == ["cpu", None, [[0, 1, 2], [3, 4, 5]]]


# What a file may hold, and what the refusal says.
DAMAGED = {
    "backplane.metadata/2/anything at all": "has encoding 2, this torch-backplane",
    "backplane.metadata/x": "the file is damaged",
    "backplane.metadata/1/extdevice.format/2": "the file is damaged",
    "backplane.metadata/1/extdevice.format/2/9/format=4": "says that it has 9 bytes, found 8",
    "backplane.metadata/1/extdevice.format/2/9/format=%Z": "the file is damaged",
    "backplane.metadata/1/extdevice.format/2/6/format": "the file is damaged",
    "backplane.metadata/1/extdevice.format/3/9/format=42": "has version 3, this build reads up to 2",
    "backplane.metadata/1/othervendor.tiling/1/0/": "this build of 'extdevice' does not know",
    "backplane.metadata/1/extdevice.format/2/8/other=42": "the file holds no format number",
}


def test_metadata_is_checked_e42(on_extdevice: Run) -> None:
    """Encoding, length, kind, version and device: each refusal names what was found. An older version is read."""
    seen = on_extdevice(
        """
        errors = {}
        for key in json.loads(sys.argv[1]):
            x = torch.ones(2, device="extdevice")
            try:
                torch._utils.set_tensor_metadata(x, {key: True})
            except RuntimeError as caught:
                errors[key] = str(caught)
            assert ops.get_format(x) is None
        assert torch._utils.get_tensor_metadata(x) == {}
        torch._utils.set_tensor_metadata(x, {"backplane.metadata/1/extdevice.format/1/9/layout=11": True})
        older = dict(format=ops.get_format(x), saved=torch._utils.get_tensor_metadata(x))
        try:
            ops.set_format(torch.ones(2), 1)
        except ValueError as caught:
            other = str(caught)
        report(errors=errors, older=older, other=other)
        """,
        json.dumps(list(DAMAGED)),
    )
    assert set(seen["errors"]) == set(DAMAGED)
    for key, message in DAMAGED.items():
        assert message in seen["errors"][key], key
    assert seen["older"] == {"format": 11, "saved": {"backplane.metadata/1/extdevice.format/2/9/format=11": True}}
    assert seen["other"].startswith("Tensor metadata belongs to tensors on 'extdevice', this one is on 'cpu'.")


def test_copy(on_extdevice: Run) -> None:
    seen = on_extdevice(
        """
        before = ops.copies_made()
        x = torch.arange(4.).to("extdevice")
        y = torch.empty_like(x)
        y.copy_(x)
        counted = ops.copies_made()
        values = y.cpu().tolist()
        report(before=before, counted=counted, values=values, after=ops.copies_made(), moved=ops.bytes_from_host())
        """
    )
    assert seen["before"] == 0
    assert seen["counted"] >= 2
    assert seen["after"] > seen["counted"]
    assert seen["moved"] == 16
    assert seen["values"] == [0, 1, 2, 3]


def test_E21_E22_E23_a_dispatch_stub_gives_three_forms(on_extdevice: Run) -> None:
    """One stub and abs.out: functional, out= of every layout, in-place; another dtype is refused."""
    seen = on_extdevice(
        """
        x = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], device="extdevice")
        values = [abs(x).tolist(), torch.abs(x.t()).tolist(), x[:, ::2].clone().abs_().tolist()]
        empty, gaps = torch.empty(0, device="extdevice"), torch.zeros(3, 4, device="extdevice")[:, ::2]
        torch.abs(x, out=empty)
        torch.abs(x.t(), out=gaps)
        outs = [empty.tolist(), gaps.tolist(), list(gaps.stride())]
        calls = ops.stub_calls()
        try:
            abs(x.double())
        except NotImplementedError as error:
            refused = str(error)
        report(values=values, outs=outs, calls=calls, after=ops.stub_calls(), refused=refused)
        """
    )
    positive = [[1, 2, 3], [4, 5, 6]]
    transposed = [[1, 4], [2, 5], [3, 6]]
    assert seen["values"] == [positive, transposed, [[1, 3], [4, 6]]]
    assert seen["outs"] == [positive, transposed, [4, 2]]
    assert seen["calls"] == seen["after"] == 5
    assert "float32" in seen["refused"]


def test_an_operator_of_the_core_is_replaced_without_a_warning(on_extdevice: Run) -> None:
    """mse_loss is the vendor's; that torch says nothing of overridden kernels is checked on every run."""
    seen = on_extdevice(
        """
        x = torch.ones(4, device="extdevice", requires_grad=True)
        loss = torch.nn.functional.mse_loss(x, x.detach() * 3)
        loss.backward()
        report(loss=loss.item(), grad=x.grad.tolist(), losses=ops.losses_computed())
        """
    )
    assert seen == {"loss": 4.0, "grad": [-1.0] * 4, "losses": 1}
