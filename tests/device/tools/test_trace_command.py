"""``torch-backplane trace``, and its summary and page of a trace."""

import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from backplane_tools.cli.trace import trace as trace_command
from backplane_tools.timeline import Copies, DeviceTime, Gap, Kernel, summarize
from backplane_tools.timeline_page import page
from torch_backplane.fallback import Count


def span(category, name, begin, length, device=0, row=0, **args):
    place = {"pid": device, "tid": row, "ts": 100.0 + begin, "dur": length}
    return {"ph": "X", "cat": category, "name": name, "args": args, **place}


@pytest.fixture
def written():
    """A profile of 100 us: two streams that overlap, a gap of 15 us, another device."""
    return {
        "traceEvents": [
            span("Trace", "PyTorch Profiler (0)", 0, 100, device="Spans"),
            span("cpu_op", "aten::add", 1, 5, device=77, **{"External id": 3}),
            span("cpu_op", "aten::copy_", 60, 5, device=77, **{"External id": 4}),
            span("privateuse1_runtime", "launch kernel", 2, 0, device=77, unfinished="when the profile ended"),
            span("kernel", "add <fast>", 10, 20, **{"External id": 3}),
            span("kernel", "add <fast>", 20, 25, row=1),
            span("gpu_memcpy", "Memcpy HtoD", 60, 10, bytes=5000, **{"External id": 4}),
            span("gpu_memcpy", "Memcpy HtoD", 75, 0, bytes=3000),
            span("gpu_memset", "Memset", 0, 4, device=1, bytes=64),
            span("gpu_user_annotation", "step", 10, 60),
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "x"}},
        ]
    }


def test_a_summary(written):
    found = summarize(written)
    assert found.microseconds == 100
    assert found.devices == [DeviceTime(0, 45.0, 2), DeviceTime(1, 4.0, 1)]
    assert (found.busy_share(0), found.busy_share(1), found.busy_share(2)) == (0.45, 0.04, 0)
    assert found.kernels == [Kernel("add <fast>", 2, 45.0), Kernel("Memset", 1, 4.0)]
    assert found.copies == [Copies("Memcpy HtoD", 2, 8000, 10.0)]
    assert found.copies[0].gigabytes_per_second == pytest.approx(0.8)
    assert found.gaps == [Gap(0, 45.0, 15.0, "aten::copy_"), Gap(0, 70.0, 5.0, "")]
    assert found.unfinished == 1
    assert json.loads(json.dumps(found.to_json()))["devices"][0]["busy_microseconds"] == 45


def test_no_profile_no_summary():
    with pytest.raises(ValueError, match=r"no profile of torch\.profiler"):
        summarize({"traceEvents": [span("cpu_op", "aten::add", 0, 1)]})


class Parts(HTMLParser):
    """The bars of a page, by stream, and the tags that are open at its end."""

    def __init__(self):
        super().__init__()
        self.bars, self.open, self.external = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag != "meta":
            self.open.append(tag)
        if tag == "rect":
            self.bars.append((attrs["class"], float(attrs["x"]), float(attrs["width"])))
        self.external += [value for key, value in attrs.items() if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page(written):
    text = page(summarize(written), "a <program>", "chip", [Count("aten::sinc.out", 3, seconds=2e-5)])
    parts = Parts()
    parts.feed(text)
    assert parts.open == parts.external == []
    kinds = [("kernel", 100.0, 200.0), ("copy", 600.0, 100.0), ("copy", 750.0, 0.4), ("kernel", 200.0, 250.0)]
    assert parts.bars == [*kinds, ("fill", 0.0, 40.0)]
    assert "add &lt;fast&gt;, 20.0 us, by aten::add" in text
    texts = ["a &lt;program&gt;", "45.0 %", "chip:0 busy", "aten::sinc.out", "20.0 %"]
    for expected in [*texts, "1 pieces of work were not complete"]:
        assert expected in text


@pytest.fixture
def run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    def command(script, *args):
        (tmp_path / "program.py").write_text(f"import sys, torch\nname = {name!r}\n{script}")
        done = CliRunner().invoke(trace_command, [*args, "program.py", "3"])
        return done.exit_code, done.output

    return command


@pytest.mark.requires("profile")
def test_a_program(run, tmp_path, name):
    script = """
x, y = (torch.ones(1024, device=name) for _ in range(2))
torch.get_device_module(name).synchronize()
for i in range(int(sys.argv[1])):
    y.fill_(i)
    x.copy_(y)
    x.erfinv()
"""
    status, output = run(script, "--out", "t.json", "--html", "t.html", "--json", "s.json")
    assert status == 0, output
    numbers = json.loads((tmp_path / "s.json").read_text())
    assert {kernel["name"]: kernel["calls"] for kernel in numbers["kernels"]}["Memset"] >= 3
    (copies,) = [copies for copies in numbers["copies"] if copies["name"] == "Memcpy DtoD"]
    assert (copies["calls"], copies["bytes"]) == (3, 3 * 4096)
    assert [(each["op"], each["calls"]) for each in numbers["fallbacks"]] == [("aten::erfinv.out", 3)]
    assert re.search(rf"{name}:0 was busy for [\d.]+ ms \([\d.]+ %\), streams: 1", output)
    headings = ("costliest kernels", "operators on the CPU", "waited for the host", "copies")
    for expected in (*headings, "Memset", "Memcpy DtoD"):
        assert expected in output
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 10
    assert "Memcpy DtoD" in (tmp_path / "t.html").read_text()


@pytest.mark.requires("profile")
def test_options_behind_the_script(tmp_path, monkeypatch, name):
    """The command takes its options up to "--"; the others are the script's."""
    monkeypatch.chdir(tmp_path)
    script = f"""
import sys, torch
torch.ones(8, device={name!r}).add_(1)
open("seen", "w").write(" ".join(sys.argv[1:]))
"""
    (tmp_path / "program.py").write_text(script)
    words = "program.py 3 --out t.json --lr 0.1 --json=s.json -- --out theirs".split()
    done = CliRunner().invoke(trace_command, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "seen").read_text() == "3 --lr 0.1 --out theirs"
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (tmp_path / "s.json").exists()
    done = CliRunner().invoke(trace_command, ["program.py", "3", "--out"])
    assert (done.exit_code, "Option '--out' requires an argument" in done.output) == (2, True)
    assert (tmp_path / "program.py").read_text() == script


@pytest.mark.requires("profile")
def test_a_program_that_fails_or_does_not_use_the_device(run, name):
    status, output = run("torch.empty(8, device=name).fill_(1)\nraise RuntimeError('wrong')")
    assert status == 1
    assert "Memset" in output
    status, output = run("torch.ones(8).sum()")
    assert status == 1
    assert f"{name} did nothing that a profile shows: the script must put its model" in output


@pytest.mark.once
def test_a_driver_without_a_profile_is_named(run_on, tmp_path, name):
    script = tmp_path / "program.py"
    script.write_text(f"import torch\ntorch.ones(8, device={name!r}).add_(1)")
    code = f"""
        from click.testing import CliRunner
        from backplane_tools.cli.trace import trace
        done = CliRunner().invoke(trace, [{str(script)!r}])
        print(done.exit_code, done.output)
    """
    done = run_on(code, "profile=off", SHIMS=None).stdout
    assert done.startswith("1 ")
    assert f"the driver of {name} has no bp.profile" in done
    assert f"{name.upper()}_SHIMS=emulate" in done
