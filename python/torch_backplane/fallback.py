"""The CPU fallback: what runs there, and whether it may.

An operator without a kernel for the device runs on the CPU: on the device's own memory where the host reaches it, else
on copies. ``<DEVICE>_FALLBACK`` sets the first policy: ``cpu``, ``warn`` or ``error``; ``none`` registers no fallback
at all.
"""

from __future__ import annotations

from torch_backplane import _backend

__all__ = ["calls", "get_policy", "is_registered", "policy", "report", "reset_calls"]

_op_policies: dict[str, str] = {}


def get_policy(op: str | None = None) -> str:
    """The policy in force.

    Args:
        op: an operator as it was given to :class:`policy`; None asks for the general policy.
    """
    if op is not None and op in _op_policies:
        return _op_policies[op]
    return str(_backend.C.fallback_policy())


class policy:
    """Set the policy, at once; as a context manager, for the time of the block. It holds for all threads.

    Args:
        value: ``"cpu"`` runs silently, ``"warn"`` warns once per operator, ``"error"`` raises NotImplementedError.
        op: only this operator: ``"aten::sinc"`` (all its overloads) or ``"aten::sinc.out"``. None is the general
            policy.

    Example::

        with torch_backplane.fallback.policy("error"):
            step()  # raises at the first operator that has no kernel
    """

    def __init__(self, value: str, op: str | None = None) -> None:
        self._op = op
        self._before = _op_policies.get(op) if op is not None else get_policy()
        self._set(value)

    def _set(self, value: str | None) -> None:
        if self._op is None:
            _backend.C.set_fallback_policy(value)
            return
        _backend.C.set_fallback_op_policy(self._op, value)
        if value is None:
            _op_policies.pop(self._op, None)
        else:
            _op_policies[self._op] = value

    def __enter__(self) -> policy:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._set(self._before)


def is_registered() -> bool:
    """Whether there is a fallback: False with ``<DEVICE>_FALLBACK=none``."""
    return bool(_backend.C.fallback_registered())


def calls() -> dict[str, int]:
    """How often each operator ran on the CPU since the start or :func:`reset_calls`, the most frequent first."""
    return dict(_backend.C.fallback_calls())


def reset_calls() -> None:
    """Begin counting anew."""
    _backend.C.reset_fallback_calls()


def report() -> str:
    """The counts as a table, for printing: the list of kernels that a vendor may write next."""
    counts = calls()
    if not counts:
        return "no operator ran on the CPU\n"
    width = max(len(op) for op in counts)
    return "".join(f"{op:<{width}}  {count:>10,}\n" for op, count in counts.items())
