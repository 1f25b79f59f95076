"""What a program observes when a device fails. Each cell of the matrix in docs/faults.md is a case."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLACES = Path(__file__).with_name("fault_places.py")
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.once


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page, the head first."""
    lines = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (table[0], *table[2:])]


def marks(fault: str) -> list[pytest.MarkDecorator]:
    """One process runs a fault at every place; the tests of a row share it."""
    most = [] if fault.strip("`") == "fault.alloc=@1" else [pytest.mark.long]
    return [pytest.mark.xdist_group(fault), *most]


HEAD, *MATRIX = rows("The matrix")
CELLS = [
    pytest.param(row[0].strip("`"), place.strip("`"), cell, id=f"{row[0]}-{place}", marks=marks(row[0]))
    for row in MATRIX
    for place, cell in zip(HEAD[1:], row[1:], strict=True)
]
_, *WORDS = rows("What the error says")


@functools.cache
def run_fault(name: str, fault: str) -> dict[str, dict[str, object]]:
    """Run a fault at every place; the results by place."""
    prefix = name.upper()
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        f"{prefix}_SHIMS": "fault",
        f"{prefix}_OPTIONS": f"{fault},fault.device=0,fault.armed_by=armed",
    }
    if re.match(r"fault\.(kernel|hang|lost)=", fault):  # what they count is a kernel
        env[f"{prefix}_KERNELS"] = "wait"
    if "hang" in fault:
        env[f"{prefix}_WATCHDOG_SECONDS"] = "1"
    if re.match(r"fault\.(reserve|map|unmap)=", fault):
        env[f"{prefix}_ALLOC_CONF"] = "expandable_segments:True"
    env.pop(f"{prefix}_DRIVER", None)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(PLACES), name]
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {found["place"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(("fault", "place", "cell"), CELLS)
def test_matrix(name, fault, place, cell):
    found = run_fault(name, fault)[place]
    assert found["exit"] == 0, found["output"]
    assert "Traceback" not in found["output"]
    assert (found["raised"] or "-") == cell.strip("`"), found["text"]
    assert found["leaked"] == 0
    assert found["other"] == 2000.0
    assert found["saved"] == 3


@pytest.mark.parametrize(
    ("fault", "texts", "afterwards"),
    [pytest.param(*row, id=row[0], marks=marks(row[0])) for row in WORDS],
)
def test_words(name, fault, texts, afterwards):
    fault = fault.strip("`")
    met = [found for found in run_fault(name, fault).values() if found["raised"]]
    assert met or not texts.strip("-")
    for found in met:
        for text in re.findall(r"`([^`]+)`", texts):
            assert text in found["text"], found["place"]
        # The next use is on the default stream.
        works = "other streams work" in afterwards if found["place"] == "stream" else False
        assert found["again"] == (3.0 if afterwards == "works" or works else afterwards.split("`")[1]), found["place"]


def test_the_tables_agree_with_the_places(name):
    places = re.findall(r"^    def ([a-z]\w+)\(self\)", PLACES.read_text(), re.MULTILINE)
    assert [head.strip("`") for head in HEAD[1:]] == places
    assert [row[0] for row in MATRIX] == [row[0] for row in WORDS]


TRAIN = """
    import torch
    torch.manual_seed(3)
    device = "{name}"
    model = torch.nn.Sequential(torch.nn.Linear(16, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(8, 2048, 16).to(device)
    step = again = 0
    while step < 8:
        try:
            torch.{name}.empty_cache()  # so that every step needs memory of the driver's
            optimizer.zero_grad()
            loss = model(data[step]).square().mean()
            loss.backward()
        except torch.OutOfMemoryError:
            again += 1
            continue
        optimizer.step()
        step += 1
    print(repr(loss.item()), again)
"""


@pytest.mark.long
def test_training_goes_on_after_out_of_memory_to_the_same_loss(run_on, name):
    def train(options, shims):
        loss, again = run_on(TRAIN.format(name=name), options, SHIMS=shims).stdout.split()
        return float(loss), int(again)

    sound, none = train("", None)
    assert none == 0
    # Each time the allocator frees its cache and tries again, which fails, too.
    loss, again = train("fault.alloc=@20-27", "fault")
    assert (loss, again > 0) == (sound, True)
    for n in (2, 3):  # every n-th: the allocator tries again, which succeeds
        assert train(f"fault.alloc={n}", "fault")[0] == sound
    assert train("alloc_fail=5", None)[0] == sound


EXPAND = """
    import torch
    module, device, chunk = torch.{name}, "{name}", 20 << 20
    module.memory._set_allocator_settings("expandable_segments:True")
    free = module.mem_get_info()[0]
    refused = 0
    kept = []
    for step in range(60):
        try:
            x = torch.full(((step * 7 % 5 + 1) << 20,), step, dtype=torch.int32, device=device)
            kept.append((x, step))
            del x
        except torch.OutOfMemoryError:
            refused += 1
        if step % 6 == 5:
            assert all((x.cpu() == value).all() for x, value in kept)
            del kept[::2]
        if step % 20 == 19:
            kept.clear()
            module.synchronize()
            module.empty_cache()
            assert module.memory_reserved() == module.memory_allocated() == 0
    print(refused, (free - module.mem_get_info()[0]) / chunk)
"""


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("faults", "refuses", "lost"),
    [
        pytest.param("fault.map=3", False, 0, id="map"),  # the allocator asks again at once
        pytest.param("fault.map=@5-12", True, 0, id="maps"),
        pytest.param("fault.reserve=@1+", False, 0, id="reserve"),
        pytest.param("fault.unmap=@1", False, 1, id="unmap"),
        pytest.param("fault.unmap=@2-4", False, 3, id="unmaps"),
        pytest.param("fault.map=4,fault.unmap=@3", False, 1, id="both"),
    ],
)
def test_expandable_segments_lose_what_a_failed_unmap_kept_and_no_more(run_on, name, faults, refuses, lost):
    """Growing and shrinking continue: what could not be unmapped is not mapped again, everything else is."""
    done = run_on(EXPAND.format(name=name), f"memory=1GiB,{faults}", SHIMS="fault")
    refused, missing = done.stdout.split()
    assert (int(refused) > 0, float(missing)) == (refuses, lost)
    assert ("bp.vmm.unmap" in done.stderr) == (lost > 0)


@pytest.mark.kernels
def test_launch_blocking_names_the_operator(run_on, name):
    code = f"""
        import torch
        x = torch.ones(8, device="{name}")
        torch.{name}.synchronize()
        y = x + 1
        try:
            z = x.exp()
            print("not raised where it was queued")
        except torch.AcceleratorError as error:
            print(error)
    """
    text = run_on(code, "fault.kernel=@3", SHIMS="fault", LAUNCH_BLOCKING="1").stdout
    assert "bad address (injected by fault.kernel=@3)" in text
    assert f"The failed work is the kernel queued by aten::exp on the default stream of {name}:0." in text
    assert "LAUNCH_BLOCKING" not in text


@pytest.mark.kernels
def test_the_watchdog_names_the_stream_and_the_work(run_on, name, tmp_path):
    code = f"""
        import torch
        stream, other = torch.{name}.Stream(), torch.{name}.Stream()
        x = torch.ones(8, device="{name}")
        torch.{name}.synchronize()
        open("{tmp_path}/armed", "w").close()
        with stream:
            x.exp_()
        with other:
            y = torch.ones(4, device="{name}")
        for wait in (stream.synchronize, torch.{name}.synchronize, lambda: stream.record_event().synchronize()):
            try:
                wait()
            except RuntimeError as error:
                print(error, stream.stream_id, other.stream_id)
        other.synchronize()
        print("other done")
    """
    options = f"fault.hang=@1,fault.armed_by={tmp_path}/armed"
    texts = run_on(code, options, SHIMS="fault", WATCHDOG_SECONDS="0.3").stdout
    for call in ("stream_synchronize", "synchronize", "event_synchronize"):
        assert f"driver: {call}(device 0) -> TIMEOUT" in texts
    line = rf"\n  stream (\d+) of {name}:0: the latest work is a kernel queued by aten::exp_"
    assert len(re.findall(line, texts)) == 3
    assert "of 0.3000 seconds" not in texts
    assert "the 0.3000 seconds of" in texts
    assert texts.endswith("other done\n")


def test_a_wrong_watchdog_is_refused(run_in_process, name):
    code = f"""
        import torch
        try:
            x = torch.ones(8, device="{name}") + 1
            torch.{name}.synchronize()
        except ValueError as error:
            print(error)
    """
    for wrong in ("0", "5s"):
        done = run_in_process(code, env={f"{name.upper()}_WATCHDOG_SECONDS": wrong})
        assert f"_WATCHDOG_SECONDS is '{wrong}': expected a number of seconds greater than 0" in done.stdout


@pytest.mark.kernels
def test_every_call_on_a_lost_device_raises(run_on, name, tmp_path):
    code = f"""
        import torch
        device, module = torch.device("{name}", 0), torch.{name}
        x, stream, event = torch.ones(8, device=device), module.Stream(), module.Event()
        event.record(stream)
        module.synchronize()
        host = {{"w": torch.arange(5.0)}}
        calls = dict(
            empty=lambda: torch.empty(1 << 22, device=device), add=lambda: x + 1, fill=lambda: x.fill_(2),
            item=lambda: x[0].item(), cpu=lambda: x.cpu(), put=lambda: torch.ones(3).to(device),
            sync=module.synchronize, stream=stream.synchronize,
            query=stream.query, event=event.synchronize, event_query=event.query, record=lambda: event.record(stream),
            new=lambda: module.Event().record(stream), memory=module.mem_get_info, print=lambda: str(x))
        try:
            for _ in range(100):
                x + 1
        except torch.AcceleratorError:
            pass
        for call, run in calls.items():
            try:
                run()
                print(call, "went on")
            except torch.AcceleratorError as error:
                assert "DEVICE_LOST: device 0 has fallen off the bus" in str(error), str(error)
            except Exception as error:
                print(call, type(error), error)
        file = {str(tmp_path / "state.pt")!r}
        torch.save(host, file)
        print(torch.load(file)["w"].sum().item(), (torch.ones(2, device="{name}:1") * 2).sum().item())
    """
    done = run_on(code, "fault.lost=@20,fault.device=0", SHIMS="fault")
    assert done.stdout == "10.0 4.0\n"
