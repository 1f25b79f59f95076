"""Worlds for the tests of torch.distributed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from world import Worlds


@pytest.fixture(scope="session")
def worlds(backend_package):
    """All worlds of the session; at its end their ranks must exit without an error."""
    made = Worlds()
    yield made
    made.close()
