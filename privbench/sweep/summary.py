"""From the cells' records to one judgement over the sweep: all tests of all cells share one error rate.

A cell's own record judges the cell alone; of sixty such records three would exceed an honest bound somewhere. Here
every confirmatory test is judged again, with Holm over the sweep, and with each measured rho's limit at its part of the
share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import privbench
from privbench.bounds.base import BoundValue, Question
from privbench.data.catalogue import without_folders
from privbench.errors import EXCEEDED, INCOMPLETE, OK, RecordError
from privbench.findings_members import GUESSES
from privbench.flags import VOIDING
from privbench.mechanism import Claim, Mechanism, gradient_mechanism
from privbench.record import AUDIT_FILE, Audit, Finding, read
from privbench.registry import Registry
from privbench.scoring import Control
from privbench.stats.one_run import Guesses
from privbench.stats.shares import upper_mean
from privbench.sweep.plan import Cell
from privbench.sweep.record import Held, Row, Sweep
from privbench.sweep.work import failure, folder_of
from privbench.verdict import ALPHA, RHO_SHARE, ConfirmatoryTest, Judgement, OneRunTest, Verdict, controls_say, judge


def collect(cells: Sequence[Cell], out: Path, registry: Registry) -> Sweep:
    """Read every finished cell and judge them together."""
    return _judged([_asked(cell) for cell in cells], out, registry)


def judge_again(sweep: Sweep, out: Path, registry: Registry) -> Sweep:
    """The same from what is in the folder now: of `sweep` count only the cells, and what was asked of them."""
    nothing: Any = {"status": "missing", "reason": None, "findings": (), "utility": (), "flags": ()}
    return _judged([replace(row, **nothing) for row in sweep.rows], out, registry)


def _judged(asked: Sequence[Row], out: Path, registry: Registry) -> Sweep:
    audits = {row.cell: _read(out, row.cell) for row in asked}
    tests: dict[tuple[str, str], ConfirmatoryTest | OneRunTest] = {}
    most = 0
    for address, audit in audits.items():
        if audit is not None:
            judged = [finding for finding in audit.findings if finding.role == "confirmatory"]
            most = max(most, len(judged))
            for finding in judged:
                if finding.value is not None and finding.bound is not None:
                    tests[address, finding.id] = _test(finding, audit, registry, RHO_SHARE / len(asked))
    # Cells that did not end keep their share: finishing them later must not take an EXCEEDED back.
    unfinished = sum(audit is None for audit in audits.values())
    planned = len(tests) + most * unfinished
    judgements = dict(zip(tests, judge(list(tests.values()), ALPHA - RHO_SHARE, planned, advise=False), strict=True))
    rows = tuple(_ended(row, audits[row.cell], out, judgements) for row in asked)
    return Sweep(privbench.__version__, ALPHA - RHO_SHARE, planned, rows)


def exit_code(sweep: Sweep, *, strict: bool) -> int:
    """1 when a test is EXCEEDED over the sweep, else 3 when anything FAILED or is missing, or (strict) undecided."""
    if sweep.count(Verdict.EXCEEDED):
        return EXCEEDED
    undecided = sweep.count(Verdict.INCONCLUSIVE) + sweep.count(Verdict.VACUOUS) if strict else 0
    failed = any(item.verdict == Verdict.FAILED for row in sweep.rows for item in row.findings)
    able = sum(map(sweep.count, (Verdict.WITHIN, Verdict.INCONCLUSIVE)))
    if sweep.ended("done") < len(sweep.rows) or failed or undecided or not able:
        return INCOMPLETE
    return OK


def check_done(cells: Sequence[Cell], out: Path) -> None:
    """Read every finished cell, so that a damaged one is named before the others run."""
    for cell in cells:
        _read(out, cell.address)


def _read(out: Path, address: str) -> Audit | None:
    folder = folder_of(out, address)
    if not (folder / AUDIT_FILE).exists():
        return None
    audit = read(folder)
    if audit.missing:
        raise RecordError(f"{folder} lacks planned findings ({audit.missing[0]}); remove it, and it is run again.")
    if audit.cell != address:
        raise RecordError(f"{folder} holds the record of another cell ({audit.cell[:16]}); remove it.")
    return audit


def _test(finding: Finding, audit: Audit, registry: Registry, rho_alpha: float) -> ConfirmatoryTest | OneRunTest:
    n, value, bound = finding.n or 0, finding.value or 0.0, finding.bound or {}
    if finding.metric == GUESSES:
        claim = Claim.from_json(bound["inputs"]["claim"])
        void = finding.reason if finding.verdict == Verdict.FAILED else None
        return OneRunTest(Guesses(finding.canaries or n, n, round(value * n)), claim.eps, claim.delta, void)
    positive, negative = (finding.controls[key] for key in ("positive", "negative"))
    if negative is None:
        raise RecordError(f"finding {finding.id} was judged without a shuffled control.")
    failed, void = controls_say(
        None if positive is None else Control(**positive),
        Control(**negative),
        {flag["name"] for flag in audit.flags} & VOIDING,
    )
    limit = _bound(finding, audit, registry, rho_alpha) or float(bound["value"])
    signal = NormalDist().inv_cdf(limit) if limit < 1 else math.inf
    again = BoundValue(str(bound["name"]), str(bound["unit"]), limit, signal)
    optimal = registry.get("attacks", finding.attack).card.exact_per_release
    return ConfirmatoryTest(round(value * n), n, finding.canaries or n, again, failed, void, optimal)


def _bound(finding: Finding, audit: Audit, registry: Registry, alpha: float) -> float | None:
    """A bound that leans on a measured rho, with rho's limit at this error rate; None for every other."""
    measured, mechanism = (
        audit.moves["rho"],
        gradient_mechanism(tuple(Mechanism.from_json(item) for item in audit.mechanisms), finding.party),
    )
    inputs = (finding.bound or {}).get("inputs", {})
    if measured is None or mechanism is None or audit.secret is None or inputs.get("rho") is None:
        return None
    rho = upper_mean(measured["mean_absolute"], measured["records"], alpha)
    bound = registry.get("bounds", str((finding.bound or {})["name"]))()
    value = bound.evaluate(mechanism, Question(tuple(audit.secret["moved"]), int(inputs["T"]), rho=rho))
    return float(value.value) if isinstance(value, BoundValue) else None


def _asked(cell: Cell) -> Row:
    """A cell by its options, before anything is known of how it ended."""
    options = cell.options
    return Row(
        cell=cell.address,
        target=options.target,
        data=options.data.partition(":")[0] if options.data else "",
        defense=options.defenses[0] if options.defenses else "",
        eps="inf" if options.eps == math.inf else options.eps,
        noise_multiplier=options.noise_multiplier,
        seed=options.seed,
        settings={**({"model": without_folders(options.model)} if options.model else {}), **options.settings},
        status="missing",
        reason=None,
        findings=(),
        utility=(),
        flags=(),
    )


def _ended(row: Row, audit: Audit | None, out: Path, judgements: dict[tuple[str, str], Judgement]) -> Row:
    """What was asked for with what was found, all of it from the record where there is one."""
    if audit is None:
        reason = failure(out, row.cell)
        return row if reason is None else replace(row, status="failed", reason=reason)
    given, resolved = (audit.manifest["config"][key] for key in ("given", "resolved"))
    model = {key: value for key, value in row.settings.items() if key == "model"}
    return replace(
        row,
        target=str(given["target"]),
        data=str(resolved["data"]),
        defense=str(resolved["defense"]),
        eps=resolved["eps"],
        noise_multiplier=resolved.get("noise_multiplier"),
        seed=int(given["seed"]),
        settings={**model, **given["settings"]},
        status="done",
        findings=tuple(_held(finding, judgements.get((row.cell, finding.id))) for finding in audit.findings),
        utility=tuple(dict(item) for item in audit.utility),
        flags=tuple(flag["name"] for flag in audit.flags),
    )


def _held(finding: Finding, judgement: Judgement | None) -> Held:
    bound = finding.bound or {}
    return Held(
        id=finding.id,
        attack=finding.attack,
        releases=finding.releases,
        role=finding.role,
        value=finding.value,
        low=finding.low,
        high=finding.high,
        bound=bound.get("name"),
        bound_value=bound.get("value"),
        p_value=bound.get("p_value") if judgement is None else judgement.p_value,
        share=None if judgement is None else judgement.share,
        verdict=finding.verdict if judgement is None else str(judgement.verdict),
        cell_verdict=finding.verdict,
    )
