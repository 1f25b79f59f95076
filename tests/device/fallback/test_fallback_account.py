"""The account of the fallback's calls by operator, and budgets (E33)."""

import json
import re
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from backplane_tools.conformance.checks import in_threads
from torch_backplane import fallback
from torch_backplane.testing.capabilities import capabilities


@pytest.fixture(autouse=True)
def fresh_account():
    fallback.reset_calls()


def counts():
    return {count.op: count for count in fallback.report().counts}


def line_of(number):
    """Of this file."""
    return Path(__file__).read_text().splitlines()[int(number) - 1].strip()


def test_E33_calls_bytes_time_and_the_first_site_are_counted(device):
    x = torch.rand(1000, device=device)
    began = time.perf_counter()
    for _ in range(2):
        torch.digamma(x)  # the first
    torch.digamma(x)
    elapsed = time.perf_counter() - began
    count = counts()["aten::digamma.out"]
    assert count.calls == 3
    assert 0 < count.seconds <= elapsed  # seconds, only of the calls
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+ \(test_E33_calls.*\)", count.site)
    assert line_of(count.site.split(":")[1].split()[0]) == "torch.digamma(x)  # the first"


def test_E33_bytes_are_those_that_were_copied(device):
    x = torch.rand(1000, device=device)
    torch.digamma(x)  # made by the out= form: its memory is written, not read
    torch.sort(x)
    out, several = counts()["aten::digamma.out"], counts()["aten::sort.values_stable"]
    if "zero_copy" in capabilities():
        assert (out.bytes_to_host, out.bytes_to_device) == (0, 0)
        assert out.bytes_shared >= 8000
        assert several.bytes_to_host == 0
    else:
        assert 4000 <= out.bytes_to_host <= 4032
        assert out.bytes_to_device == 4000
        assert 4000 <= several.bytes_to_host <= 4032
        assert several.bytes_to_device == 4000 + 8000
        assert out.bytes_shared == several.bytes_shared == 0


def test_E33_the_account_can_be_switched_off_except_for_the_calls(device):
    x = torch.rand(10, device=device)
    with fallback.accounting(False):
        torch.digamma(x)
    count = counts()["aten::digamma.out"]
    assert (count.calls, count.seconds, count.bytes_shared, count.bytes_to_host, count.site) == (1, 0, 0, 0, "")
    torch.digamma(x)
    assert counts()["aten::digamma.out"].seconds > 0
    assert __file__ in counts()["aten::digamma.out"].site


def test_E33_the_report_is_a_table_and_json(device):
    assert "no operator ran on the CPU" in str(fallback.report())
    torch.digamma(torch.rand(4, device=device)).sum()
    report = fallback.report()
    (row,) = [line for line in str(report).splitlines() if "aten::digamma.out" in line]
    assert f"{__file__}:" in row
    assert " 1 " in row
    values = json.loads(report.to_json())
    assert next(op for op in values["ops"] if op["op"] == "aten::digamma.out")["calls"] == 1
    assert values["total"]["calls"] == sum(fallback.calls().values())
    fallback.reset_calls()
    assert fallback.calls() == {}


def test_E33_a_long_location_stays_whole_in_the_report(device, tmp_path):
    file = str(tmp_path / ("long_" * 40) / "train.py")
    exec(compile("torch.digamma(x)", file, "exec"), {"torch": torch, "x": torch.rand(4, device=device)})
    assert f"{file}:1" in str(fallback.report())


def test_E33_calls_of_all_threads_are_counted(device):
    in_threads(lambda _: [torch.digamma(torch.ones(2, device=device)) for _ in range(50)], 4)
    assert fallback.calls()["aten::digamma.out"] == 200


def test_E33_a_call_that_fails_is_counted_and_a_budget_does_not_hide_its_error(device):
    with pytest.raises(RuntimeError, match="inconsistent tensor size"), fallback.budget(calls=0):
        torch.ops.aten.dot(torch.ones(2, device=device), torch.ones(3, device=device))
    assert fallback.calls() == {"aten::dot": 1}


def test_E33_a_budget_names_what_ran_and_where(device):
    x = torch.rand(4, device=device)
    torch.digamma(x)  # its first site is here, but the budget names the one in its block
    with fallback.budget(calls=0):
        x.view(2, 2)
    with pytest.raises(fallback.BudgetExceeded) as caught, fallback.budget(calls=0):
        torch.digamma(x)  # in the block
    text = str(caught.value)
    assert "1 calls, allowed are 0" in text
    site = re.search(rf"aten::digamma.out: 1 calls, first at {re.escape(__file__)}:(\d+)", text)
    assert line_of(site[1]) == "torch.digamma(x)  # in the block"


def test_E33_a_budget_of_operators(device):
    x = torch.rand(4, device=device)
    with fallback.budget(ops=["aten::digamma", "aten::erfc.out"]):
        torch.digamma(x)
        torch.erfc(x)
    only = r"aten::erfc.out ran, allowed are only aten::digamma"
    with pytest.raises(fallback.BudgetExceeded, match=only), fallback.budget(ops=["aten::digamma"]):
        torch.erfc(torch.digamma(x))
    with pytest.raises(fallback.BudgetExceeded, match="2 operators, allowed are 1"), fallback.budget(ops=1):
        torch.erfc(torch.digamma(x))
    with pytest.raises(ValueError, match="calls=, bytes= or ops="):
        fallback.budget()


def test_E33_a_budget_of_bytes(device):
    x = torch.rand(1000, device=device)
    with fallback.budget(bytes=1 << 20):
        torch.digamma(x)
    exceeded = pytest.raises(fallback.BudgetExceeded, match=r"80\d\d bytes copied, allowed are 0")
    with nullcontext() if "zero_copy" in capabilities() else exceeded, fallback.budget(bytes=0):
        torch.digamma(x)
