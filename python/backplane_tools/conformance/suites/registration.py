"""What is registered for the device against the lint's rules: one case per rule, and one for the dispatcher itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from backplane_tools.conformance.case import Case, Outcome

_INVARIANTS = "dispatcher-invariants"


class RegistrationSuite:
    """Runs no operator: it asks the dispatcher. docs/lint-ops.md has the rules."""

    name = "registration"

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        from torch_backplane.ops.lint_rules import RULES

        for rule in (*RULES, _INVARIANTS):
            yield Case(self.name, rule)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        from torch_backplane import _backend
        from torch_backplane.ops.lint_rules import RULES, Facts

        if not _backend.loaded():
            return Outcome("skip", f"{device} is not a backend of this SDK")
        if case.name == _INVARIANTS:
            torch._C._dispatch_check_all_invariants()
            return Outcome("pass", checks={"check": 1})
        findings = list(RULES[case.name].findings(Facts()))
        if findings:
            return Outcome("fail", f"{len(findings)} x {findings[0].what}", "\n".join(map(str, findings)))
        return Outcome("pass", checks={"check": 1})
