"""The sentences of a report, shared by terminal, Markdown and HTML: what a reviewer can quote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.verdict import Verdict

ATTACK_NAMES: Mapping[str, str] = {
    "inversion/affine-token": "the affine-token attack",
    "inversion/bisr": "BiSR",
    "inversion/embedding-columns": "the embedding's columns",
    "inversion/learned-token": "the learned inverter",
    "inversion/nearest-token": "the nearest-token attack",
    "inversion/relaxation": "the relaxation behind public layers",
    "inversion/rescaled-token": "the rescaled-token attack",
    "inversion/noise-aware-token": "the noise-aware reader",
    "inversion/searched-token": "the search behind public layers",
    "inversion/span": "the span test",
    "inversion/update-match": "matching questionnaires with updates",
    "label/answer-length": "the length of the answer",
    "label/gradient-match": "gradient matching",
    "label/gradient-match-perturbed": "gradient matching with a noisy head",
    "label/oracle-lr": "the oracle likelihood ratio",
    "label/spectral": "the spectral attack",
    "label/update-counts": "counting outcomes by updates",
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

COUNTS = "count-accuracy"
READ = ("token-accuracy", "answer-accuracy")
"""Metrics of what inversions read of token inputs."""

TABLED = (*members.METRICS, *estimates.METRICS, *READ, COUNTS)
"""Metrics that stand in tables; others, which a bound may be held against, are told in sentences."""

BOUNDS: Mapping[str, str] = {
    "g": "Phi(s): what one release can show at most, given the clip, the noise and the angle between the tasks' moves",
    "g-composed": "Phi(sqrt(T) s): the same for all T releases of a run",
    "g-as-published": "the paper's two-task form for one release, held over a whole run as the paper reads it",
    "single-task": "Phi(C / sigma), within which the paper says that multi-task releases stay",
    "dp-cap": "what the claimed (eps, delta) allows a guesser of a fair coin, under the claim's own neighbours",
    "dp-members": "what the claimed (eps, delta) about records allows one guess; a training's are tested together",
    "nominal-curve": "what the accounting behind a nominal claim promises: its own privacy curve, read at a coin",
    "label-dp": "what pure differential privacy of labels allows",
    "fisher": "what an unbiased estimator can explain of inputs behind a noised linear cut; attacks may be biased",
    "channel": "what any estimator can explain of inputs of known entropy, by the information that the noise lets pass",
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


def measured(finding: Finding) -> str:
    """The value with its interval."""
    value = "none" if finding.value is None else number(finding.value)
    return f"{value} {interval(finding.low, finding.high)}".rstrip()


def attack_name(finding: Finding) -> str:
    return ATTACK_NAMES.get(finding.attack, f"the attack {finding.attack}")


def short_name(attack: str) -> str:
    """As tables name it."""
    return ATTACK_NAMES.get(attack, attack).removeprefix("the ")


def releases(finding: Finding, total: int) -> str:
    if finding.releases == 1:
        return "one release" if total > 1 else "the one release"
    return f"all {finding.releases} releases"


def over(audit: Audit) -> int:
    """T, the number of releases of a record in this run; of those with coins where there are any."""
    coins = [finding.releases for finding in audit.findings if finding.secret.startswith("canary/")]
    return max(coins or [finding.releases for finding in audit.findings], default=1)


def most_read(audit: Audit) -> Finding | None:
    """The finding that read the largest share of the answers' tokens."""
    found = [item for item in audit.findings if item.metric == "token-accuracy" and item.value is not None]
    return max(found, key=lambda item: item.value or 0.0, default=None)


def sentence(finding: Finding, audit: Audit) -> str:
    """A finding about coins in words: value, interval, bound, verdict; else the reason why it has no value."""
    if finding.value is None:
        return f"{_capital(attack_name(finding))}: {finding.verdict}. {_capital(finding.reason)}."
    where = releases(finding, over(audit))
    name = _capital(attack_name(finding))
    read = f"{name} guesses {measured(finding)} of the label coins right from {where}"
    if members.about_members(finding):
        read = f"{name} is right in {measured(finding)} of the {finding.n} guesses about members that it is surest of"
    if finding.bound is None:
        return f"{read}; {finding.reason}: {finding.verdict}."
    bound, value = finding.bound["name"], finding.bound["value"]
    near = finding.verdict in (Verdict.EXCEEDED, Verdict.INCONCLUSIVE)
    said = decision(finding.bound) if near else p_value(finding.bound["p_value"])
    held = f"{read}; {bound} allows {number(value)}: {finding.verdict} ({said})."
    if finding.verdict in (Verdict.INCONCLUSIVE, Verdict.VACUOUS, Verdict.FAILED):
        return f"{held} {_capital(finding.reason)}."
    return held


def confirmatory(audit: Audit) -> tuple[Finding, ...]:
    return tuple(finding for finding in audit.findings if finding.role == "confirmatory")


def descriptive(audit: Audit) -> tuple[Finding, ...]:
    """All others that were measured and that no table shows; what reads the same once."""
    first: dict[str, Finding] = {}
    for finding in audit.findings:
        if finding.role != "confirmatory" and finding.value is not None and finding.metric not in TABLED:
            first.setdefault(sentence(finding, audit), finding)
    return tuple(first.values())


def not_run(audit: Audit) -> tuple[str, ...]:
    """Of each reason for which attacks could not be run, which ones, in a sentence."""
    found: dict[str, dict[str, None]] = {}
    for item in audit.findings:
        if item.value is None and item.verdict == Verdict.NOT_APPLICABLE:
            found.setdefault(item.reason, {}).setdefault(attack_name(item))
    return tuple(
        f"{_capital(_listed(list(names)))}: {Verdict.NOT_APPLICABLE}. {_capital(reason)}."
        for reason, names in found.items()
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def broken(audit: Audit) -> tuple[Finding, ...]:
    """Findings that have no value because their attack broke; what reads the same once."""
    found = (item for item in audit.findings if item.value is None and item.verdict == Verdict.FAILED)
    return tuple({sentence(item, audit): item for item in found}.values())


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
        shown = any(finding.bound for finding in audit.findings)
        tail = "bounds are shown beside it and none is judged" if shown else "no bound speaks about this mechanism"
        return f"UNCOVERED: {leak}, and {tail}."
    count = {verdict: sum(finding.verdict == verdict for finding in judged) for verdict in Verdict}
    if count[Verdict.WITHIN] == 0:
        return f"NOT JUDGED: {leak}; none of {len(judged)} checks could be decided ({_tally(count)})."
    return f"Nothing exceeded: {leak}; {_tally(count)} of {len(judged)} checks."


def _leak(audit: Audit) -> str:
    """The most that was read of coins, answers and inputs, and how far members were told apart: each by whom."""
    coins = [item for item in audit.findings if item.value is not None and item.secret.startswith("canary/")]
    shown = [item for item in coins if (item.low or 0.0) > 0.5]
    most = max(shown or coins, key=lambda item: item.value or 0.0, default=None)
    said = []
    if most is not None:
        said.append(_guessed(most, number(most.value or 0.0)))
    read = most_read(audit)
    if read is not None and read.value is not None:
        said.append(_read(read, read.value, audit))
    known = estimates.best(audit)
    if known is not None and known.value is not None:
        said.append(_known(known, known.value))
    member = members.best(audit)
    if member is not None and member.value is not None:
        said.append(_told(member, member.value, members.attacks(audit)))
    return "; ".join(said) or "nothing was measured"


def _guessed(finding: Finding, value: str) -> str:
    """Coins; an attack whose interval holds chance has shown nothing."""
    if (finding.low or 0.0) <= 0.5:
        return f"no attack guessed more label coins than chance may give (.5: at most {value}, by {_whom(finding)})"
    return f"up to {value} of the label coins were guessed right by {_whom(finding)} (chance: .5)"


def _read(finding: Finding, value: float, audit: Audit) -> str:
    """Tokens of answers; an attack that reads no more than what takes no cut has read nothing."""
    beside, most = without_cut(finding, audit), f"at most {number(finding.baseline or 0.0)}"
    if (finding.low or 0.0) <= (finding.baseline or 0.0):
        return f"no attack of {_whom(finding)} read more answer tokens than {beside} ({most})"
    alone = _alone(value, audit)
    return f"{number(value)} of the respondents' answer tokens were read by {_whom(finding)}{alone} ({beside}: {most})"


def _alone(value: float, audit: Audit) -> str:
    """Which release by itself gives away more than `value`, where one does: training may make others say less."""
    attacks = {item.attack for item in audit.findings if item.metric == "token-accuracy"}
    lines = [line for name, line in audit.series.items() if name in attacks]
    most, release = max(((y, x) for line in lines for x, y in zip(line.x, line.y, strict=True)), default=(0.0, 0.0))
    return f", {number(most)} from release {release:g} by itself" if most > value + _WORTH_SAYING else ""


_WORTH_SAYING = 0.01
ONE_REPLY, LANGUAGE_MODEL = "one reply for everybody", "a language model told all answers before"


def without_cut(finding: Finding, audit: Audit) -> str:
    """What the baseline of a finding about answers is: the better of what takes no cut."""
    both = (audit.inputs or {}).get("without_cut", {}).get(finding.metric)
    return LANGUAGE_MODEL if both is not None and both["language_model"] > both["one_reply"] else ONE_REPLY


def _told(finding: Finding, value: float, attacks: int) -> str:
    """Members from others: the best of several attacks lies above chance by luck, too, and its interval says so."""
    area = f"AUC {number(value)} {interval(finding.low, finding.high)}, the best of {attacks}"
    if (finding.low or 0.0) <= 0.5:
        return f"no attack told members from others (chance .5: {area})"
    return f"members were told from others by {_whom(finding)} (chance .5: {area}, each with its own error)"


def _known(finding: Finding, value: float) -> str:
    """The best estimate of inputs; one that is worse than their mean explains nothing."""
    if value <= 0:
        return f"no estimate of a site's inputs, by {_whom(finding)} or another, was better than their mean"
    beside = "" if finding.baseline is None else f" (without the cut: {number(finding.baseline)})"
    return f"{number(value)} of the spread of a site's inputs was explained by {_whom(finding)}{beside}"


def _whom(finding: Finding) -> str:
    """The adversary behind a number; one that bears a name needs no article."""
    return finding.threat_model if finding.party else f"a {finding.threat_model}"


def _adversaries(exceeded: list[Finding]) -> Iterator[str]:
    """What each adversary exceeded, the strongest first."""
    by_threat: dict[str, list[Finding]] = {}
    for finding in exceeded:
        by_threat.setdefault(finding.threat_model, []).append(finding)
    for threat, findings in sorted(by_threat.items(), key=lambda item: -max(f.value or 0.0 for f in item[1])):
        best = max(finding.value or 0.0 for finding in findings)
        names = sorted({str(finding.bound["name"]) for finding in findings if finding.bound})
        allow = f"more than {' and '.join(names)} allow{'s' if len(names) == 1 else ''}"
        what = "surest guesses about members" if members.about_members(findings[0]) else "label coins"
        yield f"{threat} guesses {number(best)} of the {what} right, {allow}"


def _tally(count: Mapping[Verdict, int]) -> str:
    return ", ".join(f"{number_} {verdict}" for verdict, number_ in count.items() if number_)


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
