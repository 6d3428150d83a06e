"""What a split model answers, by likelihood and by generation, and how right that is beside simpler methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privbench.data.surveys.schema import Outcome
from privbench.stats import answers as metrics
from privbench.stats.answers import Undefined
from privbench.stats.auc import Interval
from privbench.stats.weighted import weighted
from privbench.target import Utility
from privbench.targets.split_llama.batches import collate
from privbench.targets.split_llama.halves import Client, Server
from privbench.targets.split_llama.scoring import generate, score
from privbench.targets.split_llama.tokens import Encoder

BATCH = 16
ALL_SURVEYS = "all surveys"
"""The task of utilities over several surveys."""


@dataclass(frozen=True)
class Answers:
    """One answer per respondent. chosen: the option of the largest likelihood, all of its tokens counted; generated:
    what the model says by itself, which need not be an option; empty where it was not asked to.
    """

    chosen: tuple[str, ...]
    generated: tuple[str, ...]


def answer(
    client: Client,
    server: Server,
    prompts: Sequence[Sequence[int]],
    options: Sequence[str],
    encoder: Encoder,
    report: Callable[[float], None] = lambda share: None,
    *,
    speaks: bool = True,
) -> Answers:
    """Answers of every prompt, in batches of similar length. speaks: generate as well, which takes longer."""
    coded = [encoder.answer(option) for option in options]
    limit = max(map(len, coded)) + 1
    chosen, generated = [""] * len(prompts), [""] * (len(prompts) if speaks else 0)
    done = 0
    for rows in _batches(prompts):
        batch = [prompts[i] for i in rows]
        best = score(client, server, collate(batch, [coded] * len(rows))).argmax(dim=1).tolist()
        for i, place in zip(rows, best, strict=True):
            chosen[i] = options[place]
        said = generate(client, server, batch, limit=limit, stop=encoder.end) if speaks else ()
        for i, tokens in zip(rows, said, strict=False):
            generated[i] = encoder.text(tokens)
        done += len(rows)
        report(done / len(prompts))
    return Answers(tuple(chosen), tuple(generated))


def likelihoods(
    client: Client,
    server: Server,
    prompts: Sequence[Sequence[int]],
    options: Sequence[str],
    encoder: Encoder,
    report: Callable[[float], None],
) -> npt.NDArray[np.float32]:
    """Log-likelihood [N, K] of each whole option after each prompt."""
    coded = [encoder.answer(option) for option in options]
    found, done = np.empty((len(prompts), len(coded)), np.float32), 0
    for rows in _batches(prompts):
        found[rows] = score(client, server, collate([prompts[i] for i in rows], [coded] * len(rows))).float().numpy()
        done += len(rows)
        report(done / len(prompts))
    return found


def _batches(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Numbers of prompts, in batches of similar length."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]


def utilities(
    outcome: Outcome,
    truth: Sequence[str],
    said: Answers,
    majority: Sequence[str],
    others: Mapping[str, Sequence[str]],
    rng: np.random.Generator,
) -> tuple[Utility, ...]:
    """Accuracy, macro F1, for ordinal outcomes quadratic kappa, and ANLS, each beside the most frequent answer and the
    other methods, on the same respondents.
    """
    measure = _Measure(truth, outcome, rng)
    named: list[tuple[str, str, Sequence[str]]] = [("accuracy", "", said.chosen), ("macro F1", "", said.chosen)]
    if outcome.ordinal:
        named.append(("quadratic kappa", "", said.chosen))
    named += [(name, ", generated", said.generated) for name in ("accuracy", "ANLS", "ANLS strict")]
    rows = []
    for name, how, ours in named:
        value = measure.value(name, ours)
        if value is None:
            continue
        more = measure.gain(name, ours, majority)
        beside = {other: found.value for other, theirs in others.items() if (found := measure.value(name, theirs))}
        rows.append(_row(outcome.name, name + how, value, more, beside))
    return tuple(rows)


def pooled(surveys: Sequence[Sequence[Utility]]) -> tuple[Utility, ...]:
    """Over the test respondents of all surveys: of each metric that all surveys have, and of every method that all
    have, the mean weighted by test respondents. A metric is computed within each survey, whose options it is about.
    """
    by_metric = [{item.metric: item for item in survey} for survey in surveys]
    found = []
    for metric in by_metric[0]:
        if not all(metric in survey for survey in by_metric):
            continue
        rows = [survey[metric] for survey in by_metric]
        value = weighted([Interval(item.value, item.low, item.high, item.n) for item in rows])
        more = weighted([Interval(item.gain, item.gain_low, item.gain_high, item.n) for item in rows])
        beside = {
            other: float(np.average([item.references[other] for item in rows], weights=[item.n for item in rows]))
            for other in rows[0].references
            if all(other in item.references for item in rows)
        }
        found.append(_row(ALL_SURVEYS, metric, value, more, beside))
    return tuple(found)


def _row(task: str, metric: str, value: Interval, gain: Interval, beside: Mapping[str, float]) -> Utility:
    """Beside the most frequent answer and other methods."""
    return Utility(
        task=task,
        metric=metric,
        value=value.value,
        low=value.low,
        high=value.high,
        n=value.n,
        split="test",
        baseline_name="most frequent answer",
        baseline=value.value - gain.value,
        baseline_other_seed=None,
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        references=beside,
    )


@dataclass(frozen=True)
class _Measure:
    """Every metric by name, on the same respondents."""

    truth: Sequence[str]
    outcome: Outcome
    rng: np.random.Generator

    def value(self, name: str, said: Sequence[str]) -> Interval | None:
        """None where the metric has no value: kappa when all truths and answers are one level."""
        truth, options, scale = self.truth, self.outcome.question.answers, self._scale
        if name == "accuracy":
            return metrics.accuracy(truth, said, options)
        if name == "macro F1":
            return metrics.macro_f1(truth, said, options, self.rng)
        if name == "quadratic kappa":
            kappa = metrics.quadratic_kappa(truth, said, options, self.rng)
            return None if isinstance(kappa, Undefined) else kappa
        both = metrics.anls(truth, said, scale, self.rng)
        return both.strict if name == "ANLS strict" else both.lenient

    def gain(self, name: str, said: Sequence[str], base: Sequence[str]) -> Interval:
        options = self._scale if name.startswith("ANLS") else self.outcome.question.answers
        return metrics.gain(name, self.truth, said, base, options, self.rng)

    @property
    def _scale(self) -> tuple[str, ...]:
        return self.outcome.question.answers if self.outcome.ordinal else ()
