"""What all tests' processes inherit; and ``--sample 1/4:<seed>``: of the collected tests a part, the same for the same
seed, in every process of a run."""

import importlib.util
import os
import re
import signal
import sys
import zlib

import older_torch
import pytest
import system_packages

# Of `make test-ecosystem` and `make test-vllm` alone, which load that plugin, whatever libraries the environment has.
collect_ignore = [] if "ecosystem_results" in sys.modules else ["ecosystem", "serving"]
if importlib.util.find_spec("triton") is None:
    collect_ignore.append("triton_kernels")  # `make test-triton` brings it

os.environ.setdefault("MYDEVICE_KERNELS", "off")  # what stands below compiled kernels is tested without them

VARIANTS = pytest.StashKey[set]()


def pytest_addoption(parser):
    parser.addoption("--sample", metavar="K/N:SEED", help="run the K-th of N parts of the tests, cut by the seed")


def pytest_configure():
    """A run in the background ignores Ctrl-C, and has options; the programs and the pytests that tests start do not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTEST_ADDOPTS", None)


def pytest_itemcollected(item):
    """Of the variants of some tests all but the first are long; some need what the machine may lack."""
    if item.get_closest_marker("long_after_first"):
        variants = item.parent.stash.setdefault(VARIANTS, set())
        if item.originalname in variants:
            item.add_marker(pytest.mark.long)
        variants.add(item.originalname)
    if item.get_closest_marker("system") and (missing := system_packages.missing()):
        item.add_marker(pytest.mark.skip(reason=missing))


def pytest_collection_modifyitems(config, items):
    if older_torch.IS_OLDER:
        for item in items:
            if reason := older_torch.reason(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
    text = config.getoption("--sample")
    if not text:
        return
    found = re.fullmatch(r"(\d+)/(\d+):(\w+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--sample {text}: K/N:SEED is needed, such as 1/4:abc")
    part, parts, seed = int(found[1]), int(found[2]), found[3]
    out = [item for item in items if zlib.crc32(f"{seed} {item.nodeid}".encode()) % parts != part - 1]
    if out:
        gone = set(out)
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture
def deterministic():
    """Sums in one order: no atomic additions."""
    import torch

    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
