"""The Python runtime without a backend and without native code: what it says, and that it is cheap to import."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from backplane_tools.cli import doctor as doctor_module
from backplane_tools.cli.doctor import doctor
from torch_backplane import _setup


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tools_import_no_torch():
    modules = """torch_backplane torch_backplane.testing.plugin backplane_tools backplane_tools.cli
        backplane_tools.cli.doctor backplane_tools.conformance.pytest_plugin""".split()
    assert run(f"import sys, {', '.join(modules)}; print('torch' in sys.modules)") == "False"


def test_without_a_backend_every_use_says_what_to_import():
    code = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
import torch_backplane.device as d
from torch_backplane import fallback
for use in (d.device_count, d.current_stream, fallback.calls, lambda: d.default_generators):
    try:
        use()
    except RuntimeError as error:
        print("import the vendor's package first" in str(error))
"""
    assert run(code) == "\n".join(["True"] * 4)


def build_info(**changes):
    values = {
        "TORCH_MINOR": _torch_minor(),
        "CORE_PROTOCOL": 1,
        "SDK_VERSION": "0.1.0",
        "DEVICE": "chip",
    }
    return SimpleNamespace(**{**values, **changes})


def _torch_minor():
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def test_matching_versions_are_accepted():
    _setup._check_versions("chip", build_info())


@pytest.mark.parametrize("minor", ["2.1", "2.130", "1.13", "3.13"])
def test_another_torch_minor_is_refused(minor):
    with pytest.raises(ImportError, match=rf"built for torch {minor}.*pip install 'torch=={minor}\.\*'") as caught:
        _setup._check_versions("chip", build_info(TORCH_MINOR=minor))
    assert caught.value.name == "chip"


def test_another_protocol_is_refused():
    with pytest.raises(ImportError, match=r"protocol 2.*protocol 1.*pip install 'torch-backplane~=0.9.0'"):
        _setup._check_versions("chip", build_info(CORE_PROTOCOL=2, SDK_VERSION="0.9.0"))


def test_a_package_that_was_not_built_says_how_to_build(tmp_path, monkeypatch):
    (tmp_path / "rawchip").mkdir()
    (tmp_path / "rawchip" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="pip install --no-build-isolation"):
        _setup._build_info("rawchip")


# ---- doctor ----------------------------------------------------------------------------------------------------


def found(check):
    return {finding.what: finding for finding in check()}


def test_doctor_names_the_fix_of_each_problem(monkeypatch):
    def broken():
        yield doctor_module.Finding("compiler", "FAIL", "no c++ on PATH", "install g++ 11")
        yield doctor_module.Finding("torch", "ok", "2.13.0")

    monkeypatch.setattr(doctor_module, "CHECKS", (broken,))
    result = CliRunner().invoke(doctor)
    assert result.exit_code == 1
    assert "no c++ on PATH" in result.output
    assert "-> install g++ 11" in result.output


def test_doctor_accepts_a_sound_setup(monkeypatch):
    monkeypatch.setattr(doctor_module, "CHECKS", (doctor_module.check_python, doctor_module.check_torch))
    assert CliRunner().invoke(doctor).exit_code == 0


def test_doctor_tries_the_compiler(monkeypatch, tmp_path):
    assert found(doctor_module.check_compiler)["compiler"].state == "ok"
    old = tmp_path / "c++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "old 1.0" && exit 0\nexit 1\n')
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    finding = found(doctor_module.check_compiler)["compiler"]
    assert finding.state == "FAIL"
    assert "old 1.0" in finding.found
    assert "CXX" in finding.cure


def test_doctor_reports_missing_tools(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    findings = {**found(doctor_module.check_compiler), **found(doctor_module.check_tools)}
    assert {name for name, finding in findings.items() if finding.state == "FAIL"} == {
        "compiler",
        "cmake",
        "build tool",
    }
    assert all(finding.cure for finding in findings.values() if finding.state == "FAIL")


def test_doctor_compares_a_backends_build_with_what_is_installed(monkeypatch, tmp_path):
    package = tmp_path / "oldchip"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('never imported')")
    lines = ("TORCH_MINOR = '2.3'", "CORE_PROTOCOL = 7", "SDK_VERSION = '7.0.0'", "DEVICE = 'oldchip'")
    (package / "_build_info.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    findings = {finding.what: finding for finding in doctor_module.check_backend("oldchip")}
    assert findings["oldchip abi"].state == "FAIL"
    assert "torch 2.3" in findings["oldchip abi"].found
    assert "torch==2.3.*" in findings["oldchip abi"].cure
    assert findings["oldchip protocol"].state == "FAIL"
    assert "torch-backplane~=7.0.0" in findings["oldchip protocol"].cure
    assert findings["oldchip device"].state == "FAIL"
