"""drivers/opencl on Intel's runtime of the processor, by OpenCL C and by SPIR-V: ``make test-opencl-intel``."""

import os

import pytest
from checker import Built, check
from test_opencl import OVERFLOW, PARTS, not_offered

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("OPENCL_INTEL" not in os.environ, reason="make test-opencl-intel has Intel's runtime"),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", ["language=c", "language=spirv", "language=spirv,items=32"])
def test_the_contract(built: Built, options: str) -> None:
    words = ["--expect", OVERFLOW] if options == "language=c" else []  # SPIR-V defines sums that wrap
    report = check(built, built.sdk_driver("opencl"), "--options", PARTS + options, "--time-limit=120", *words)
    assert (report.code, report.failed) == (0, {}), report.out
    assert set(report.not_offered) == not_offered(built) | (set() if options == "language=c" else {"dialect.vectors"})
