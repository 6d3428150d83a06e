"""The sentences of a report, shared by terminal, Markdown and HTML: what a reviewer can quote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privbench.record import Audit, Finding
from privbench.verdict import Verdict

ATTACK_NAMES: Mapping[str, str] = {
    "label/oracle-lr": "the oracle likelihood ratio",
    "label/spectral": "the spectral attack",
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

INTERVAL_NOTE = (
    "Intervals are two-sided 95% and marginal (Clopper-Pearson for guesses, DeLong for AUC); the decisions come from "
    "one-sided exact tests that share an error rate of .05 by Holm's method."
)


def number(value: float, digits: int = 3) -> str:
    """.551 rather than 0.551: proportions as tables print them."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def p_value(value: float) -> str:
    return "p < 1e-16" if value < 1e-16 else f"p = {value:.2g}"


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{number(low)}, {number(high)}]"


def gain(item: Mapping[str, Any]) -> str:
    """Paired gain over frozen random encoders, with its interval."""
    return f"{item['gain']:+.3f} [{item['gain_low']:+.3f}, {item['gain_high']:+.3f}]"


def attack_name(finding: Finding) -> str:
    return ATTACK_NAMES.get(finding.attack, f"the attack {finding.attack}")


def releases(finding: Finding, total: int) -> str:
    if finding.releases == 1:
        return "one release" if total > 1 else "the one release"
    return f"all {finding.releases} releases"


def over(audit: Audit) -> int:
    """T, the number of releases of a record in this run."""
    return max((finding.releases for finding in audit.findings), default=1)


def sentence(finding: Finding, audit: Audit) -> str:
    """One finding in words: value, interval, bound, verdict."""
    where = releases(finding, over(audit))
    if finding.value is None:
        return f"{_capital(attack_name(finding))}, {where}: {finding.verdict}. {_capital(finding.reason)}."
    measured = f"{number(finding.value)} {interval(finding.low, finding.high)}"
    read = f"{_capital(attack_name(finding))} reads {measured} of the label coins from {where}"
    if finding.bound is None:
        return f"{read}; {finding.reason}: {finding.verdict}."
    name, value = finding.bound["name"], finding.bound["value"]
    held = f"{read}; {name} allows {number(value)}: {finding.verdict} ({p_value(finding.bound['p_value'])})."
    if finding.verdict in (Verdict.INCONCLUSIVE, Verdict.VACUOUS, Verdict.FAILED):
        return f"{held} {_capital(finding.reason)}."
    return held


def confirmatory(audit: Audit) -> tuple[Finding, ...]:
    return tuple(finding for finding in audit.findings if finding.role == "confirmatory")


def descriptive(audit: Audit) -> tuple[Finding, ...]:
    return tuple(finding for finding in audit.findings if finding.role != "confirmatory")


def headline(audit: Audit) -> str:
    """The result in one sentence."""
    judged = confirmatory(audit)
    exceeded = [finding for finding in judged if finding.verdict == Verdict.EXCEEDED]
    failed = [finding for finding in audit.findings if finding.verdict == Verdict.FAILED]
    if exceeded:
        worst = max(exceeded, key=lambda finding: finding.value or 0.0)
        names = sorted({str(finding.bound["name"]) for finding in exceeded if finding.bound})
        allow = f"more than {' and '.join(names)} allow{'s' if len(names) == 1 else ''}"
        text = f"EXCEEDED: {worst.threat_model} reads {number(worst.value or 0.0)} of the label coins, {allow}."
        others = [finding for finding in exceeded if finding.threat_model != worst.threat_model]
        if others:
            best = max(others, key=lambda finding: finding.value or 0.0)
            text += f" Without the model, {best.threat_model} still reads {number(best.value or 0.0)}."
        return text
    if failed or audit.missing:
        return (
            f"INCOMPLETE: {len(failed)} checks failed and {len(audit.missing)} are missing; nothing may be concluded."
        )
    most = max((finding.value for finding in audit.findings if finding.value is not None), default=None)
    leak = f"up to {number(most)} of the label coins were read" if most is not None else "nothing was measured"
    if not judged:
        return f"UNCOVERED: {leak}, and no bound speaks about this mechanism."
    count = {verdict: sum(finding.verdict == verdict for finding in judged) for verdict in Verdict}
    if count[Verdict.WITHIN] == 0:
        return f"NOT JUDGED: {leak}; none of {len(judged)} checks could be decided ({_tally(count)})."
    return f"Nothing exceeded: {leak}; {_tally(count)} of {len(judged)} checks."


def _tally(count: Mapping[Verdict, int]) -> str:
    return ", ".join(f"{number_} {verdict}" for verdict, number_ in count.items() if number_)


def setting(audit: Audit) -> str:
    """What was run, in one line."""
    resolved: Mapping[str, Any] = audit.manifest["config"]["resolved"]
    noise = resolved.get("noise_multiplier")
    parts = [
        f"target {audit.findings[0].target}" if audit.findings else "target",
        f"data {resolved['data']}",
        f"{resolved.get('records', 0):,} training records",
        f"{over(audit)} releases of each",
        f"eps {resolved['eps']} ({resolved.get('eps_for')})" if resolved["eps"] is not None else "",
        f"noise multiplier {noise:.4g}" if noise is not None else "",
        f"seed {audit.manifest['seeds'][0]}",
    ]
    return ", ".join(part for part in parts if part)


def claim_note(audit: Audit) -> str | None:
    """Which adversary the nominal eps does not speak for."""
    nominal = [claim for claim in audit.claims if claim["for"] == "nominal"]
    if not nominal:
        return None
    site = next((item for item in audit.epsilons if item["name"] == "site"), None)
    tail = f"; for it this run is {site['value']:.3g} at the same delta" if site and site["value"] is not None else ""
    return (
        f"The nominal eps {nominal[0]['eps']:.3g} does not speak for a curious site: it counts noise once per batch "
        f"sum and amplification by sampling, while the site receives its records' gradients one by one, in every "
        f"epoch, and knows its batches{tail}."
    )


def epsilon_value(item: Mapping[str, Any]) -> str:
    return f"{item['value']:.3g}" if item["value"] is not None else f"none ({item['reason']})"


def utility_note(audit: Audit) -> str | None:
    """How much of the utility the sites' training is worth."""
    if not audit.utility:
        return None
    best = max(audit.utility, key=lambda item: float(item["gain"]))
    text = (
        "Frozen random encoders, which learn nothing, show what the server alone achieves: it trains on clean "
        f"gradients. Training the sites added at most {gain(best)} ({best['task']})"
    )
    if "ENCODERS_LEARNED_NOTHING" in {flag["name"] for flag in audit.flags}:
        text += ", which is not above 0: this utility is no evidence that training under this noise works"
    return f"{text}. Intervals are over test stays, not over repeated trainings."


def rho_note(audit: Audit) -> str | None:
    rho = audit.moves["rho"]
    if rho is None:
        return None
    quantiles = rho["quantiles"]
    text = (
        f"rho, the cosine between the tasks' moves, over {rho['records']} records: mean |rho| "
        f"{number(rho['mean_absolute'])} (upper limit {number(rho['upper'])}, used in g), mean {number(rho['mean'])}, "
        f"5% to 95% {number(quantiles['5%'])} to {number(quantiles['95%'])}"
    )
    if rho["label_association"] is not None:
        text += f"; the natural labels' own association is {number(rho['label_association'])} and is no substitute"
    return text + "."


def controls_note(finding: Finding) -> str:
    """Both controls of one finding."""
    positive, negative = finding.controls.get("positive"), finding.controls.get("negative")
    parts = []
    if positive:
        parts.append(f"noise-free {number(positive['value'])}{'' if positive['passed'] else ' (too weak)'}")
    if negative:
        parts.append(f"shuffled {number(negative['value'])}{'' if negative['passed'] else ' (broken)'}")
    return ", ".join(parts) or "none"


def assumptions(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Every assumption of the bounds shown, once, in order of appearance."""
    seen: dict[str, None] = {}
    for finding in findings:
        for item in (finding.bound or {}).get("assumptions", ()):
            seen.setdefault(item)
    return tuple(seen)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
