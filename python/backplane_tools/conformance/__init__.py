"""The conformance kit: compares a device with the CPU, case by case, each in a worker process."""

from __future__ import annotations

from backplane_tools.conformance.case import Case, Outcome, Suite

__all__ = ["Case", "Outcome", "Suite"]
