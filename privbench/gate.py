"""The gate: exit codes from a record alone, so that CI can hold leakage under its bounds."""

from __future__ import annotations

from dataclasses import dataclass

from privbench.record import Audit
from privbench.verdict import Verdict

OK, EXCEEDED, USAGE, INCOMPLETE = 0, 1, 2, 3


@dataclass(frozen=True)
class GateResult:
    """The exit code and the reasons, worst first."""

    code: int
    reasons: tuple[str, ...]


def gate(audit: Audit, *, strict: bool = False) -> GateResult:
    """1 when a confirmatory check is EXCEEDED, else 3 when a check FAILED or is missing (strict: INCONCLUSIVE too)."""
    exceeded = [f.id for f in audit.findings if f.verdict == Verdict.EXCEEDED and f.role == "confirmatory"]
    failed = [f.id for f in audit.findings if f.verdict == Verdict.FAILED]
    open_ = [f.id for f in audit.findings if strict and f.verdict == Verdict.INCONCLUSIVE]
    reasons = [f"{name}: EXCEEDED" for name in exceeded]
    reasons += [f"{name}: FAILED" for name in failed]
    reasons += [f"{name}: planned, but missing" for name in audit.missing]
    reasons += [f"{name}: INCONCLUSIVE (strict)" for name in open_]
    incomplete = bool(failed or audit.missing or open_ or not audit.planned)
    if not audit.planned:
        reasons.append("nothing was planned: a gate with nothing to check never passes")
    code = EXCEEDED if exceeded else INCOMPLETE if incomplete else OK
    return GateResult(code, tuple(reasons))
