"""torch-backplane port: what it finds and writes, text by text; and that no layout of a program misleads it."""

import ast
import io
import json
import os
import random
import re
import sys
import tokenize
from pathlib import Path

import pytest
from click.testing import CliRunner

from backplane_tools.cli.port import port
from backplane_tools.port import Target, port_source

NEUTRAL, NAMED = Target(), Target("npu")
CURRENT = "torch.accelerator.current_accelerator()"
TYPE = f"str({CURRENT})"
AMP = f'str({CURRENT} or "cuda")'  # torch.amp disables itself where there is no accelerator
HERE = f"str({CURRENT}) if i is None else i"


def changed(source: str, target: Target = NAMED) -> str:
    """The last line of a program that has imported torch."""
    ported = port_source(f"import torch\n{source}\n".encode(), target)
    assert not ported.problem
    assert not any(place.new for place in port_source(ported.content, target).places)
    return ported.content.decode().removeprefix("import torch\n").removesuffix("\n")


def reasons(source: str, target: Target = NAMED) -> list[str]:
    return [place.reason for place in port_source(f"import torch\n{source}\n".encode(), target).places if not place.new]


@pytest.mark.parametrize(
    ("old", "named", "neutral"),
    [
        ("torch.cuda.synchronize()", "torch.accelerator.synchronize()", None),
        ("torch.cuda.current_device()", "torch.accelerator.current_device_index()", None),
        ("torch.cuda.mem_get_info(0)", "torch.accelerator.get_memory_info(0)", None),
        ("torch.cuda.memory.empty_cache()", "torch.accelerator.empty_cache()", None),
        (
            "torch.cuda.synchronize(device=d)",
            "torch.npu.synchronize(device=d)",
            "torch.get_device_module().synchronize(device=d)",
        ),
        ("torch.cuda.device(i)", "torch.npu.device(i)", "torch.get_device_module().device(i)"),
        ("torch.cuda.random.initial_seed()", "torch.npu.initial_seed()", "torch.get_device_module().initial_seed()"),
        (
            "torch.cuda.manual_seed_all(0)",
            "torch.npu.manual_seed_all(0)",
            f'torch.get_device_module({CURRENT} or "cuda").manual_seed_all(0)',
        ),
        ("torch.cuda.Stream()", "torch.npu.Stream()", "torch.Stream()"),
        ("torch.cuda.Event(True)", "torch.npu.Event(True)", "torch.get_device_module().Event(True)"),
        ("f = torch.cuda", "f = torch.npu", "f = torch.get_device_module()"),
        ("x.cuda()", "x.npu()", f"x.to(device={TYPE})"),
        ("x.cuda( non_blocking=True )", "x.npu( non_blocking=True )", f"x.to(device={TYPE},  non_blocking=True )"),
        ("x.cuda(i)", "x.npu(i)", f"x.to(device={HERE})"),
        ("x.cuda(device=i)", "x.npu(device=i)", f"x.to(device={HERE})"),
        ("x.cuda(0, True)", "x.npu(0, True)", "x.to(device=0, non_blocking=True)"),
        ("x.cuda(None)", "x.npu(None)", f"x.to(device={TYPE})"),
        ("x.cuda(f(0) % 8)", "x.npu(f(0) % 8)", "x.to(device=torch.device(f(0) % 8))"),
        ("load(f, map_location=lambda s, l: s.cuda())", "load(f, map_location=lambda s, l: s.npu())",
         f"load(f, map_location=lambda s, l: s.to(device={TYPE}))"),
        ("f(x.is_cuda)", "f(x.is_npu)", f"f((x.device.type == {TYPE}))"),
        ("x.to('cuda')", "x.to('npu')", f"x.to({TYPE})"),
        ("x.to('cuda:1')", "x.to('npu:1')", f"x.to(f'{{{CURRENT}}}:1')"),
        ('d = f"cuda:{i}"', 'd = f"npu:{i}"', f'd = f"{{{CURRENT}}}:{{i}}"'),
        ('d = "cuda:{}".format(i)', 'd = "npu:{}".format(i)', f'd = f"{{{CURRENT}}}:{{{{}}}}".format(i)'),
        ('d = "cuda:" + str(i)', 'd = "npu:" + str(i)', f'd = f"{{{CURRENT}}}:" + str(i)'),
        ('a("--device", default="cuda")', 'a("--device", default="npu")', f'a("--device", default={TYPE})'),
        (
            't = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
            't = torch.device("npu" if torch.accelerator.is_available() else "cpu")',
            f't = torch.device({TYPE} if torch.accelerator.is_available() else "cpu")',
        ),
        ('torch.autocast("cuda")', 'torch.autocast("npu")', f"torch.autocast({AMP})"),
        ("torch.autocast('cuda')", "torch.autocast('npu')", f"torch.autocast({AMP})".replace('"', "'")),
        ('torch.device(type="cuda", index=0)', 'torch.device(type="npu", index=0)',
         f"torch.device(type={TYPE}, index=0)"),
        ('autocast(device_type="cuda")', 'autocast(device_type="npu")', f"autocast(device_type={AMP})"),
        ("torch.cuda.amp.autocast()", 'torch.amp.autocast("npu")', f"torch.amp.autocast({AMP})"),
        (
            "torch.cuda.amp.autocast(on, torch.half)",
            'torch.amp.autocast("npu", enabled=on, dtype=torch.half)',
            f"torch.amp.autocast({AMP}, enabled=on, dtype=torch.half)",
        ),
        ("torch.cuda.amp.GradScaler(2.0)", 'torch.amp.GradScaler("npu", 2.0)', f"torch.amp.GradScaler({AMP}, 2.0)"),
        ("torch.amp.GradScaler()", 'torch.amp.GradScaler("npu")', f"torch.amp.GradScaler({AMP})"),
        ("torch.GradScaler('cpu')", "torch.GradScaler('cpu')", None),
        (
            "from torch.cuda.amp import autocast as ac\nwith ac(enabled=False): pass",
            'from torch.amp import autocast as ac\nwith ac("npu", enabled=False): pass',
            f"from torch.amp import autocast as ac\nwith ac({AMP}, enabled=False): pass",
        ),
        (
            "from torch.cuda import amp\nwith amp.autocast(): s = amp.GradScaler()",
            'from torch import amp\nwith amp.autocast("npu"): s = amp.GradScaler("npu")',
            f"from torch import amp\nwith amp.autocast({AMP}): s = amp.GradScaler({AMP})",
        ),
        (
            "from torch.cuda import set_device, Stream",
            "from torch.accelerator import set_device_index as set_device\nfrom torch.npu import Stream",
            "from torch.accelerator import set_device_index as set_device\nfrom torch import Stream",
        ),
        ("import torch.cuda.amp, os", "import torch.amp, os", None),
        ('init_process_group("nccl", rank=0)', 'init_process_group("npuccl", rank=0)',
         f'init_process_group(torch.distributed.get_default_backend_for_device({CURRENT} or "cpu"), rank=0)'),
        ("a('--dist-backend', default='nccl')", "a('--dist-backend', default=\"npuccl\")",
         f"a('--dist-backend', default=torch.distributed.get_default_backend_for_device({CURRENT} or 'cpu'))"),
        ("a = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]",
         "a = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]",
         "a = torch.profiler.supported_activities()"),
        ('t.table(sort_by="cuda_time_total")', 't.table(sort_by="device_time_total")', None),
        ("profile(use_cuda=True)", 'profile(use_device="npu")', f"profile(use_device={TYPE})"),
        ("except_ = torch.cuda.OutOfMemoryError", "except_ = torch.OutOfMemoryError", None),
        ("load(f, map_location='cuda')", "load(f, map_location='npu')", f"load(f, map_location={TYPE})"),
        ('{"cuda": 1, "cpu": 2}', '{"npu": 1, "cpu": 2}', f'{{{TYPE}: 1, "cpu": 2}}'),
        ('device.startswith("cuda")', 'device.startswith("npu")', f"device.startswith({TYPE})"),
        ('def f(x, *, device="cuda"): ...', 'def f(x, *, device="npu"): ...', f"def f(x, *, device={TYPE}): ..."),
        ('x = d if q else"cuda:0"', 'x = d if q else"npu:0"', f'x = d if q else f"{{{CURRENT}}}:0"'),
        ("torch.cuda.sparse.FloatTensor", "torch.npu.sparse.FloatTensor",
         "torch.get_device_module().sparse.FloatTensor"),
        ("from torch.cuda import memory\nmemory._snapshot()", "from torch.npu import memory\nmemory._snapshot()",
         "from torch.cuda import memory\nmemory._snapshot()"),
        # what is no device is not touched
        ("numba.cuda.jit(f)", "numba.cuda.jit(f)", None),
        ('"""cuda"""', '"""cuda"""', None),
        ('print("on cuda: fast")', 'print("on cuda: fast")', None),
    ],
)  # fmt: skip
def test_P03_each_way_to_name_cuda(old, named, neutral):
    assert changed(old, NAMED) == named
    assert changed(old, NEUTRAL) == (named if neutral is None else neutral)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ('x = "cuda"', NAMED, "does not say whether it is the device"),
        ('os.path.join(HOME, "cuda")', NAMED, "does not say"),
        ("torch.cuda.nvtx.range_push(s)", NAMED, "marks for NVIDIA's profilers"),
        ("torch.cuda._lazy_init()", NAMED, "private"),
        ("torch.cuda.synchronize = f", NAMED, "sets a name"),
        ("g = torch.cuda.amp.autocast", NAMED, "not called here"),
        ("with torch.cuda.amp.autocast(*a): pass", NAMED, "are not known"),
        ("x.cuda(*a)", NEUTRAL, "are not known"),
        ("from torch import cuda", NEUTRAL, "binds CUDA's module"),
        ("from torch.cuda import *", NAMED, "binds all names"),
        (
            "try:\n  from torch.amp import autocast\nexcept E:\n  from torch.cuda.amp import autocast",
            NAMED,
            "several ways",
        ),
        ("(torch.  # here\n cuda.synchronize())", NAMED, "several lines"),
        ('d = "cu" "da:0"\nd = ("cuda:"\n "0")', NAMED, "put together"),
        ('device = "cu\\x64a"  # cuda', NAMED, "put together"),
        ("a = [ProfilerActivity.CUDA]", NEUTRAL, None),
        (
            "from torch.profiler import ProfilerActivity\na = [ProfilerActivity.CUDA]",
            NEUTRAL,
            "no name for all devices",
        ),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "1"', NEUTRAL, "its own variable"),
        ("match device:\n  case 'cuda': pass", NEUTRAL, "a pattern"),
        ("profile(use_cuda=flag)", NAMED, "torch has removed"),
        ("class M:\n  def cuda(self): ...\nM().cuda()", NAMED, "a class with a method cuda"),
        ('x.type("torch.cuda.FloatTensor")', NAMED, "as a text"),
        ('init("cpu:gloo,cuda:nccl")', NEUTRAL, "leave backend="),
        ("torch.utils.cpp_extension.CUDAExtension", NAMED, "compiles CUDA C++"),
        ('f"{torch.cuda.amp.autocast()}"', NAMED, "in a string"),
        ("x.cuda((0), True)", NEUTRAL, "are not known"),
        ("x.cuda(0, True, None)", NEUTRAL, "are not known"),
        ("x.cuda(f())", NEUTRAL, "None is CUDA's current device"),
        ("x.cuda(0 if f() else None)", NEUTRAL, "None is CUDA's current device"),
        ("x.cuda(places['cuda'])", NEUTRAL, "None is CUDA's current device"),
        ("x.cuda(places[  # all\n 0])", NEUTRAL, "None is CUDA's current device"),
        ("from models import net\nnet.cuda()", NAMED, "an imported object"),
        ("from models import net\nf(net.is_cuda)", NAMED, "an imported object"),
        ("f = m.cuda; f()", NAMED, "the method itself"),
        ("map(x.part.cuda, xs)", NEUTRAL, "the method itself"),
        ("map(torch.Tensor.cuda, xs)", NEUTRAL, "the method of a class"),
        ("torch.nn.Module.cuda(m)", NEUTRAL, "the method of a class"),
        ("torch._C._cuda_getDeviceCount()", NAMED, "a name of CUDA's"),
        ("from torch._C import _cuda_getDeviceCount", NAMED, "a name of CUDA's"),
        ("if torch.has_cuda: pass", NAMED, "torch.accelerator.is_available"),
        ("torch.backends.cuda.is_built()", NAMED, "torch.accelerator.is_available"),
        ("torch.distributed.is_nccl_available()", NAMED, "get_default_backend_for_device"),
        ("from torch.distributed import is_nccl_available", NAMED, "get_default_backend_for_device"),
        ("from torch.utils.cpp_extension import CUDAExtension", NAMED, "compiles CUDA C++"),
        ("f(stream.cuda_stream)", NAMED, "native_handle"),
        ("cuda_stream = torch.Stream().cuda_stream", NAMED, "native_handle"),
        ("f(event.cuda_event)", NAMED, "handle of an event"),
        ("x = []  # type: List[torch.cuda.FloatTensor]", NAMED, "a type in a comment"),
        ("def f(a):\n  # type: (torch.cuda.FloatTensor) -> int\n  pass", NEUTRAL, "a type in a comment"),
        ("from torch.cuda.profiler import start", NAMED, "NVIDIA's profilers"),
        ("torch.cuda.profiler.start()", NEUTRAL, "NVIDIA's profilers"),
        ("from torch.cuda.comm import broadcast", NAMED, "between several GPUs"),
        ("import torch.cuda.comm", NEUTRAL, "between several GPUs"),
        ("import os, torch.cuda.nvtx", NAMED, "marks for NVIDIA's profilers"),
        ("from torch.cuda import comm", NAMED, "between several GPUs"),
        ("torch.cuda.comm.broadcast(x)", NAMED, "between several GPUs"),
        ("from torch.cuda.later import found", NAMED, "the device's module has not"),
        ("from torch import cuda\ncuda.synchronize()\ncuda.nvtx.mark(s)", NAMED, "cuda.nvtx.mark: marks for"),
        ("from torch.cuda import memory\nmemory.list_gpu_processes()", NAMED, "board telemetry"),
        ("from torch.cuda import manual_seed", NEUTRAL, "at its uses"),
    ],
)
def test_P04_what_is_not_safe_stays_and_says_why(source, target, reason):
    text = f"import torch\n{source}\n".encode()
    assert any(reason in found for found in reasons(source, target)) if reason else not reasons(source, target)
    assert re.search(rb"cuda|nccl|cu\\", port_source(text, target).content.lower())


@pytest.mark.parametrize(
    "source",
    [
        "if args.cuda and not self.cuda: train(args.cuda)",
        "f(self.cuda); self.cuda = True",
        "class C:\n cuda: bool = True\nf(C().cuda)",
        "f(s.cuda_stream); s.cuda_stream = t",
        "class S:\n def cuda_stream(self): ...\nS().cuda_stream()",
        "torch.compiler.cudagraph_mark_step_begin()",
        "import numba\nnumba.cuda(0)",
        f'device = {CURRENT} or "cuda"',
        "x = 1  # type: ignore  # torch.cuda",
    ],
)
def test_what_only_looks_like_cuda_is_not_listed(source):
    assert port_source(f"import torch\n{source}\n".encode(), NEUTRAL).places == ()


def test_an_import_that_is_left_is_listed_once():
    source = b"from torch.distributed import ProcessGroupNCCL\nProcessGroupNCCL.Options()\n"
    assert [place.line for place in port_source(source, NAMED).places] == [1]


def test_P04_without_torch_at_the_place_a_device_is_named_or_left():
    for source in ('device = "cuda"\nimport torch', 'device = "cuda"', 'def f():\n import torch\ndevice = "cuda"'):
        (place,) = port_source(source.encode(), NEUTRAL).places
        assert "torch is not imported where" in place.reason
        assert b'device = "npu"' in port_source(source.encode(), NAMED).content
    inside = port_source(b'def f():\n import torch as th\n return x.to("cuda")', NEUTRAL).content
    assert b"x.to(str(th.accelerator.current_accelerator()))" in inside
    named = port_source(b"import torch as th\nth.cuda.stream(s)", NEUTRAL).content
    assert named.endswith(b"\nth.get_device_module().stream(s)")
    later = port_source(b'def f(): return x.to("cuda")\nimport torch', NEUTRAL).content
    assert b"str(torch.accelerator" in later


def test_P04_what_acts_on_cudas_libraries_alone_does_not_count():
    places = port_source(b"import torch\ntorch.backends.cudnn.benchmark = True\nv = torch.version.cuda", NAMED).places
    assert [place.counts for place in places] == [False, False]
    assert all("another device" in place.reason for place in places)


@pytest.mark.parametrize(
    "content",
    [
        'import torch\r\nx = y.cuda()  # é\r\nz = "ü"; q = y.to("cuda")\r\n'.encode(),
        "# -*- coding: latin-1 -*-\nimport torch\nname = 'é'; x = y.to('cuda')\n".encode("latin-1"),
        b"\xef\xbb\xbfimport torch\n\fx = y.cuda()\n",
        b"import torch\rx = y.cuda()\rs = '''a\rb'''; t = y.to('cuda')",
        b"import torch\nif 1:\n\ty = x.cuda()\t# tab\n\n\n",
    ],
)
def test_P05_encodings_line_ends_and_layout_stay(content):
    ported = port_source(content, NAMED)
    assert ported.places
    assert ported.content == content.replace(b"cuda", b"npu")


@pytest.mark.parametrize(
    "content", [b"print 'cuda'", b"'cuda\xff'", b"# coding: cuda\n", b"cuda\0", b"(" * 5000 + b"cuda", b"if cuda"]
)
def test_P05_a_file_that_cannot_be_read_is_named_and_kept(content):
    ported = port_source(content, NAMED)
    assert ported.problem
    assert ported.content == content


SNIPPETS = [
    "x = y.cuda()", "x = y.cuda(0, non_blocking=True)", 'x = y.to("cuda")', "d = f'cuda:{i}'", 'device = "cuda:0"',
    "torch.cuda.synchronize()", "s = torch.cuda.Stream()", "n = torch.cuda.device_count() + 1", "print(x.is_cuda)",
    "with torch.cuda.amp.autocast(True, torch.half): pass", "q = torch.cuda.amp.GradScaler()", 'w = "cuda"',
    "torch.cuda.nvtx.mark('é')", "def f(a, device='cuda'): return a.cuda()", "g = lambda device=\"cuda\": device",
    "print(f'{torch.cuda.memory_allocated()} ü {x.cuda()}')", "from torch.cuda import amp", "v = amp.autocast()",
    "from torch.cuda.amp import custom_fwd, custom_bwd", "@custom_fwd\ndef h(c): pass", "import torch.cuda",
    "t = torch.zeros(3, device='cuda' if torch.cuda.is_available() else 'cpu')", "u = {'cuda': 1, 'cpu': x.cuda()}",
    "class A:\n    device: str = 'cuda'\n    def b(self): return self.x.cuda(self.i)",
    "dist.init_process_group('nccl')",
]  # fmt: skip


def mutated(random_: random.Random) -> str:
    """Snippets in any order and depth, with comments, blank lines, continued lines, other quotes and spaces."""
    lines = ["import torch"]
    for snippet in random_.sample(SNIPPETS, random_.randint(3, len(SNIPPETS))):
        text = snippet
        if random_.random() < 0.3:
            text = text.replace("'", '"') if '"' not in text else text
        if random_.random() < 0.3:
            text = text.replace("(", "( ").replace(", ", " ,\t")
        if random_.random() < 0.2 and "\n" not in text and "f'" not in text and 'f"' not in text:
            text = text.replace(" = ", " = \\\n  ")
        if random_.random() < 0.2 and "\n" not in text:
            text = text.replace("(", "(  # cuda\n   ", 1) if "'" not in text.split("(")[0] else text
        depth = random_.randint(0, 2)
        indented = [*("    " * level + "if True:" for level in range(depth))]
        indented += ["    " * depth + line for line in text.split("\n")]
        indented[-1] += random_.choice(["", "  # torch.cuda", ";  pass", "   "]) if ":" not in snippet else ""
        lines += [*indented, *[""] * random_.randint(0, 2)]
    return random_.choice(["\n", "\r\n"]).join([*lines, ""])


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text.replace("\r\n", "\n")).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("target", [NEUTRAL, NAMED], ids=["neutral", "named"])
def test_P05_programs_of_any_layout_are_ported_once_and_whole(target):
    replaced = 0
    for seed in range(150):
        text = mutated(random.Random(seed))
        ast.parse(text)
        ported = port_source(text.encode(), target)
        assert not ported.problem, (seed, text, ported.problem)
        after = ported.content.decode()
        ast.parse(after)
        again = port_source(ported.content, target)
        assert again.content == ported.content, (seed, text)
        assert not [place for place in again.places if place.new], (seed, text)
        assert comments(after) == comments(text), (seed, text)
        assert after.count("\r") == (after.count("\n") if "\r" in text else 0), seed
        assert not [place for place in ported.places if "Python refuses" in place.reason], (seed, text)
        replaced += sum(place.new is not None for place in ported.places)
    assert replaced > 1000


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "part").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").write_text("")
    for place in (".", "part", ".hidden", "env"):
        (folder / place / "a.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    return folder


def call(*arguments: object, status: int) -> str:
    result = CliRunner().invoke(port, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_P06_the_command_lists_shows_and_writes(project, tmp_path):
    listed = call(project, "--device", "npu", "--json", tmp_path / "found.json", status=1)
    assert "a.py:2:5: torch.ones(1).cuda() -> torch.ones(1).npu()" in listed
    assert "2 to replace (--write does), 0 left" in listed
    found = json.loads((tmp_path / "found.json").read_text())
    assert sorted(Path(name).relative_to(project).as_posix() for name in found["files"]) == ["a.py", "part/a.py"]
    (place,) = found["files"][str(project / "a.py")]["places"]
    assert place == {"line": 2, "column": 5, "old": "torch.ones(1).cuda()", "new": "torch.ones(1).npu()",
                     "reason": "", "counts": True}  # fmt: skip
    diff = call(project / "a.py", "--device", "npu", "--diff", status=1)
    assert diff.splitlines()[-2:] == ["-x = torch.ones(1).cuda()", "+x = torch.ones(1).npu()"]
    assert "cuda" in (project / "a.py").read_text()
    os.chmod(project / "a.py", 0o750)
    link = project / "link.py"
    link.symlink_to("a.py")
    call(link, project, "--device", "npu", "--write", status=0)
    assert link.is_symlink()
    assert (project / "a.py").read_text() == "import torch\nx = torch.ones(1).npu()\n"
    assert (project / "a.py").stat().st_mode & 0o777 == 0o750
    assert "cuda" in (project / "env" / "a.py").read_text()
    assert sorted(path.name for path in project.iterdir()) == [".hidden", "a.py", "env", "link.py", "part"]
    assert "0 to replace" in call(project, "--device", "npu", status=0)


def test_P06_wrong_usage_and_files_that_cannot_be_read(project, tmp_path):
    assert "no name of a device to port to" in call(project, "--device", "cuda", status=2)
    assert "there is no folder" in call(project, "--json", tmp_path / "no" / "x", status=2)
    assert "does not exist" in call(tmp_path / "nothing.py", status=2)
    (project / "old.py").write_text("print 'cuda'\n")
    assert "not read" in call(project, "--write", status=1)
    assert (project / "old.py").read_text() == "print 'cuda'\n"


def test_notebooks_are_listed_and_not_read(project):
    def notebook(name, cell, source, outputs=()):
        cells = [{"cell_type": cell, "source": source, "outputs": list(outputs)}]
        path = project / name
        path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
        return path

    named = notebook("a.ipynb", "code", ["import torch\n", "x.cuda()"])
    message = "a.ipynb: not read: a notebook: convert it by `jupyter nbconvert --to script`, and port that"
    before = named.read_text()
    assert message in call(named, "--write", status=1)
    assert named.read_text() == before
    others = notebook("b.ipynb", "markdown", ["On cuda"]), notebook("c.ipynb", "code", "print(1)", [{"text": "cuda"}])
    assert "0 to replace" in call(*others, status=0)
    (project / "d.ipynb").write_text("x.cuda()")
    listed = call(project, "--device", "npu", "--write", status=1)
    assert message in listed
    assert "d.ipynb: not read" in listed
    assert "2 replaced, 0 left, 0 without effect, in 2 files; 2 not read" in listed


def test_P06_it_needs_no_torch(project):
    import subprocess

    code = "import sys; sys.modules['torch'] = None; from backplane_tools.cli.port import port; port()"
    done = subprocess.run([sys.executable, "-c", code, project], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 to replace" in done.stdout
