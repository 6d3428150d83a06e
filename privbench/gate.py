"""The gate: exit codes from a record alone, so that CI can hold leakage under its bounds."""

from __future__ import annotations

from dataclasses import dataclass

from privbench.errors import EXCEEDED, INCOMPLETE, OK
from privbench.record import Audit, Finding
from privbench.report.words import decision, number
from privbench.verdict import Verdict

_ABLE_TO_FAIL = (Verdict.EXCEEDED, Verdict.WITHIN, Verdict.INCONCLUSIVE)


@dataclass(frozen=True)
class GateResult:
    """The exit code and the reasons, worst first."""

    code: int
    reasons: tuple[str, ...]


def gate(audit: Audit, *, strict: bool = False) -> GateResult:
    """1 when a confirmatory check is EXCEEDED, else 3 when a check FAILED or is missing, or none could have failed.

    A record without a bound to hold (UNCOVERED), or with bounds that nothing could exceed (VACUOUS), never passes.
    `strict` also ends with 3 for each check that could not be decided.
    """
    judged = [finding for finding in audit.findings if finding.role == "confirmatory"]
    exceeded = [_exceeded(finding) for finding in judged if finding.verdict == Verdict.EXCEEDED]
    incomplete = [
        f"{finding.id}: FAILED ({finding.reason})" for finding in audit.findings if finding.verdict == Verdict.FAILED
    ]
    incomplete += [f"{name}: planned, but missing" for name in audit.missing]
    if not any(finding.verdict in _ABLE_TO_FAIL for finding in judged):
        incomplete.append("no check could have failed: a gate with nothing to hold never passes")
    if strict:
        undecided = (Verdict.INCONCLUSIVE, Verdict.VACUOUS)
        incomplete += [
            f"{finding.id}: {finding.verdict} (strict)" for finding in judged if finding.verdict in undecided
        ]
    code = EXCEEDED if exceeded else INCOMPLETE if incomplete else OK
    return GateResult(code, (*exceeded, *incomplete))


def _exceeded(finding: Finding) -> str:
    """Value, bound, p and share: whoever reads a failed job sees by how much."""
    bound = finding.bound or {}
    return (
        f"{finding.id}: EXCEEDED, {number(finding.value or 0.0)} where {bound['name']} allows {number(bound['value'])} "
        f"({decision(bound)})"
    )
