"""From a kernel's text to its code: policies, the cache on disk, failures, records and bundles. Each in a process."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backplane_tools.cli import doctor
from portable.compare import each
from torch_backplane import compiler

USE = """
    import torch
    from torch_backplane import compiler, fallback
    x = torch.arange(8.0)
    d = x.to("{name}")
    y = (d * 2 + d).cpu()
    assert torch.equal(y, x * 3), y
    print(compiler.counts(), sum(fallback.calls().values()))
"""


@pytest.fixture
def use(run_in_process, device, tmp_path):
    """Runs a small program with a separate cache; what it prints, and what it warns."""

    def run(code=USE, cache=tmp_path / "cache", check=True, **variables):
        env = {"MYDEVICE_CACHE_DIR": str(cache), **{f"MYDEVICE_{key}": value for key, value in variables.items()}}
        return run_in_process(code.format(name=device.type), env=env, check=check)

    return run


@pytest.fixture(scope="module")
def compiled(run_in_process, device, tmp_path_factory):
    """A cache with the two kernels of the program, to be copied."""
    cache = tmp_path_factory.mktemp("compiled") / "cache"
    run_in_process(USE.format(name=device.type), env={"MYDEVICE_CACHE_DIR": str(cache)})
    return cache


def kernels(cache):
    return [path for path in (cache / "kernels-2").glob("??/*") if len(path.name) == 40]


def test_the_target_is_one_of_those_that_the_compiler_makes(device):
    assert compiler.is_available()
    assert compiler.target().name in compiler.targets()
    assert compiler.target_named(compiler.target().name) == compiler.target()
    with pytest.raises(RuntimeError, match="has no target 'sm_1'; it has: x86"):
        compiler.target_named("sm_1")
    with pytest.raises(ValueError, match="wait, background, off or strict, not 'now'"):
        compiler.set_policy("now")


def test_what_a_target_does_not_support_is_listed(device, run_in_process):
    code = "from torch_backplane import compiler; print(*compiler.composed(), sep='; ')"
    options = {
        "items=1": "",
        "float64=off": "no float64: its operators run on the CPU",
        "items=64,float64=off": "no float64: its operators run on the CPU; "
        "no shuffles: Triton kernels exchange values through local memory",
    }
    for words, expected in options.items():
        assert run_in_process(code, options=words).stdout.strip() == expected


@pytest.mark.long
def test_doctor_describes_the_kernels_of_the_device(device, monkeypatch):
    monkeypatch.setenv(f"{device.type.upper()}_KERNELS", "wait")

    def kernels(options):
        monkeypatch.setenv(f"{device.type.upper()}_OPTIONS", options)
        (finding,) = (one for one in doctor.check_backend(device.type) if one.what == f"{device.type} kernels")
        return finding.state, finding.found

    state, found = kernels("items=64,float64=off")
    assert state == "ok"
    assert re.fullmatch(r"groups of 64, \d+ KiB of local memory; no float64: .*; no shuffles: .*", found)
    state, found = kernels("compiler=none")
    assert (state, found[:5]) == ("warn", "none:")


def test_a_kernel_is_compiled_once_and_then_read_from_disk(use, tmp_path):
    assert "compiled=2, from_cache=0" in use().stdout
    assert "compiled=0, from_cache=2" in use().stdout
    assert len(kernels(tmp_path / "cache")) == 2


def test_other_options_of_the_compiler_are_another_kernel(use, compiled, tmp_path):
    shutil.copytree(compiled, tmp_path / "cache")
    assert "compiled=2" in use(COMPILER_OPTIONS="-DOTHER").stdout
    assert len(kernels(tmp_path / "cache")) == 4


def flipped(place):
    def damage(paths, folder):
        for path in paths:
            content = bytearray(path.read_bytes())
            content[place] ^= 1
            path.write_bytes(content)

    return damage


def truncated(size):
    def damage(paths, folder):
        for path in paths:
            path.write_bytes(path.read_bytes()[:size])

    return damage


def code_of_another_driver(paths, folder):
    """Whole: it is the driver that refuses it."""
    code = b"no code of this driver"
    for path in paths:
        path.write_bytes(b"BPK2" + hashlib.sha1(path.name.encode() + code).hexdigest().encode() + code)


def in_anothers_place(paths, folder):
    """Both are whole, and code of this driver's."""
    one, other = paths
    contents = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(contents)


def a_pipe(paths, folder):
    """Without a writer; it is not waited for, and the code that is compiled takes its place."""
    for path in paths:
        path.unlink()
        os.mkfifo(path)


def that_others_may_write(paths, folder):
    for path in paths:
        path.chmod(0o666)


def a_link(paths, folder):
    for path in paths:
        shutil.move(path, folder / path.name)
        path.symlink_to(folder / path.name)


DAMAGES = {
    "a flipped bit": flipped(5),
    "truncated": truncated(44),
    "code of another driver": code_of_another_driver,
    "in another's place": in_anothers_place,
    "a pipe": a_pipe,
    "that others may write": that_others_may_write,
    "a link": a_link,
    **{f"a flipped bit at {place}": flipped(place) for place in (0, 60, -1)},
    **{f"of {size} bytes": truncated(size) for size in (0, 3, 100)},
}


@pytest.mark.parametrize("damage", each(DAMAGES, *list(DAMAGES)[:7]))
def test_F04_a_file_that_is_damaged_or_not_safe_is_compiled_anew(use, compiled, tmp_path, damage):
    shutil.copytree(compiled, tmp_path / "cache")
    DAMAGES[damage](kernels(tmp_path / "cache"), tmp_path)
    found = 2 if damage == "code of another driver" else 0  # and then refused
    assert f"compiled=2, from_cache={found}" in use().stdout
    if damage not in ("a link", "that others may write"):
        assert "compiled=0, from_cache=2" in use().stdout


@pytest.mark.long_after_first
@pytest.mark.parametrize("why", ["open to others", "a file", "not to be made"])
def test_F04_a_folder_that_cannot_be_trusted_or_made_is_no_cache(use, tmp_path, why):
    cache = tmp_path / "cache"
    if why == "a file":
        cache.write_text("")
    elif why == "open to others":
        (cache / "kernels-2").mkdir(parents=True)
        (cache / "kernels-2").chmod(0o777)
    else:
        cache = tmp_path / ("x" * 300)
    code = USE + "    print(compiler.cache_dir(), compiler.why_no_cache())\n"
    done = use(code, cache)
    assert "compiled=2" in done.stdout
    assert re.search(r"None \S+", done.stdout)
    assert not kernels(tmp_path / "cache")


def test_F05_processes_that_start_together_compile_once(use, tmp_path, device):
    env = {**os.environ, "MYDEVICE_CACHE_DIR": str(tmp_path / "cache")}
    code = USE.format(name=device.type).replace("\n    ", "\n")
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outputs = [process.communicate()[0] for process in started]
    assert sum(int(re.search(r"compiled=(\d)", output)[1]) for output in outputs) == 2, outputs


def test_F02_without_a_compiler_the_cpu_computes_and_nothing_is_said(use):
    done = use(OPTIONS="compiler=none", KERNELS="wait")
    assert "compiled=0, from_cache=0, failed=0" in done.stdout
    assert not done.stdout.rstrip().endswith(" 0")
    assert "Warning" not in done.stderr


def test_F03_a_failure_warns_once_keeps_the_source_and_the_next_in_line_computes(use, tmp_path):
    code = USE + "    (d * 2 + d).cpu()\n    print(compiler.why_not('mul.Tensor[f32,f64]'))\n"
    done = use(code, KERNELS="wait", COMPILER_OPTIONS="-Dpointwise=+")
    assert "failed=2" in done.stdout
    assert done.stderr.count("could not be compiled for") == 2
    assert "error:" in done.stderr
    assert "MYDEVICE_KERNELS=strict makes this an error" in done.stderr
    (kept, *_) = re.findall(r"kept in (\S+)", done.stderr)
    assert "BP_KERNEL(pointwise" in Path(kept).read_text()
    assert re.search(r"The kernel mul.Tensor\[\S+\] of mydevice could not be compiled", done.stderr)


def test_F03_strict_raises_it(use):
    done = use(KERNELS="strict", COMPILER_OPTIONS="-Dpointwise=+", check=False)
    assert "RuntimeError: The kernel mul.Tensor" in done.stderr


def test_F03_off_compiles_nothing(use):
    done = use(KERNELS="off")
    assert "compiled=0, from_cache=0" in done.stdout
    assert not done.stdout.rstrip().endswith(" 0")
    done = use(
        "import torch; from torch_backplane import compiler; compiler.set_policy('wait')", KERNELS="off", check=False
    )
    assert "were left out when the backend was imported (MYDEVICE_KERNELS=off). Unset it" in done.stderr


def test_a_wrong_policy_is_an_error_that_names_them(use):
    done = use(KERNELS="never", check=False)
    assert "MYDEVICE_KERNELS=never is not supported: use wait, background, off or strict" in done.stderr


def test_F03_the_background_gives_right_values_from_the_first_call(use):
    code = """
        import torch
        from torch_backplane import compiler, fallback
        x = torch.randn(100)
        d = x.to("{name}")
        for _ in range(3):
            torch.testing.assert_close((d.exp() * d).cpu(), x.exp() * x)
        compiler.synchronize()
        print(compiler.counts())
        with fallback.budget(calls=0):
            torch.testing.assert_close((d.exp() * d).cpu(), x.exp() * x)
    """
    assert "compiled=2, from_cache=0, failed=0, waiting=0" in use(code, KERNELS="background").stdout


def test_a_fork_before_the_first_kernel_compiles_in_the_child(use):
    code = """
        import os, torch
        from torch_backplane import compiler
        pid = os.fork()
        x = torch.ones(8, device="{name}")
        assert (x + x).sum().item() == 16
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
            print("both")
        else:
            os._exit(0)
    """
    assert "both" in use(code).stdout


def test_a_forked_child_of_a_process_that_compiled_gets_an_error(use):
    """It has none of the threads that compile: it would wait for them."""
    code = """
        import os, torch
        x = torch.ones(8, device="{name}")
        call = torch.compile(lambda x: x * 2 + 1)
        call(x)
        pid = os.fork()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        else:
            try:
                torch.compile(lambda x: x * 3)(x)
            except Exception as error:
                print(error, flush=True)
            os._exit(0)
    """
    assert "in forked subprocess" in use(code).stdout


def test_F05_threads_that_want_one_kernel_compile_it_once(use):
    code = """
        import threading, torch
        from torch_backplane import compiler
        x = torch.ones(8, device="{name}")
        threads = [threading.Thread(target=lambda: x + x) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(compiler.counts())
    """
    assert "compiled=1, from_cache=0" in use(code).stdout


@pytest.mark.long
def test_F06_a_record_is_compiled_for_other_targets_without_a_device(use, tmp_path, device):
    record, out = tmp_path / "used.json", tmp_path / "out"
    code = USE + "    compiler.save_record({record!r})\n".replace("{record!r}", repr(str(record)))
    use(code)
    use(code)  # the file's rows stay one each
    names = [kernel["name"] for kernel in json.loads(record.read_text())["kernels"]]
    assert len(names) == 2
    done = list(compiler.precompile(record, compiler.targets()[-2:], out))
    assert [reason for _, _, reason in done] == [""] * 4
    assert len(list(out.glob("??/*"))) == 4
    with pytest.raises(RuntimeError, match="has no target"):
        list(compiler.precompile(record, ["z80"], out))
    record.write_text(record.read_text().replace('"host": true', '"host": false'))
    with pytest.raises(ValueError, match="another kind of device"):
        list(compiler.precompile(record, compiler.targets()[:1], out))
    record.write_text("{}")
    with pytest.raises(ValueError, match="no record of kernels"):
        list(compiler.precompile(record, compiler.targets()[:1], out))


def test_a_kernel_does_not_run_twice_for_a_cache_that_grew_too_large(use, tmp_path):
    """The limit is read when files are written; a word that is not a size is reported."""
    done = use(CACHE_SIZE="a lot")
    assert "compiled=2" in done.stdout


def test_the_counters_and_the_policy_are_the_processs(device):
    before = compiler.counts()
    x = torch.ones(3, device=device)
    with compiler.using("off"):
        assert compiler.policy() == "off"
        torch.special.expit(x)
    assert compiler.policy() == "strict"
    assert compiler.counts().compiled == before.compiled


def test_F01_who_computes_is_the_first_in_line_that_takes_the_call(run_in_process, device, tmp_path):
    """A vendor's kernel, a compiled one, torch's composition or the CPU: each with the one before taken away."""
    counts = {}
    for vendors, kernels in ((True, "wait"), (False, "wait"), (False, "off")):
        env = {"MYDEVICE_KERNELS": kernels, "MYDEVICE_CACHE_DIR": str(tmp_path)}
        asked = """
        import torch, torch_backplane
        from torch_backplane import fallback, testing
        if VENDORS:
            torch_backplane.kernel("aten::add.Tensor", lambda self, other, *, alpha=1: self.clone(), override=True)
        def calls(name):
            try:
                return testing.kernel_calls(name)
            except RuntimeError:
                return "none"
        x = torch.arange(8.0).to("NAME")
        y = (x + x).cpu()
        print(calls("add.Tensor"), calls("portable/add.Tensor"), sum(fallback.calls().values()))
        """.replace("NAME", device.type).replace("VENDORS", str(vendors))
        counts[vendors, kernels] = run_in_process(asked, env=env).stdout.split()
    assert counts == {
        (True, "wait"): ["1", "0", "0"],
        (False, "wait"): ["none", "1", "0"],
        (False, "off"): ["none", "0", "1"],
    }


def test_explain_and_coverage_say_portable(device):
    from backplane_tools.coverage import Coverage
    from torch_backplane.ops import explain
    from torch_backplane.ops.ways import way_of

    x = torch.randn(4, 4, device=device)
    with Coverage() as coverage:
        (x @ x).view(16)
    found = {row.op: row.way for row in coverage.operators()}
    assert (found["aten::mm"], found["aten::view"], found["aten::matmul"]) == ("portable", "native", "composite")
    assert way_of("aten::mm") == "portable"
    assert str(explain("aten::mm").runs).startswith(f"portable: compiled for {compiler.target().name}")
    assert "(portable)" in str(explain("aten::gelu").autograd)
    try:
        compiler.set_policy("off")
        assert way_of("aten::mm") == "fallback"
        assert explain("aten::mm").runs.word == "fallback"
    finally:
        compiler.set_policy("strict")
