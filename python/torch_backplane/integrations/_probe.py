"""Run by ``torch-backplane doctor`` in a separate process, ``python -m <this> <package>``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import sys
import warnings
from dataclasses import asdict

from torch_backplane import _backend, integrations


def main(package: str) -> None:
    """Import the backend and the selected libraries; print a line of JSON for each installed one."""
    warnings.simplefilter("ignore", integrations.IntegrationWarning)  # the report says it
    importlib.import_module(package)
    for library, where in integrations.LIBRARIES.items():
        try:
            integration = importlib.import_module(where).integration
            version = importlib.metadata.version(integration.distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        error = ""
        if integrations.is_chosen(library):
            with contextlib.redirect_stdout(sys.stderr):
                for name in (library, *integration.modules):
                    try:
                        importlib.import_module(name)
                    except Exception as why:
                        error = f"import {name}: {type(why).__name__}: {why}"
        outcome = next(one for one in integrations.report() if one.library == library)
        answer = {**asdict(outcome), "version": version, "chosen": integrations.is_chosen(library), "error": error}
        print(json.dumps({**answer, "variable": _backend.env_name("INTEGRATIONS"), "tried": integration.tried}))


if __name__ == "__main__":
    main(sys.argv[1])
