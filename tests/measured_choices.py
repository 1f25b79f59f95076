"""What ``max_autotune`` measures, as a test sets it."""

from typing import Any

from torch_backplane.inductor import choices

KINDS = {"template": "MeasuredTemplate", "tiles": "ProductCaller", "operator": "MeasuredOperator"}


def set_times(monkeypatch: Any, **milliseconds: float) -> dict[str, Any]:
    """The time of each kind of choice, which may be changed later, and under ``asked`` the kinds that were measured."""
    known: dict[str, Any] = {**milliseconds, "asked": []}

    def measured(kind):
        def benchmark(choice, *args, out):
            known["asked"].append(kind)
            return known[kind]

        return benchmark

    for kind in milliseconds:
        monkeypatch.setattr(getattr(choices, KINDS[kind]), "benchmark", measured(kind))
    return known
