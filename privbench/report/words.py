"""The sentences of a report, shared by terminal, Markdown and HTML: what a reviewer can quote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.verdict import Verdict

ATTACK_NAMES: Mapping[str, str] = {
    "inversion/nearest-token": "the nearest-token attack",
    "label/oracle-lr": "the oracle likelihood ratio",
    "label/spectral": "the spectral attack",
    **estimates.NAMES,
    **members.NAMES,
}

MARKS: Mapping[str, str] = {
    Verdict.EXCEEDED: "✗",
    Verdict.WITHIN: "✓",
    Verdict.INCONCLUSIVE: "?",
    Verdict.VACUOUS: "○",
    Verdict.UNCOVERED: "–",
    Verdict.NOT_APPLICABLE: "–",
    Verdict.FAILED: "!",
    Verdict.REPORTED: "·",
}

MEANINGS: Mapping[str, str] = {
    Verdict.EXCEEDED: "more right guesses than the bound allows (exact binomial test, Holm over the set)",
    Verdict.WITHIN: "these attacks did not exceed the bound, and would have been able to; not a proof of safety",
    Verdict.INCONCLUSIVE: "not exceeded, but the test was too weak to say more",
    Verdict.VACUOUS: "no result could have exceeded this bound",
    Verdict.UNCOVERED: "measured, but no bound speaks about this mechanism",
    Verdict.NOT_APPLICABLE: "the attack needs something that this adversary does not have",
    Verdict.FAILED: "the check broke; nothing may be concluded",
    Verdict.REPORTED: "shown, not judged",
}


READ: Mapping[str, str] = {
    "token-accuracy": "of the respondents' answer tokens",
    "answer-accuracy": "of the respondents' answers, each question's answers counting the same,",
}
"""What inversions read, by metric."""


BOUNDS: Mapping[str, str] = {
    "g": "Phi(s): what one release can show at most, given the clip, the noise and the angle between the tasks' moves",
    "g-composed": "Phi(sqrt(T) s): the same for all T releases of a run",
    "g-as-published": "the paper's two-task form for one release, held over a whole run as the paper reads it",
    "single-task": "Phi(C / sigma), within which the paper says that multi-task releases stay",
    "dp-cap": "what the claimed (eps, delta) allows a guesser of a fair coin, under the claim's own neighbours",
    "nominal-curve": "what the accounting behind a nominal claim promises: its own privacy curve, read at a coin",
    "label-dp": "what pure differential privacy of labels allows",
}


def number(value: float, digits: int = 3) -> str:
    """.551 rather than 0.551, and -.007: proportions as tables print them."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def p_value(value: float) -> str:
    return "p < 1e-16" if value < 1e-16 else f"p = {value:.2g}"


def decision(bound: Mapping[str, Any]) -> str:
    """p and the Holm share that it had to meet, close enough to see a near miss."""
    p, share = bound["p_value"], bound["alpha"]
    said = p_value(p) if p < 1e-16 else f"p = {p:.3g}"
    return said if share is None else f"{said}, needed {share:.3g}"


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{number(low)}, {number(high)}]"


def attack_name(finding: Finding) -> str:
    return ATTACK_NAMES.get(finding.attack, f"the attack {finding.attack}")


def releases(finding: Finding, total: int) -> str:
    if finding.releases == 1:
        return "one release" if total > 1 else "the one release"
    return f"all {finding.releases} releases"


def over(audit: Audit) -> int:
    """T, the number of releases of a record in this run; of those with coins where there are any."""
    coins = [finding.releases for finding in audit.findings if finding.secret.startswith("canary/")]
    return max(coins or [finding.releases for finding in audit.findings], default=1)


def total_releases(finding: Finding, audit: Audit) -> int:
    """T of the channel that this finding is about."""
    if audit.inputs is not None and finding.secret == audit.inputs["name"]:
        return int(audit.inputs["releases"])
    return over(audit)


def most_read(audit: Audit) -> Finding | None:
    """The finding that read the largest share of the answers' tokens."""
    found = [item for item in audit.findings if item.metric == "token-accuracy" and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def sentence(finding: Finding, audit: Audit) -> str:
    """One finding in words: value, interval, bound, verdict."""
    if finding.value is None:
        return f"{_capital(attack_name(finding))}: {finding.verdict}. {_capital(finding.reason)}."
    where = releases(finding, total_releases(finding, audit))
    measured = f"{number(finding.value)} {interval(finding.low, finding.high)}".rstrip()
    if members.about_members(finding):
        blind = None if finding.baseline is None else number(finding.baseline)
        told = members.read(finding, measured, f"{finding.chance:g}".lstrip("0") or "0", blind)
        return f"{_capital(attack_name(finding))} {told}; {finding.reason}: {finding.verdict}."
    if estimates.about_numbers(finding):
        base = None if finding.baseline is None else number(finding.baseline)
        told = estimates.read(finding, measured, base)
        return f"{_capital(attack_name(finding))} {told}; {finding.reason}: {finding.verdict}."
    if finding.metric in READ:
        always = (
            f" (one reply for everybody: at most {number(finding.baseline)})" if finding.baseline is not None else ""
        )
        read = f"{_capital(attack_name(finding))} reads {measured} {READ[finding.metric]} from {where}{always}"
        return f"{read}; {finding.reason}: {finding.verdict}."
    read = f"{_capital(attack_name(finding))} guesses {measured} of the label coins right from {where}"
    if finding.bound is None:
        return f"{read}; {finding.reason}: {finding.verdict}."
    name, value = finding.bound["name"], finding.bound["value"]
    near = finding.verdict in (Verdict.EXCEEDED, Verdict.INCONCLUSIVE)
    said = decision(finding.bound) if near else p_value(finding.bound["p_value"])
    held = f"{read}; {name} allows {number(value)}: {finding.verdict} ({said})."
    if finding.verdict in (Verdict.INCONCLUSIVE, Verdict.VACUOUS, Verdict.FAILED):
        return f"{held} {_capital(finding.reason)}."
    return held


def confirmatory(audit: Audit) -> tuple[Finding, ...]:
    return tuple(finding for finding in audit.findings if finding.role == "confirmatory")


def descriptive(audit: Audit) -> tuple[Finding, ...]:
    """All others; what reads the same (an attack that could not be run, once per bound) once."""
    others = (finding for finding in audit.findings if finding.role != "confirmatory")
    first: dict[str, Finding] = {}
    for finding in others:
        first.setdefault(sentence(finding, audit), finding)
    return tuple(first.values())


def headline(audit: Audit) -> str:
    """The result in one sentence."""
    judged = confirmatory(audit)
    exceeded = [finding for finding in judged if finding.verdict == Verdict.EXCEEDED]
    failed = [finding for finding in audit.findings if finding.verdict == Verdict.FAILED]
    if exceeded:
        return f"EXCEEDED: {'; '.join(_adversaries(exceeded))} (chance: .5)."
    if failed or audit.missing:
        return (
            f"INCOMPLETE: {len(failed)} checks failed and {len(audit.missing)} are missing; nothing may be concluded."
        )
    leak = _leak(audit)
    if not judged:
        return f"UNCOVERED: {leak}, and no bound speaks about this mechanism."
    count = {verdict: sum(finding.verdict == verdict for finding in judged) for verdict in Verdict}
    if count[Verdict.WITHIN] == 0:
        return f"NOT JUDGED: {leak}; none of {len(judged)} checks could be decided ({_tally(count)})."
    return f"Nothing exceeded: {leak}; {_tally(count)} of {len(judged)} checks."


def _leak(audit: Audit) -> str:
    """The most that was read, of coins and of answers."""
    coins = [item.value for item in audit.findings if item.value is not None and item.secret.startswith("canary/")]
    said = [f"up to {number(max(coins))} of the label coins were guessed right (chance: .5)"] if coins else []
    read = most_read(audit)
    if read is not None and read.value is not None:
        said.append(
            f"{number(read.value)} of the respondents' answer tokens were read by a {read.threat_model} (one reply for "
            f"everybody: at most {number(read.baseline or 0.0)})"
        )
    known = estimates.best(audit)
    if known is not None and known.value is not None:
        said.append(f"{number(known.value)} of the spread of a site's inputs was explained by a {known.threat_model}")
    member = members.best(audit)
    if member is not None and member.value is not None:
        said.append(f"members were told from others with AUC up to {number(member.value)} (chance: .5)")
    return "; ".join(said) or "nothing was measured"


def _adversaries(exceeded: list[Finding]) -> Iterator[str]:
    """What each adversary exceeded, the strongest first."""
    by_threat: dict[str, list[Finding]] = {}
    for finding in exceeded:
        by_threat.setdefault(finding.threat_model, []).append(finding)
    for threat, findings in sorted(by_threat.items(), key=lambda item: -max(f.value or 0.0 for f in item[1])):
        best = max(finding.value or 0.0 for finding in findings)
        names = sorted({str(finding.bound["name"]) for finding in findings if finding.bound})
        allow = f"more than {' and '.join(names)} allow{'s' if len(names) == 1 else ''}"
        yield f"{threat} guesses {number(best)} of the label coins right, {allow}"


def _tally(count: Mapping[Verdict, int]) -> str:
    return ", ".join(f"{number_} {verdict}" for verdict, number_ in count.items() if number_)


def setting(audit: Audit) -> str:
    """What was run, in one line."""
    resolved: Mapping[str, Any] = audit.manifest["config"]["resolved"]
    noise = resolved.get("noise_multiplier")
    whom = f" ({resolved['eps_for']})" if "eps_for" in resolved else ""
    parts = [
        f"target {audit.findings[0].target}" if audit.findings else "target",
        f"data {resolved['data']}",
        *_sizes(audit),
        "" if audit.secret and audit.inputs else f"{_counted(over(audit))} of each",
        *_system(resolved),
        f"eps {resolved['eps']}{whom}" if resolved["eps"] is not None else "",
        f"noise multiplier {noise:.4g}" if noise is not None else "",
        f"seed {audit.manifest['seeds'][0]}",
    ]
    return ", ".join(part for part in parts if part)


def _system(resolved: Mapping[str, Any]) -> Iterator[str]:
    """Which model, cut where, with the labels at whom."""
    tuning = resolved.get("tuning")
    if "model" in resolved:
        yield f"model {resolved['model']}"
    if isinstance(tuning, Mapping):
        yield f"{tuning['k']} layers at the client, labels at the {tuning['labels']}"


def _sizes(audit: Audit) -> Iterator[str]:
    secret, inputs = audit.secret, audit.inputs
    apart = secret is not None and inputs is not None
    if secret is not None:
        yield f"{secret['records']:,} {records_called(audit)}{f' in {_counted(over(audit))}' if apart else ''}"
    if inputs is not None:
        who = f"{inputs['records']:,} respondents of {inputs['name'].removeprefix('input/')}"
        yield f"{who} in {_counted(inputs['releases'])}" if apart else who


def _counted(releases: int) -> str:
    return f"{releases} releases" if releases > 1 else "one release"


def of_patients(audit: Audit) -> bool:
    """Only PRISM's records are stays of patients; what a recording's or a drawn one's are, nobody here knows."""
    return bool(audit.findings) and audit.findings[0].target == "prism"


def records_called(audit: Audit) -> str:
    """What one record of this run is called, in the plural."""
    return "training records" if of_patients(audit) else "records"


def epsilon_value(item: Mapping[str, Any]) -> str:
    return f"{item['value']:.3g}" if item["value"] is not None else f"none ({item['reason']})"


def flag_name(flag: Mapping[str, str], audit: Audit) -> str:
    """A flag by name; one about an attack's control with the attacks whose control it is."""
    side = {"CLEAN_CONTROL_FAILED": "positive", "SHUFFLED_CONTROL_FAILED": "negative"}.get(flag["name"])
    # The noise-free control that counts is that of all releases together.
    looked_at = [f for f in audit.findings if side == "negative" or f.releases == over(audit)] if side else []
    failed = [f for f in looked_at if (control := f.controls.get(str(side))) is not None and not control["passed"]]
    names = dict.fromkeys(attack_name(finding) for finding in failed)
    return f"{flag['name']} ({', '.join(names)})" if names else flag["name"]


def bounds_shown(audit: Audit) -> tuple[str, ...]:
    """Names of the bounds in this record that have an explanation, in order of appearance."""
    names = dict.fromkeys(str(finding.bound["name"]) for finding in audit.findings if finding.bound)
    return tuple(name for name in names if name in BOUNDS)


def assumptions(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Every assumption of the bounds shown, once, in order of appearance."""
    seen: dict[str, None] = {}
    for finding in findings:
        for item in (finding.bound or {}).get("assumptions", ()):
            seen.setdefault(item)
    return tuple(seen)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def configuration(audit: Audit) -> tuple[tuple[str, str], ...]:
    """Every resolved setting by name, nested ones beside the others, for who wants to repeat the run."""
    rows: list[tuple[str, str]] = []
    for key, value in audit.manifest["config"]["resolved"].items():
        nested = value.items() if isinstance(value, Mapping) else [(key, value)]
        rows += [(str(name), str(item)) for name, item in nested if item is not None and item != ""]
    return tuple(rows)
