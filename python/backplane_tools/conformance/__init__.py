"""The conformance kit: holds a device against the CPU, case by case, each in a process that it may take down."""

from __future__ import annotations

from backplane_tools.conformance.case import Case, Outcome, Suite

__all__ = ["Case", "Outcome", "Suite"]
