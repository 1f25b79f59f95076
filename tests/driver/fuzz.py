"""How long a property is tried: a fixed few hundred cases in the test suite, new ones and more by ``make fuzz``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))

bounded = settings(
    max_examples=EXAMPLES or 300,
    derandomize=EXAMPLES == 0,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
