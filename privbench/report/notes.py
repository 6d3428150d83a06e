"""The notes of a report: what stands between its tables and says how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privbench.record import Audit, Finding
from privbench.report import estimates, members
from privbench.report.setting import of_patients, records_called
from privbench.report.words import attack_name, confirmatory, most_read, number, over

SHARE_NOTE = (
    "Intervals of what was read are two-sided 95% over respondents, by Hoeffding's inequality: wide for rare answers, "
    "whatever the distribution. The template (survey, questions, scales) is public and is not counted."
)

_COIN_CURVES = (
    "Share of label coins guessed right by the number of releases seen, with 95% intervals; dotted blue: what the "
    "oracle's own moves predict. x = 1 is the first release alone, where a finding from one release counts all of "
    "them one by one (n above). A training run is many releases: a bound for one release says little about a run."
)
_TOKEN_CURVES = (
    "Share of the respondents' answer tokens that are read from each release by itself, with 95% intervals; a "
    "release is one pass of the training over these respondents, the first one at its start."
)

INTERVAL_NOTE = (
    "Intervals are two-sided 95% and marginal (Clopper-Pearson for guesses, and for AUC on an effective count); the "
    "decisions come from one-sided exact tests that share an error rate of .05 by Holm's method, less .005 for the "
    "limit of a measured rho."
)
AUC_NOTE = "Intervals are two-sided 95% (Clopper-Pearson on an effective count for AUC, exact for shares)."
FIT_NOTE = (
    "Intervals of R2 are two-sided 95% over records, by the influence of each on it; those of records found again are "
    "Clopper-Pearson's."
)


def interval_notes(audit: Audit) -> tuple[str, ...]:
    """How to read the intervals of this record."""
    notes = (
        (INTERVAL_NOTE, audit.secret is not None),
        (AUC_NOTE, audit.members is not None and audit.secret is None),
        (FIT_NOTE, audit.estimates is not None),
        (SHARE_NOTE, audit.inputs is not None),
    )
    return tuple(text for text, needed in notes if needed)


def no_epsilon(audit: Audit) -> str:
    """What the absence of every epsilon means."""
    said = [_at_the_cut(item) for item in audit.mechanisms if item["channel"] == "activations"]
    if said:
        return f"None over the whole run. {' '.join(said)}"
    if any(item["sigma"] for item in audit.mechanisms):
        return "None: this run adds noise, and nobody says what it promises."
    return "None: this run adds no noise, and nothing is promised."


def _at_the_cut(item: Mapping[str, Any]) -> str:
    """What is done to activations, in their own units, and what that promises of one release."""
    who, clip, eps = item["party"], item["clip"], item["eps"]
    if item["kind"] == "d-chi":
        return (
            f"{who} replaces every token before it is embedded: two tokens whose public rows are x apart are "
            f"{eps:.3g} x-indistinguishable in one release (d-privacy); releases add up."
        )
    clipped = "" if clip is None else f" is clipped to a norm of {clip:.3g}"
    sigma = next(iter(item["sigma"].values()), 0.0)
    if item["kind"] != "gaussian" or not sigma:
        return f"Each activation of {who}{clipped or ' leaves as it is'}; that promises nothing."
    noised = f"Each activation of {who}{clipped and f'{clipped} and'} has Gaussian noise of {sigma:.3g} on every number"
    if clip is None:
        return f"{noised}; without a clip that promises nothing."
    mu = 2 * clip / sigma
    return f"{noised}: in one release it is {mu:.3g}-GDP in what it was computed from; releases and activations add up."


def locality_note(audit: Audit) -> str | None:
    """What keeping the data at home does not do, where it was shown."""
    read = most_read(audit)
    if read is None or read.value is None or (read.low or 0.0) <= (read.baseline or 0.0):
        return None
    return (
        "Data locality is not privacy: the clients' data never left them, and what they sent instead says most of what "
        "they hold."
        if read.value > 0.5
        else "Data locality is not privacy: what the clients sent instead of their data says more than a guess does."
    )


def claim_note(audit: Audit) -> str | None:
    """Which adversary the nominal eps does not speak for."""
    nominal = [claim for claim in audit.claims if claim["for"] == "nominal"]
    if not nominal:
        return None
    site = next((item for item in audit.epsilons if item["name"] == "site"), None)
    tail = ""
    if site and site["value"] is not None:
        tail = f"; for it this run is {site['value']:.3g} at delta {site['delta']:g}, assuming that {site['assumes']}"
    return (
        f"The nominal eps {nominal[0]['eps']:.3g} does not speak for a curious site: it counts noise once per batch "
        f"sum and amplification by sampling, while the site receives its records' gradients one by one, in every "
        f"epoch, and knows its batches{tail}."
    )


def secret_notes(audit: Audit) -> Iterator[str]:
    """What the attacks were after, of which records."""
    if audit.secret is not None:
        yield _coin_note(audit, audit.secret)
    if audit.inputs is not None:
        yield (
            f"The answers of {audit.inputs['records']:,} respondents to up to {audit.inputs['questions']} questions "
            f"{_went(audit)}; an attack is scored on the answers alone, of every one of these respondents."
            f"{_drift_note(audit.inputs)}"
        )
    records = "stays" if of_patients(audit) else "records"
    for said in (members.note(audit, records), estimates.note(audit, records), _split_note(audit)):
        if said is not None:
            yield said


def _went(audit: Audit) -> str:
    """How answers left, by the channel of the attacks that read any."""
    read = {item.channel for item in audit.findings if item.metric == "answer-accuracy" and item.value is not None}
    return "were trained on in the updates that are shown" if read == {"updates"} else "went through the cut"


def _drift_note(inputs: Mapping[str, Any]) -> str:
    """How far training, and noise, had moved what was sent."""
    moved = inputs.get("drift", ())
    if not moved:
        return ""
    later = f" in the first release, {number(moved[-1])} in the last" if len(moved) > 1 else ""
    return f" What was sent lies {number(moved[0])} times a row's length from its tokens' public rows{later}."


def _split_note(audit: Audit) -> str | None:
    """Whether anybody who is asked about is known by right: of data that does not say whose a stay is, nobody knows."""
    if not of_patients(audit) or (audit.members is None and audit.estimates is None):
        return None
    data = str(audit.manifest["config"]["resolved"]["data"])
    if data == "synthetic":
        return "Split by patient: the stays asked about are of patients that no auxiliary set holds."
    return (
        "Split by stay: those asked about are of patients that no auxiliary set holds, as far as each stay is of a "
        f"patient of its own; {data} does not say."
    )


def _coin_note(audit: Audit, secret: Mapping[str, Any]) -> str:
    """What a coin is, and how many records carry one."""
    moved = " and ".join(secret["moved"])
    told = secret["canaries"] - secret["scored"]
    real, whom = ("diagnosis", "patient") if of_patients(audit) else ("real label", "record")
    return (
        f"{secret['canaries']:,} of the {secret['records']:,} {records_called(audit)} carry a coin: it sets every "
        f"label of {moved} at once, the worst case for one record. A coin is not a {real}: it is independent of the "
        f"{whom}, so that chance is exactly .5 and nothing but a leak tells it. The adversary knows which records "
        f"carry coins, and {told:,} of the coins (for the sign); the other {secret['scored']:,} are guessed and scored."
    )


def rho_note(audit: Audit) -> str | None:
    rho = audit.moves["rho"]
    if rho is None:
        taken = {
            f.bound["inputs"]["rho"] for f in audit.findings if f.bound and f.bound["inputs"].get("rho") is not None
        }
        if not taken:
            return None
        return (
            "rho was not measured (that takes the noise-free releases of each moved task alone): "
            f"{number(max(taken))} is used in g."
        )
    quantiles = rho["quantiles"]
    inputs = [finding.bound["inputs"] for finding in audit.findings if finding.bound]
    used = ", used in g" if any(item.get("rho") == rho["upper"] for item in inputs) else ""
    text = (
        f"rho, the cosine between the tasks' moves, over {rho['records']} records: mean |rho| "
        f"{number(rho['mean_absolute'])} (upper limit {number(rho['upper'])}{used}), mean {number(rho['mean'])}, "
        f"5% to 95% {number(quantiles['5%'])} to {number(quantiles['95%'])}"
    )
    if rho["label_association"] is not None:
        text += f"; the natural labels' own association is {number(rho['label_association'])} and is no substitute"
    return text + "."


def planning_note(audit: Audit) -> str | None:
    """How many scored canaries it takes to catch 1.2 times each bound's signal."""
    needed = {
        str(finding.bound["name"]): finding.bound["needed"]
        for finding in confirmatory(audit)
        if finding.bound and finding.bound["needed"] is not None
    }
    if not needed or audit.secret is None:
        return None
    listed = ", ".join(f"{name} {count:,}" for name, count in needed.items())
    return (
        f"Scored canaries for a probability of .9 that 1.2 times a bound's signal is EXCEEDED: {listed}; "
        f"{audit.secret['scored']:,} were scored."
    )


def one_release_note(audit: Audit) -> str | None:
    """What "one release" counts, which is not what the first point of the curves shows."""
    coins = [f for f in audit.findings if f.secret.startswith("canary/")]
    pooled = [f for f in coins if f.releases == 1 and f.n and f.canaries and f.n > f.canaries]
    if not pooled:
        return None
    first = pooled[0]
    return (
        f"One release: {attack_name(first)} is tried on each of a record's {over(audit)} releases by itself, and all "
        f"of them count ({first.n:,} guesses about {first.canaries:,} records); any other attack is tried on one "
        "release per record, drawn at random. The curves' first point is the first release alone."
    )


def figure_caption(audit: Audit) -> str:
    """What the curves over releases show: coins above, inputs below."""
    halves = ((_COIN_CURVES, audit.secret), (_TOKEN_CURVES, audit.inputs))
    return " Below: ".join(text for text, there in halves if there is not None)


def controls_note(finding: Finding) -> str:
    """Both controls of one finding."""
    positive, negative = finding.controls.get("positive"), finding.controls.get("negative")
    parts = []
    if positive:
        parts.append(f"noise-free {number(positive['value'])}{'' if positive['passed'] else ' (too weak)'}")
    if negative:
        what = "the records alone" if members.about_members(finding) else "shuffled"
        parts.append(f"{what} {number(negative['value'])}{'' if negative['passed'] else ' (broken)'}")
    return ", ".join(parts) or "none"
