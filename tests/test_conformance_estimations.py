"""The public checks of estimations: ours pass them, and each check catches its mutant."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import estimation_mutants
import numpy as np
import numpy.typing as npt
import pytest
import torch

from privbench.attack import NotApplicable, View
from privbench.attacks.inversion.sdar import SimulatorDecoder
from privbench.attacks.inversion.unsplit import UnSplit
from privbench.conformance import ACTIVE_CHECKS, ESTIMATION_CHECKS, ConformanceError, check_estimation, require
from privbench.conformance.client import OTHER, SITE, Client
from privbench.conformance.cuts import (
    INPUTS,
    KNOWN,
    LABELS,
    SENT,
    TASK,
    WEIGHT,
    WIDTH,
    drawn,
    estimation_stand,
)
from privbench.conformance.estimations import UNEVEN
from privbench.errors import InputError
from privbench.estimates import Estimation, Floats, Known, known_to
from privbench.parts import by_kind
from privbench.registry import default_registry
from privbench.target import ActiveAdversary
from privbench.threat import Behaviour, Channel, Knowledge

REGISTRY = default_registry()
ESTIMATIONS = by_kind(REGISTRY.names("attacks"), REGISTRY)[Estimation]
QUICK: Mapping[str, Callable[[], Estimation]] = {
    "inversion/sdar": lambda: SimulatorDecoder(rounds=30),
    "inversion/unsplit": lambda: UnSplit(rounds=10),
}
"""A part of a training shows all that these checks ask but "reads", which is expected to fail at any length."""
UNPAIRED = (
    "it knows no pair: of independent normal inputs a set of activations tells no more than which subspace they fill, "
    "and labels by fair coins do not say how they are turned in it"
)
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "inversion/fsha": {"reads": UNPAIRED},
    "inversion/sdar": {"reads": UNPAIRED},
    "inversion/unsplit": {"reads": UNPAIRED},
}


def test_the_checks_ran_on_what_is_registered() -> None:
    assert len(ESTIMATIONS) == 7
    assert {*QUICK, *EXPECTED} <= set(ESTIMATIONS)
    assert [check.name for check in ESTIMATION_CHECKS] == list(estimation_mutants.ESTIMATIONS)
    assert [check.name for check in ACTIVE_CHECKS] == list(estimation_mutants.ACTIVE)
    assert all(check.says for check in (*ESTIMATION_CHECKS, *ACTIVE_CHECKS))


@pytest.mark.parametrize("name", ESTIMATIONS)
def test_our_estimations_pass(name: str) -> None:
    require(check_estimation(QUICK.get(name, REGISTRY.get("attacks", name)), EXPECTED.get(name)))


@pytest.mark.parametrize("made", [estimation_mutants.LeastSquares, estimation_mutants.Pushing])
def test_what_the_mutants_are_made_of_passes(made: type[Estimation]) -> None:
    require(check_estimation(made))


@pytest.mark.parametrize("name", [*estimation_mutants.ESTIMATIONS, *estimation_mutants.ACTIVE])
def test_a_broken_estimation_is_caught_by_its_check_alone(name: str) -> None:
    """By what the check looks for: an exception on the way would not count."""
    broken = {**estimation_mutants.ESTIMATIONS, **estimation_mutants.ACTIVE}[name]
    check = next(item for item in (*ESTIMATION_CHECKS, *ACTIVE_CHECKS) if item.name == name)
    assert check.run(broken)
    assert [item.check for item in check_estimation(broken) if item.problem] == [name]


def test_checks_of_what_acts_are_run_on_that_alone() -> None:
    passive, active = map(check_estimation, (estimation_mutants.LeastSquares, estimation_mutants.Pushing))
    assert [item.check for item in passive] == [check.name for check in ESTIMATION_CHECKS]
    assert [item.check for item in active[len(passive) :]] == [check.name for check in ACTIVE_CHECKS]
    with pytest.raises(ConformanceError, match="acts in no run"):
        ACTIVE_CHECKS[0].run(estimation_mutants.LeastSquares)


class OnePenalty(estimation_mutants.LeastSquares):
    """Chooses one penalty for all inputs by the error in their own units, on every fourth of the known records."""

    def fitted(self, known: Known, inputs: Floats) -> Floats:
        held = np.arange(len(inputs)) % 4 == 0
        errors = []
        for penalty in (penalties := np.logspace(-1, 4, 11)):
            wrong = _shrunk(known.sent[~held], inputs[~held], known.sent[held], penalty) - inputs[held]
            errors.append((wrong**2).sum())
        return _shrunk(known.sent, inputs, known.asked, penalties[np.argmin(errors)])


def _shrunk(sent: Floats, inputs: Floats, asked: Floats, penalty: float) -> Floats:
    flat, low, mean = inputs.reshape(len(inputs), -1), sent.mean(axis=0), inputs.reshape(len(inputs), -1).mean(axis=0)
    gram = (sent - low).T @ (sent - low) + penalty * np.eye(sent.shape[1])
    slopes = np.linalg.solve(gram, (sent - low).T @ (flat - mean))
    found: Floats = ((asked - low) @ slopes + mean).reshape(len(asked), *inputs.shape[1:])
    return found


def test_a_penalty_that_the_largest_unit_chooses_is_caught() -> None:
    failed = [item.check for item in check_estimation(OnePenalty) if item.problem]
    assert failed == ["units"]


@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: torch.rand(1)], ids=["random", "numpy", "torch"]
)
def test_every_global_generator_is_watched(draw: Callable[[], object]) -> None:
    class Meddler(estimation_mutants.LeastSquares):
        def run(self, known: Known, rng: np.random.Generator) -> Floats:
            draw()
            return super().run(known, rng)

    assert [item.check for item in check_estimation(Meddler) if item.problem] == ["global generators"]


class Dividing(estimation_mutants.LeastSquares):
    """Divides by the spread of what is sent."""

    def run(self, known: Known, rng: np.random.Generator) -> Floats:
        with np.errstate(all="ignore"):
            return super().run(known, rng) / np.sign(known.sent.std(axis=0).max())


class Unguarded(Dividing):
    """Goes around the base class's own check."""

    def __call__(self, view: View, rng: np.random.Generator) -> Floats | NotApplicable:
        known = known_to(view)
        return known if isinstance(known, NotApplicable) else self.run(known, rng)


@pytest.mark.parametrize("broken", [Dividing, Unguarded])
def test_estimates_that_are_not_finite_are_caught_where_nothing_is_sent(broken: type[Estimation]) -> None:
    found = {item.check: item.problem for item in check_estimation(broken)}
    assert "not finite" in str(found["silent"])
    assert found["reads"] is None


class Cornered(estimation_mutants.Pushing):
    class By(estimation_mutants.Pusher):
        def send(self, *given: Any) -> npt.NDArray[Any]:
            return super().send(*given)[:, :1]


class Exploding(estimation_mutants.Pushing):
    class By(estimation_mutants.Pusher):
        def send(self, *given: Any) -> npt.NDArray[Any]:
            return super().send(*given) * np.float32(np.nan)


class Meddlesome(estimation_mutants.Pushing):
    class By(estimation_mutants.Pusher):
        def send(self, *given: Any) -> npt.NDArray[Any]:
            return super().send(*given) * np.float32(1.01)


class Restless(estimation_mutants.Pushing):
    class By(estimation_mutants.Pusher):
        def kept(self) -> Mapping[str, npt.NDArray[Any]]:
            return {"when": np.random.default_rng().random(3)}


class Tipped(estimation_mutants.Pushing):
    class By(estimation_mutants.Pusher):
        def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
            own["auxiliary/server/inputs/A"][0] += 1


class Undeclared(estimation_mutants.Pushing):
    card = replace(estimation_mutants.Pushing.card, behaviour=Behaviour.CURIOUS)


@pytest.mark.parametrize(
    ("broken", "check", "said"),
    [
        (Cornered, "acts in form", "sends float32 [64, 1] in place of float32 [64, 8]"),
        (Exploding, "acts in form", "not finite"),
        (Meddlesome, "acts on its channels", "replaces outputs of B"),
        (Meddlesome, "acts at one site", "replaces the gradients to site B"),
        (Restless, "acts alike", "keep different when"),
        (Tipped, "acts untouching", "auxiliary/server/inputs/A"),
        (Undeclared, "curious party", "its card says that its party is curious"),
    ],
    ids=lambda item: getattr(item, "__name__", None),
)
def test_other_faults_of_what_acts_are_named(broken: type[estimation_mutants.Pushing], check: str, said: str) -> None:
    found = next(item for item in ACTIVE_CHECKS if item.name == check).run(broken)
    assert found is not None
    assert said in found


class Encoded(estimation_mutants.LeastSquares):
    """Needs the encoder, says so on its card, and runs without."""

    card = replace(estimation_mutants.LeastSquares.card, knowledge=(Knowledge.MODEL,))


class Unasked(Encoded):
    """Does not ask whether its adversary holds the encoder, either."""

    def refusal(self, view: View) -> NotApplicable | None:
        knowing = replace(view.threat, knowledge=frozenset(Knowledge))
        return super().refusal(replace(view, threat=knowing))


def test_an_encoder_that_is_needed_and_not_there_is_asked_for() -> None:
    assert [item.check for item in check_estimation(Encoded) if item.problem] == ["absent records"]
    found = {item.check: str(item.problem) for item in check_estimation(Unasked) if item.problem}
    assert list(found) == ["absent channel", "absent records"]
    assert "without the model" in found["absent channel"]


def test_an_estimation_instead_of_its_class_is_refused() -> None:
    with pytest.raises(ConformanceError, match="pass the class"):
        check_estimation(estimation_mutants.Nameless())  # type: ignore[arg-type]


def test_an_estimation_that_needs_more_than_the_stand_shows_fails() -> None:
    class Demanding(estimation_mutants.LeastSquares):
        def lacks(self, view: object) -> str | None:
            return "needs a crystal ball"

    found = {item.check: item.problem for item in check_estimation(Demanding)}
    assert "needs a crystal ball" in str(found["reads"])


@pytest.mark.parametrize("noise", [0.2, 1.0])
@pytest.mark.parametrize("attack", [estimation_mutants.LeastSquares(), estimation_mutants.Pushing()])
def test_the_stand_tells_what_it_says(attack: Estimation, noise: float) -> None:
    """Least squares on A known records of d normal columns misses the best estimate's error by the factor below, in
    expectation; over 100 stands each R2 of three is within 4 standard errors (one false alarm in 5,000 runs). Where
    noise is on what enters, rounding fills the columns that are left.
    """
    found = []
    for seed in range(100):
        here = estimation_stand(seed, noise, gains=UNEVEN, attack=attack)
        estimate = attack(here.view(), np.random.default_rng(0))
        assert isinstance(estimate, np.ndarray)
        found.append(here.fit(estimate).r2)
    learned = (KNOWN + 1) * (KNOWN - 2) / (KNOWN * (KNOWN - WIDTH - 2))
    wanted = 1 - learned * noise**2 / (np.array(UNEVEN) ** 2 + noise**2)
    error = np.std(found, axis=0, ddof=1) / 10
    assert len(wanted) == INPUTS
    assert (np.abs(np.mean(found, axis=0) - wanted) <= 4 * error).all()


@pytest.mark.parametrize("attack", [None, estimation_mutants.Pushing()])
def test_the_recorded_encoder_makes_what_was_sent(attack: Estimation | None) -> None:
    here = estimation_stand(0, 0.0, gains=UNEVEN, attack=attack)
    made = here.inputs.reshape(len(here.inputs), -1) @ np.asarray(here.transcript.array(WEIGHT)).T
    assert np.asarray(here.transcript.array(SENT)[0]) == pytest.approx(made, abs=1e-5)


def test_labels_on_the_stand_say_nothing_of_the_inputs() -> None:
    """Of 60 correlations over 100 stands of 240 records, the mean square is 1 / 239, within 4 standard errors."""
    found = []
    for seed in range(100):
        here = estimation_stand(seed)
        columns = np.column_stack([here.transcript.array(LABELS), here.inputs.reshape(len(here.inputs), -1)])
        found.append(np.corrcoef(columns.T)[0, 1:])
    squares = np.square(found).ravel()
    assert squares.mean() == pytest.approx(1 / 239, abs=4 * squares.std() / len(squares) ** 0.5)


def test_a_silent_stand_sends_everybody_the_same() -> None:
    sent = estimation_stand(0, silent=True).transcript.array(SENT)
    assert (sent == sent[:, :1]).all()
    assert (sent != 0).any()


class Heard(ActiveAdversary):
    """Leaves everything as it is, and keeps what passed."""

    party = "server"

    def __init__(self) -> None:
        self.passed: list[tuple[str, Channel, str, npt.NDArray[np.int64], npt.NDArray[Any]]] = []

    def begin(self, own: Mapping[str, npt.NDArray[Any]]) -> None:
        self.own = own

    def receive(self, channel: Channel, name: str, records: npt.NDArray[np.int64], received: npt.NDArray[Any]) -> None:
        self.passed.append(("to", channel, name, records, received))

    def send(
        self, channel: Channel, name: str, records: npt.NDArray[np.int64], sent: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        self.passed.append(("from", channel, name, records, sent))
        return sent


def heard(client: Client, seed: int = 0) -> tuple[Heard, Mapping[str, npt.NDArray[Any]]]:
    adversary = Heard()
    return adversary, client.run(adversary, np.random.default_rng(seed))


@pytest.fixture
def client() -> Client:
    return drawn(0, 0.0).client(60)


def test_a_batch_passes_in_the_order_of_the_protocol(client: Client) -> None:
    """Labels, all activations, all gradients, of the same records; nobody trains on the server's own."""
    adversary, _ = heard(client)
    assert adversary.own is client.own
    once = [("to", Channel.LABELS, TASK), *(("to", Channel.ACTIVATIONS, site) for site in (SITE, OTHER))]
    once += [("from", Channel.GRADIENTS, site) for site in (SITE, OTHER)]
    assert [item[:3] for item in adversary.passed] == once * client.steps
    for start in range(0, len(adversary.passed), len(once)):
        batch = adversary.passed[start : start + len(once)]
        rows = batch[0][3]
        assert all(np.array_equal(item[3], rows) for item in batch)
        assert not np.isin(rows, client.own["auxiliary/index"]).any()
        assert (batch[0][4][:, 0] == client.labels[TASK][rows]).all()


def test_the_client_learns_as_torch_does(client: Client) -> None:
    """The last weight against Adam of torch, given what was received."""
    adversary, recorded = heard(client)
    passed = {kind: [item for item in adversary.passed if item[1:3] == (kind, SITE)] for kind in Channel}
    first = passed[Channel.ACTIVATIONS][0]
    start, *_ = np.linalg.lstsq(client.entering[first[3]], first[4].astype(np.float64))
    weight = torch.tensor(start.T, requires_grad=True)
    step = torch.optim.Adam([weight], lr=0.01)
    for _, _, _, rows, gradients in passed[Channel.GRADIENTS]:
        step.zero_grad()
        sent = torch.from_numpy(client.entering[rows]) @ weight.T
        torch.autograd.backward(sent, torch.from_numpy(gradients.astype(np.float64)) / len(rows))
        step.step()
    assert weight.detach().numpy() == pytest.approx(recorded[WEIGHT], abs=1e-4)
    assert np.abs(recorded[WEIGHT] - start.T).max() > 0.1


def test_an_honest_server_sends_gradients_of_a_logistic_loss(client: Client) -> None:
    """One task: each row is the head times what the answer was missed by, at both sites the same; so rows at both sites
    beside each other have rank 1, and its sign is that of the label.
    """
    adversary, _ = heard(client)
    labels, _, _, at_site, at_other = adversary.passed[:5]
    rows = np.concatenate([at_site[4], at_other[4]], axis=1)
    left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
    assert sizes[1] < 1e-5 * sizes[0]
    assert len({*zip(np.sign(left[:, 0]), labels[4][:, 0], strict=True)}) == 2
    missed = np.abs(rows[:, 0] / np.abs(rows[:, 0]).max())
    assert missed.min() < 0.9 * missed.max()


def test_an_honest_training_lowers_the_loss() -> None:
    """Labels that follow from the inputs are told better by what is sent at the end than by what was at first."""
    made = drawn(3, 0.0)
    told = made.inputs.reshape(len(made.inputs), -1)
    made = replace(made, labels=(told[:, 0] > 0).astype(np.int64))
    adversary, _ = heard(made.client(200))
    gradients = [np.abs(item[4]).mean() for item in adversary.passed if item[1] is Channel.GRADIENTS]
    assert np.mean(gradients[-20:]) < 0.6 * np.mean(gradients[:20])


def test_a_client_runs_without_labels_and_refuses_another_party(client: Client) -> None:
    adversary, recorded = heard(replace(client, labels={}))
    assert np.isfinite(recorded[SENT]).all()
    assert not any(np.any(item[4]) for item in adversary.passed if item[1] is Channel.GRADIENTS)
    adversary.party = "A"
    with pytest.raises(InputError, match="acts at 'A'"):
        client.run(adversary, np.random.default_rng(0))
