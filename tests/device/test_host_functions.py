"""A driver that runs no host functions: what needs them gives way, and says so; everything else goes on.

The shim drivers/hide_groups.c takes bp.host_exec away from whatever driver the tests run on. A chip whose kernels are
its runtime's own is in tests/template/test_native_kernels.py.
"""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.once, pytest.mark.requires("host_exec")]

OPERATORS = {
    "add.Tensor": "torch.add(x, y)",
    "exp": "torch.exp(x)",
    "mm": "x @ x",
    "sum.dim_IntList": "x.sum(0)",
    "relu": "torch.relu(x)",
    "where.self": "torch.where(x > 0, x, y)",
    "cat": "torch.cat([x, y])",
    "index_select": "x.index_select(0, torch.tensor([2, 0], device=x.device))",
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The shared object."""
    import backplane_sdk

    path = tmp_path_factory.mktemp("shim") / "libhide_groups.so"
    source = Path(__file__).parent / "drivers" / "hide_groups.c"
    include = f"-I{backplane_sdk.include_dir()}"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-shared", "-fPIC", include, str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def without(run_in_process, shim, name):
    """``without(code)``: what the code's ``report(...)`` printed, in a process whose driver runs no host functions."""

    def run(code, **env):
        options = ",".join(filter(None, [os.environ.get(f"{name.upper()}_OPTIONS"), "hide_groups.groups=bp.host_exec"]))
        prelude = "import json\ndef report(**values): print(json.dumps(values))\n"
        result = run_in_process(
            prelude + textwrap.dedent(code), options=options, env={f"{name.upper()}_SHIMS": str(shim), **env}
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


@pytest.mark.long
def test_host_kernels_leave_their_operators_to_the_fallback(without, device):
    x, y = torch.linspace(-3, 3, 9).view(3, 3), torch.linspace(2, 4, 9).view(3, 3).t()
    found = without(
        f"""
        import torch
        from torch_backplane import fallback, testing
        x = torch.linspace(-3, 3, 9).view(3, 3).to("{device.type}")
        y = torch.linspace(2, 4, 9).view(3, 3).to("{device.type}").t()
        values = {{name: eval(code).tolist() for name, code in {OPERATORS!r}.items()}}
        report(values=values, calls=sum(testing.kernel_calls(name) for name in values), fell=sorted(fallback.calls()))
        """
    )
    assert found["calls"] == 0
    assert {"aten::add.out", "aten::mm"} & set(found["fell"]) or "aten::add.Tensor" in found["fell"]
    for name, code in OPERATORS.items():
        torch.testing.assert_close(torch.tensor(found["values"][name]), eval(code, {"torch": torch, "x": x, "y": y}))


def test_copies_and_fills_are_right(without, device):
    """Strides, gaps, dtypes, lazy bits: by way of the host where no kernel is there."""
    found = without(
        f"""
        import torch
        results = []
        for place in ("cpu", "{device.type}"):
            x = torch.arange(24.0, device=place).view(4, 6)
            x[::2, 1::2] = x[1::2, ::2]
            x[:, 2].fill_(-1)
            x[1:3].zero_()
            z = torch.view_as_complex(x.view(4, 3, 2)).conj()
            big = torch.zeros(6, 8, dtype=torch.float64, device=place)
            big[:, ::2].copy_(x.t())
            strided = torch.zeros(4, 12)
            strided[:, ::2].copy_(x)
            results.append([x.tolist(), z.resolve_conj().real.tolist(), big.tolist(), strided.tolist(),
                            x.t().contiguous().tolist(), x.to(torch.int32).t().clone().tolist()])
        report(same=results[0] == results[1])
        """
    )
    assert found == {"same": True}


def test_attention_asks_for_kernels_that_run(without, device):
    """The CPU's flash kernel in one call, and not a composition of matmul and softmax that are not there."""
    found = without(
        f"""
        import torch
        from torch_backplane import fallback
        q, k, v = torch.randn(3, 2, 2, 5, 4).to("{device.type}")
        got = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        want = torch.nn.functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu())
        report(close=torch.allclose(got.cpu(), want, atol=1e-6), fell=sorted(fallback.calls()))
        """
    )
    assert found["close"]
    assert not any("softmax" in op or "bmm" in op for op in found["fell"])


def test_explain_and_lint_know_what_never_runs(without):
    found = without(
        """
        from torch_backplane.ops import explain, lint
        findings = lint("aten")
        report(add=str(explain("aten::add.Tensor").runs), fill=str(explain("aten::view").runs),
               rules={f.rule: f.what for f in findings if f.rule == "never-runs" and "exp" in f.what})
        """
    )
    assert found["add"].startswith("fallback: the kernel at ")
    assert "never runs on this driver: it needs host functions (bp.host_exec)" in found["add"]
    assert found["fill"].startswith("native")
    assert "never run on this driver: they need host functions (bp.host_exec)" in found["rules"]["never-runs"]


def test_with_host_functions_nothing_is_said(device_module):
    from torch_backplane.ops import explain, lint

    assert explain("aten::add.Tensor").runs.word == "native"
    assert [finding for finding in lint("aten") if finding.rule == "never-runs"] == []
