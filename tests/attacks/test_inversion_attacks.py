"""Attacks on numbers without pairs or with the encoder: against known optima, and on inputs that are hard on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import skewed
import torch
from scipy import stats
from skewed import Skewed

from privbench.attack import Hints, NotApplicable, View, view_of
from privbench.attacks.inversion.codes import MOST, Codes, Judge, _borne_out, label_tensors
from privbench.attacks.inversion.fsha import FeatureSpaceHijacking
from privbench.attacks.inversion.hijacking import Hijacker
from privbench.attacks.inversion.networks import tensor_of
from privbench.attacks.inversion.optimise import Optimise
from privbench.attacks.inversion.sdar import SimulatorDecoder
from privbench.attacks.inversion.unsplit import UnSplit
from privbench.errors import InputError
from privbench.estimated import Fit, Measured
from privbench.estimates import Estimation, Floats, Known, known_to, ridge
from privbench.options import AuditOptions
from privbench.recording import Transcript
from privbench.registry import Registry
from privbench.runner import run_audit
from privbench.seeds import stream
from privbench.threat import Channel, Knowledge, malicious_server, server_with_encoder

FSHA, SDAR, UNSPLIT, OPTIMISE = FeatureSpaceHijacking(), SimulatorDecoder(rounds=200), UnSplit(), Optimise()
UNPAIRED: tuple[Estimation, ...] = (FSHA, SimulatorDecoder(rounds=10), UnSplit(rounds=3))
ALL: tuple[Estimation, ...] = (*UNPAIRED, OPTIMISE)


def name_of(item: object) -> str | None:
    return item.card.name if isinstance(item, Estimation) else None


def estimated(attack: Estimation, view: View, seed: int = 0) -> Floats:
    found = attack(view, np.random.default_rng(seed))
    assert isinstance(found, np.ndarray), found
    return found


def baselines(here: Skewed) -> dict[str, Fit]:
    """What takes no cut: the known records' mean, and a regression on the labels."""
    known = known_to(here.view)
    assert isinstance(known, Known)
    prior = np.broadcast_to(known.inputs.mean(axis=0), (len(known.asked), *known.inputs.shape[1:]))
    labels = ridge(known.labels, known.inputs, known.observed, known.asked_labels)
    return {"prior": here.fit(prior), "labels": here.fit(labels)}


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.0), *((seed, 0.3) for seed in range(5))])
@pytest.mark.parametrize("attack", [FSHA, SDAR], ids=name_of)
def test_attacks_without_pairs_read_a_cut_that_is_identified(attack: Estimation, seed: int, noise: float) -> None:
    """In each of five seeds the mean R2 is above the prior's and that of the labels alone (.5), and not above the
    optimum by 4 standard errors of its own (one false alarm in 30,000). Without noise the optimum is 1 and they reach
    .97 to .99, with noise it is .92 and they reach .86 to .89.
    """
    here = skewed.skewed(seed, noise, attack)
    found, best = here.fit(estimated(attack, here.view, seed)), skewed.optimum(noise)
    others = {name: fit.mean for name, fit in baselines(here).items()}
    said = f"R2 {found.mean:.3f} +- {found.error:.3f} of {best:.3f}; without the cut {others}"
    assert found.interval()[0] > max(0.0, *others.values()), said
    assert found.mean - 4 * found.error <= best, said


def test_the_optimum_is_the_closed_form_of_a_normal_input() -> None:
    """Labels that say nothing leave 1 / (1 + s^2); without a look at the cut a threshold's label explains 2 / pi."""
    for noise in (0.3, 1.0):
        assert skewed.best(stats.norm.pdf, noise, doubt=1e6) == pytest.approx(1 / (1 + noise**2), abs=1e-6)
    assert skewed.best(stats.norm.pdf, 1e3, doubt=1e-3) == pytest.approx(2 / np.pi, abs=1e-3)


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_optimum_is_reached_by_posterior_means_and_by_nothing_else(noise: float) -> None:
    """Sums over draws of the inputs in place of quadrature: within 4 standard errors of 2,000 records (one false alarm
    in 15,000). Ridge regression on the readings and labels, the best linear estimate, stays below.
    """
    rng = np.random.default_rng(0)
    x, drawn = skewed.inputs(rng, 2_000), skewed.inputs(rng, 10_000)
    told, read = skewed.labels(rng, x), x[:, 0] + noise * rng.standard_normal((2_000, 3))
    estimate = np.empty_like(x)
    for k in range(3):
        above = stats.norm.cdf(drawn[:, 0, k] / skewed.SPREAD[k] / skewed.DOUBT)
        for rows in np.array_split(np.arange(2_000), 10):
            weight = stats.norm.pdf(read[rows, k, None], drawn[:, 0, k], noise)
            weight *= np.where(told[rows, k, None] == 1, above, 1 - above)
            estimate[rows, 0, k] = weight @ drawn[:, 0, k] / weight.sum(axis=1)
    truth = Measured(x, np.ones(x.shape, np.bool_))
    found = truth.fit(estimate)
    assert found.mean == pytest.approx(skewed.optimum(noise), abs=4 * found.error)
    both = np.column_stack([read, told])
    linear = truth.fit(ridge(both, x, np.ones(x.shape, np.bool_), both))
    assert linear.interval()[1] < skewed.optimum(noise)


def gaussian(registry: Registry, seed: int, noise: str) -> tuple[View, Measured]:
    """A recorded linear cut of 12 normal inputs, and what goes into it of the 2,000 records that nobody told."""
    settings = {"records": "4000", "width": "24", "inputs": "12", "releases": "1", "cut_noise": noise}
    target = registry.get("targets", "gaussian")()
    options = AuditOptions("gaussian", sigma=4.0, seed=seed, settings=settings)
    run = target.run(target.configure(options, registry), stream(seed, "run"))
    rows = np.setdiff1d(np.arange(4_000), np.asarray(run.transcript.array("auxiliary/index")))
    threat = server_with_encoder()
    view = view_of(threat, run.transcript, secret="A", moved=(), candidates=rows, hints=Hints.none())
    values = run.secrets.array("inputs/A")[rows].astype(np.float64)
    return view, Measured(values, np.ones(values.shape, np.bool_))


@pytest.mark.parametrize("noise", ["0.25", "0.5", "1", "2"])
def test_who_holds_the_encoder_reaches_the_closed_form(registry: Registry, noise: str) -> None:
    """R2 = 1 / (1 + s^2) of the best estimate, within .01. The mean over three seeds has a standard error of 2 (1 - R2)
    (R2 / n)^.5, n = 72,000 inputs: at most .003, so that .01 is 3.5 of them or more (one false alarm in 2,000).
    """
    found = []
    for seed in range(3):
        view, truth = gaussian(registry, seed, noise)
        found.append(truth.fit(estimated(OPTIMISE, view)).mean)
    assert np.mean(found) == pytest.approx(1 / (1 + float(noise) ** 2), abs=0.01)


def test_an_audit_asks_the_costly_about_part_of_the_records(registry: Registry) -> None:
    """256 and 64 of 2,000; the search with a prior is within 4 standard errors of 1 / (1 + s^2)."""
    settings = {"records": "4000", "width": "24", "inputs": "12", "releases": "1", "cut_noise": "0.5"}
    attacks = ("inversion/optimise", "inversion/unsplit")
    audit = run_audit(AuditOptions("gaussian", attacks=attacks, sigma=4.0, settings=settings), registry).audit
    found = {item.attack: item for item in audit.findings if item.metric == "r2"}
    assert [found[name].n for name in attacks] == [256, 64]
    searched = found["inversion/optimise"]
    assert searched.value is not None
    assert searched.low is not None
    assert searched.value == pytest.approx(0.8, abs=4 / 1.96 * (searched.value - searched.low))


@pytest.mark.parametrize("noise", ["0.25", "1"])
def test_a_clone_cannot_tell_how_normal_inputs_are_turned(registry: Registry, noise: str) -> None:
    """Independent normal inputs look the same turned in any way: what a clone finds is no better than their mean."""
    view, truth = gaussian(registry, 0, noise)
    assert truth.fit(estimated(UNSPLIT, view)).interval()[1] < 0


@pytest.mark.parametrize("attack", UNPAIRED, ids=name_of)
def test_what_the_known_were_sent_as_is_not_used(attack: Estimation) -> None:
    """They know no pair: other activations of the known records leave every estimate as it is."""
    known = known_to(hourly(attack, 2))
    assert isinstance(known, Known)
    first, second = (
        attack.run(item, np.random.default_rng(0)) for item in (known, replace(known, sent=-1e3 * known.sent))
    )
    assert (first == second).all()


def hourly(attack: Estimation, hours: int, known: int = 60, **edits: Any) -> View:
    """200 records of 2 features over some hours at a recorded linear cut, as seen by whoever may do all."""
    rng = np.random.default_rng(hours)
    x, weight = rng.standard_normal((200, hours, 2)), rng.standard_normal((6, hours * 2))
    arrays: dict[str, npt.NDArray[Any] | None] = {
        "activations/A": (x.reshape(200, -1) @ weight.T)[None].astype(np.float32),
        "auxiliary/index": np.arange(known),
        "auxiliary/server/inputs/A": x[:known].astype(np.float32),
        "outputs/outcome/labels": (x[:, 0, :1] > 0).astype(np.int64),
        "model/A/weight": weight.astype(np.float32),
        "adversary/steered": np.ones(1, np.float32),
        **edits,
    }
    threat = replace(malicious_server(), knowledge=frozenset(Knowledge), channels=frozenset(Channel))
    held = Transcript({name: values for name, values in arrays.items() if values is not None})
    return view_of(threat, held, secret="A", moved=(), candidates=np.arange(known, 200), hints=Hints.none())


@pytest.mark.parametrize("hours", [1, 3])
@pytest.mark.parametrize("attack", ALL, ids=name_of)
def test_one_hour_or_several(attack: Estimation, hours: int) -> None:
    assert estimated(attack, hourly(attack, hours)).shape == (140, hours, 2)


def constant(hours: int = 2) -> npt.NDArray[np.float32]:
    """Inputs of the known of which one feature is the same for all, or both."""
    told = np.random.default_rng(3).standard_normal((60, hours, 2)).astype(np.float32)
    told[:, :, 1] = 7.0
    return told


HARD: Mapping[str, Callable[[], dict[str, npt.NDArray[Any] | None]]] = {
    "one feature is constant": lambda: {"auxiliary/server/inputs/A": constant()},
    "both features are constant": lambda: {"auxiliary/server/inputs/A": np.full((60, 2, 2), 7, np.float32)},
    "a feature was never measured": lambda: {
        "auxiliary/server/inputs/A/observed": np.tile(np.array([1, 0], np.uint8), (60, 2, 1))
    },
    "no labels": lambda: {"outputs/outcome/labels": None},
    "one label": lambda: {"outputs/outcome/labels": np.ones((200, 1), np.int64)},
    "everybody sends the same": lambda: {"activations/A": np.full((1, 200, 6), 0.25, np.float32)},
}


@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("attack", ALL, ids=name_of)
def test_estimates_are_finite_where_inputs_are_hard(attack: Estimation, hard: str) -> None:
    found = estimated(attack, hourly(attack, 2, **HARD[hard]()))
    if "constant" in hard:
        assert found[:, :, 1] == pytest.approx(7.0, abs=1e-5)


@pytest.mark.parametrize("attack", ALL, ids=name_of)
def test_one_known_record_too_few_is_refused(attack: Estimation) -> None:
    assert isinstance(attack(hourly(attack, 2, known=20), np.random.default_rng(0)), np.ndarray)
    refused = attack(hourly(attack, 2, known=19), np.random.default_rng(0))
    assert isinstance(refused, NotApplicable)
    assert "19 are recorded" in refused.reason


@pytest.mark.parametrize("attack", ALL, ids=name_of)
def test_who_is_known_is_never_estimated(attack: Estimation) -> None:
    view = hourly(attack, 2)
    with pytest.raises(InputError, match="names records that are to be estimated"):
        attack(replace(view, candidates=np.arange(59, 200)), np.random.default_rng(0))


def test_an_encoder_that_does_not_fit_is_refused_by_name() -> None:
    for weight in (np.ones((6, 5), np.float32), np.ones((5, 4), np.float32)):
        with pytest.raises(InputError, match="model/SITE/weight has shape"):
            OPTIMISE(hourly(OPTIMISE, 2, **{"model/A/weight": weight}), np.random.default_rng(0))
    without = OPTIMISE(hourly(OPTIMISE, 2, **{"model/A/weight": None}), np.random.default_rng(0))
    assert isinstance(without, NotApplicable)
    assert "needs 'model/A/...'" in without.reason


def test_all_components_give_inputs_back() -> None:
    """As many components as inputs lose nothing, in the inputs' units; no more than MOST are ever taken."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((50, 2, 2)) * [3, 0.1] + [100, -1]
    seen = np.ones(inputs.shape, np.bool_)
    codes = Codes.of(inputs, seen, 8)
    known = Known(inputs, inputs, seen, inputs, np.empty((50, 0)), np.empty((50, 0)), {}, {})
    made = codes.encode(inputs, seen)
    assert codes.decode(made, made, known) == pytest.approx(inputs)
    assert made.std(axis=0).max() == pytest.approx(0.3)
    assert np.abs(np.corrcoef(made.T) - np.eye(4)).max() < 1e-9
    assert len(Codes.of(inputs, seen, 3).axes) == 3
    wide = rng.standard_normal((50, 4, 5))
    assert len(Codes.of(wide, np.ones(wide.shape, np.bool_), 90).axes) == MOST


def matched(say: Callable[[Floats], Floats], turn: tuple[float, float] = (1.0, 1.0)) -> tuple[Fit, Floats]:
    """Inputs of 500 others as decoded where each of their codes was found, but for its sign. say: labels of inputs."""
    drawn = np.random.default_rng(0).standard_normal((1_000, 2))
    inputs, labels = (drawn * [4, 1] + [50, -3])[:, None, :], say(drawn)
    seen, sent = np.ones((500, 1, 2), np.bool_), np.empty((500, 4))
    known = Known(sent, inputs[:500], seen, sent, labels[:500], labels[500:], {}, {})
    codes = Codes.of(known.inputs, seen, 4)
    found = codes.decode(codes.encode(inputs[500:], seen) * turn, codes.encode(known.inputs, seen), known)
    return Measured(inputs[500:], seen).fit(found), found


@pytest.mark.parametrize("turn", [(1, 1), (-1, 1), (-1, -1)])
def test_labels_turn_a_mirrored_component_back(turn: tuple[float, float]) -> None:
    """Whether either input is above its mean: a component is believed about as far as it was found, with its sign."""
    assert matched(lambda x: (x > 0).astype(np.float64), turn)[0].mean > 0.97


def test_without_labels_a_component_is_taken_as_it_was_found() -> None:
    """Mirrored, R2 is 1 - 4."""
    for turn, r2 in ((1.0, 1.0), (-1.0, -3.0)):
        assert matched(lambda x: np.empty((len(x), 0)), (turn, turn))[0].mean == pytest.approx(r2, abs=0.2)


def test_where_labels_say_nothing_nothing_is_said() -> None:
    """One label for all: every estimate is the known records' mean."""
    fit, found = matched(lambda x: np.ones((len(x), 1)))
    assert np.ptp(found, axis=0) == pytest.approx(0.0, abs=1e-9)
    assert fit.mean == pytest.approx(0.0, abs=0.02)


def believed(columns: int, told: float, trials: int) -> int:
    """Of six components, each found exactly, how many are believed in so many draws of 60 known records and 60 others.

    told: how far the first label is turned from noise towards the first component.
    """
    seen, sent = np.ones((60, 1, 6), np.bool_), np.empty((60, 6))
    count = 0
    for seed in range(trials):
        rng = np.random.default_rng((seed, columns))
        codes, labels = rng.standard_normal((120, 6)), rng.standard_normal((120, columns))
        labels[:, 0] += told * codes[:, 0]
        known = Known(sent, codes[:60, None], seen, sent, 1.0 * (labels[:60] > 0), 1.0 * (labels[60:] > 0), {}, {})
        count += np.count_nonzero(_borne_out(codes[60:], codes[:60], known))
    return count


@pytest.mark.parametrize("columns", [1, 2, 12])
def test_labels_that_say_nothing_bear_almost_nothing_out(columns: int) -> None:
    """One component of a thousand: of 1,800 five or more are believed once in 27, more than nine once in 50,000."""
    assert believed(columns, 0.0, 300) <= 9


@pytest.mark.parametrize("columns", [1, 2, 12])
def test_labels_that_say_something_bear_out_what_they_say(columns: int) -> None:
    """Of 100 first components nearly all, and of the 500 others hardly any."""
    assert 95 <= believed(columns, 3.0, 100) <= 105


def test_no_more_known_records_than_labels_bear_nothing_out() -> None:
    """A regression without a degree of freedom explains everything."""
    codes, labels = np.random.default_rng(0).standard_normal((30, 2)), np.eye(30)
    known = Known(codes, codes[:, None], np.ones((30, 1, 2), np.bool_), codes, labels, labels, {}, {})
    assert not _borne_out(codes, codes, known).any()


def test_a_judge_tells_two_sets_apart_and_pulls_one_towards_the_other() -> None:
    """Two normal sets two spreads apart: what is true is less unlike the true ones than what is not, and a step against
    the slope brings what is not nearer. Where both are one set it tells nothing.
    """
    rng, before = np.random.default_rng(0), torch.get_rng_state()
    true, shown = (tensor_of(0.3 * rng.standard_normal((400, 2)) + at) for at in (0.0, 0.6))
    none = torch.empty(400, 0)
    judge = Judge(true, none, rng)
    judge.learn(shown, none, 150)
    moving = shown.clone().requires_grad_()
    unlike = judge.unlike(moving, none)
    (slope,) = torch.autograd.grad(unlike.sum(), moving)
    with torch.inference_mode():
        assert judge.unlike(true, none).mean() < 0.7 * unlike.mean()
    assert (slope.mean(dim=0) > 0).all()
    same = Judge(true, none, rng)
    same.learn(true, none, 150)
    with torch.inference_mode():
        assert same.unlike(true, none).mean() == pytest.approx(np.log(2), abs=0.05)
    assert torch.equal(torch.get_rng_state(), before)


def test_labels_are_scaled_by_ones_own() -> None:
    own, others = np.array([[0.0, 3, 5], [2, 3, 6]]), np.array([[1.0, 4, 7]])
    ours, theirs = label_tensors(own, others)
    assert ours.tolist() == [[0, 0], [1, 1]]
    assert theirs.tolist() == [[0.5, 2]]
    assert [part.shape for part in label_tensors(np.empty((4, 0)), np.empty((2, 0)))] == [(4, 0), (2, 0)]


def hijacked(own: Mapping[str, npt.NDArray[Any]], site: str | None = None, labelled: bool = True) -> Hijacker:
    """After one batch of sites A and B."""
    adversary = Hijacker(site, np.random.default_rng(0))
    adversary.begin(own)
    rows, rng = np.arange(8), np.random.default_rng(1)
    labels = rng.integers(0, 2, (8, 1)).astype(np.float32)
    if labelled:
        adversary.receive(Channel.LABELS, "outcome", rows, labels)
    for name in "AB":
        adversary.receive(Channel.ACTIVATIONS, name, rows, rng.standard_normal((8, 5)).astype(np.float32))
    return adversary


def told(*sites: str) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(2)
    own = {f"auxiliary/server/inputs/{site}": rng.standard_normal((30, 2, 3)).astype(np.float32) for site in sites}
    return own | {"auxiliary/server/labels/outcome": rng.integers(0, 2, 30), "auxiliary/index": np.arange(30)}


@pytest.mark.parametrize(("site", "sites", "steered"), [(None, "BA", "A"), (None, "B", "B"), ("B", "AB", "B")])
def test_one_site_is_hijacked(site: str | None, sites: str, steered: str) -> None:
    adversary, honest = hijacked(told(*sites), site), np.full((8, 5), 0.5, np.float32)
    sent = {name: adversary.send(Channel.GRADIENTS, name, np.arange(8), honest) for name in "AB"}
    assert [name for name, given in sent.items() if given is not honest] == [steered]
    assert sent[steered].dtype == honest.dtype
    assert not np.array_equal(sent[steered], honest)
    assert adversary.kept()["steered"] == 1


@pytest.mark.parametrize("site", [None, "C"])
def test_a_server_without_inputs_of_the_site_is_refused(site: str | None) -> None:
    own = told("A") if site else told()
    with pytest.raises(InputError, match="auxiliary/server/inputs"):
        Hijacker(site, np.random.default_rng(0)).begin(own)


def test_labels_that_one_side_lacks_are_left_out() -> None:
    """Without the server's own, or those of a batch, the judge sees none; nothing fails."""
    honest = np.zeros((8, 5), np.float32)
    without = {name: values for name, values in told("A").items() if "labels" not in name}
    ends = [hijacked(own, labelled=shown) for own, shown in ((without, True), (without, False), (told("A"), False))]
    sent = [adversary.send(Channel.GRADIENTS, "A", np.arange(8), honest) for adversary in ends]
    assert np.isfinite(sent).all()
    assert (sent[0] == sent[1]).all()
    assert (sent[0] == sent[2]).all()
    both = hijacked(told("A")).send(Channel.GRADIENTS, "A", np.arange(8), honest)
    assert (both != sent[0]).any()


def test_who_has_not_steered_says_so() -> None:
    adversary = Hijacker("A", np.random.default_rng(0))
    adversary.begin(told("A"))
    assert adversary.kept()["steered"] == 0
    honest = np.zeros((8, 5), np.float32)
    assert adversary.send(Channel.GRADIENTS, "A", np.arange(8), honest) is honest
