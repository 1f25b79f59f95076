"""The option ``--backplane-conformance`` of pytest. Imports neither torch nor the kit where it is not given."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("backplane", "tests of a PyTorch backend").addoption(
        "--backplane-conformance",
        metavar="SUITES",
        nargs="?",
        const="",
        help="collect the conformance kit's cases too, as items marked `conformance`: all, or =SUITE,SUITE",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; register what makes the items, if they are asked for."""
    config.addinivalue_line("markers", "conformance: a case of backplane_tools.conformance")
    if config.getoption("--backplane-conformance") is not None:
        from backplane_tools.conformance.pytest_items import ConformancePlugin

        config.pluginmanager.register(ConformancePlugin(config), "backplane-conformance-items")
