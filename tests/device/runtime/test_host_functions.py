"""A vendor's kernel that is a host function: the template's example, on a driver that runs host functions, and on one
that does not. There the fallback computes its operator, which is reported; everything else works.

The shim drivers/hide_groups.c hides bp.host_exec of the driver. tests/template/test_native_kernels.py tests a chip
whose kernels belong to its runtime.
"""

import json
import os
import textwrap
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.once, pytest.mark.requires("host_exec")]

EXAMPLE = Path(__file__).parents[3] / "{{cookiecutter.package_name}}" / "backend" / "kernels" / "add.cpp"


@pytest.fixture
def run(run_in_process, shim, name):
    """``run(code, hidden="bp.host_exec")``: what the code gave to ``report(...)``, on a driver without that group.

    The portable kernels are not registered, so that a vendor's kernel is followed by the fallback.
    """

    def run(code, hidden=""):
        variables = {f"{name.upper()}_KERNELS": "off"}
        options = os.environ.get(f"{name.upper()}_OPTIONS")
        if hidden:
            variables[f"{name.upper()}_SHIMS"] = str(shim("hide_groups"))
            options = ",".join(filter(None, [options, f"hide_groups.groups={hidden}"]))
        prelude = "import json\nimport torch\ndef report(**values): print(json.dumps(values))\n"
        result = run_in_process(prelude + textwrap.dedent(code), options=options, env=variables)
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


@pytest.fixture
def loaded(compiled):
    """Lines that load the example kernel, and count its calls."""
    return textwrap.dedent(f"""
        from torch_backplane import fallback, testing
        from torch_backplane.ops import explain, lint, load_library
        load_library({str(compiled(EXAMPLE))!r})
        def counted(call):
            before = testing.kernel_calls("add.Tensor")
            return [call().tolist(), testing.kernel_calls("add.Tensor") - before]
        """)


def test_E21_E23_the_example_kernel_computes_what_it_supports(run, loaded, device):
    """In all three forms, with any strides and dtypes; the CPU computes complex numbers and more dimensions."""
    found = run(
        loaded
        + f"""
x = torch.arange(12.0).view(3, 4).to("{device.type}")
calls = [
    lambda: torch.add(x, x, alpha=2),
    lambda: torch.add(x, x, alpha=2, out=torch.empty(0, device=x.device)),
    lambda: x.clone().add_(x, alpha=2),
    lambda: (x.t() + x.t()[:, :1]).t(),
    lambda: x[:, ::2] + 2,
    lambda: x.half() + x.long(),
    lambda: (x > 3) + x[0].to(torch.uint8),
    lambda: (x.to(torch.complex64) + x).real,
]
values = [counted(call) for call in calls]
def deep(dims):
    x = (torch.arange(3**dims) % 100).to(torch.int8).to("{device.type}")
    return x.as_strided([2] * dims, [3**k for k in range(dims)])
for dims in (12, 13):
    y = deep(dims)
    values.append(counted(lambda: torch.equal((y + y).cpu(), y.cpu() + y.cpu()) and torch.ones(1)))
report(values=values, runs=explain("aten::add.Tensor").runs.word, never=[f.rule for f in lint("aten")],
       dtypes=explain("aten::add.Tensor", dtype=torch.bfloat16).runs.text,
       left=explain("aten::add.Tensor", dtype=torch.complex64).runs.word)
"""
    )
    x = torch.arange(12.0).view(3, 4)
    expected = [x * 3, x * 3, x * 3, (x.t() + x.t()[:, :1]).t(), x[:, ::2] + 2, x * 2, (x > 3) + x[0].to(torch.uint8)]
    assert found["values"] == [
        *([one.tolist(), 1] for one in expected),
        [(x * 2).tolist(), 0],
        [[1.0], 1],
        [[1.0], 0],
    ]
    assert (found["runs"], found["left"]) == ("native", "fallback")
    assert "never-runs" not in found["never"]
    assert "it takes bfloat16" in found["dtypes"]


def test_without_host_functions_the_fallback_computes_its_operator_which_is_reported(run, loaded, device):
    found = run(
        loaded
        + f"""
x = torch.arange(3.0).to("{device.type}")
value = counted(lambda: x + x)
report(value=value, fell=sorted(fallback.calls()), runs=str(explain("aten::add.Tensor").runs),
       rules={{f.rule: f.what for f in lint("aten")}})
""",
        hidden="bp.host_exec",
    )
    assert found["value"] == [[0.0, 2.0, 4.0], 0]
    assert {"aten::add.out", "aten::add.Tensor"} & set(found["fell"])
    assert found["runs"].startswith("fallback: the kernel at ")
    assert "never runs on this driver: it needs host functions (bp.host_exec)" in found["runs"]
    assert "never run on this driver: they need host functions (bp.host_exec)" in found["rules"]["never-runs"]


def test_without_host_functions_copies_fills_and_attention_are_right(run, device):
    """Copies are staged where there is no kernel; attention is one call of the CPU's flash kernel."""
    found = run(
        f"""
        from torch_backplane import fallback
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
        fallback.reset_calls()
        q, k, v = torch.randn(3, 2, 2, 5, 4).to("{device.type}")
        got = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        want = torch.nn.functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu())
        report(same=results[0] == results[1], close=torch.allclose(got.cpu(), want, atol=1e-6),
               fell=sorted(fallback.calls()))
        """,
        hidden="bp.host_exec",
    )
    assert found["same"]
    assert found["close"]
    assert not any("softmax" in op or "bmm" in op for op in found["fell"])
