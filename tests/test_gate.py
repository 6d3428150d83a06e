"""What a failed job reads: by how much a bound was exceeded, one line per reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import CommandLine

from privbench.gate import gate
from privbench.record import Audit, write
from privbench.report import words
from privbench.runner import AuditResult


def with_one(audit: Audit, verdict: str, **bound: Any) -> Audit:
    """A single confirmatory finding, of this verdict."""
    judged = next(item for item in audit.findings if item.role == "confirmatory")
    changed = replace(judged, verdict=verdict, value=0.77, reason="it broke", bound={**(judged.bound or {}), **bound})
    return replace(audit, findings=(changed,), planned=(changed.id,))


def test_exceeded_says_value_bound_p_and_share(small_audit: AuditResult) -> None:
    audit = with_one(small_audit.audit, "EXCEEDED", name="dp-cap", value=0.731, p_value=0.010437, alpha=0.01125)
    (reason,) = gate(audit).reasons
    assert reason.startswith(audit.findings[0].id)
    assert reason.endswith(": EXCEEDED, .770 where dp-cap allows .731 (p = 0.0104, needed 0.0112)")
    assert "(p = 0.0104, needed 0.0112)" in words.sentence(audit.findings[0], audit)


def test_a_vanishing_p_value_is_not_zero(small_audit: AuditResult) -> None:
    audit = with_one(small_audit.audit, "EXCEEDED", p_value=0.0, alpha=0.009)
    assert "(p < 1e-16, needed 0.009)" in gate(audit).reasons[0]


def test_failed_says_why(small_audit: AuditResult) -> None:
    result = gate(with_one(small_audit.audit, "FAILED"))
    assert result.code == 3
    assert result.reasons[0].endswith(": FAILED (it broke)")


@pytest.mark.parametrize(("verdict", "code"), [("EXCEEDED", 1), ("FAILED", 3)])
def test_a_reason_is_one_line(
    small_audit: AuditResult, command_line: CommandLine, tmp_path: Any, verdict: str, code: int
) -> None:
    audit = with_one(small_audit.audit, verdict)
    audit = replace(audit, findings=(replace(audit.findings[0], reason="a long story " * 20),))
    write(audit, small_audit.scores, {}, tmp_path / "record")
    done = command_line("gate", str(tmp_path / "record"))
    assert (done.returncode, len(done.stdout.splitlines())) == (code, len(gate(audit).reasons))
