"""Embedding columns: exact sets of tokens in real rounds, the noise that hides them by a closed form, and answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tiny_rounds import VOCABULARY, Rounds, rounds

from privbench.attack import Hints, NotApplicable, Reconstruction, View, view_of
from privbench.attacks.inversion.embedding_columns import EmbeddingColumns
from privbench.attacks.inversion.forms import Form
from privbench.columns import touched
from privbench.recording import Transcript
from privbench.threat import curious_server, server_with_updates

ONE: dict[str, str] = {"batch": "1", "local_steps": "1", "rounds": "4"}
EIGHT: dict[str, str] = {"batch": "8", "local_steps": "1", "rounds": "4"}
SEVERAL: dict[str, str] = {"batch": "8", "local_steps": "3", "rounds": "3"}
ALL: dict[str, str] = {"batch": "32", "local_steps": "1", "rounds": "1"}


@pytest.mark.parametrize("settings", [ONE, EIGHT, SEVERAL, ALL], ids=["1", "8", "8 in three steps", "32"])
def test_the_first_update_shows_the_exact_set_of_tokens(settings: dict[str, str]) -> None:
    made = rounds(**settings)
    assert made.held(0).sum() > 70
    assert np.array_equal(touched(made.move(0), None), made.held(0))


@pytest.mark.parametrize("settings", [ONE, EIGHT], ids=["1", "8"])
def test_with_one_step_a_round_every_round_is_exact(settings: dict[str, str]) -> None:
    """Momentum moves every column that was touched before; its direction tells."""
    made = rounds(**settings)
    earlier = made.held(0)
    for number in range(1, 4):
        earlier = earlier | made.held(number)
        assert np.array_equal(touched(made.move(number), None), earlier)
        assert np.array_equal(touched(made.move(number), made.move(number - 1)), made.held(number))
    assert earlier.sum() > made.held(3).sum()


def test_with_several_steps_older_tokens_may_be_taken_for_new() -> None:
    """Never the other way round."""
    made = rounds(**SEVERAL)
    for number in (1, 2):
        found, held = touched(made.move(number), made.move(number - 1)), made.held(number)
        assert (found | held).sum() == found.sum()
        assert not (found & ~held & ~made.held(number - 1)).any()


# Noise, by a closed form. Of V columns of r numbers n have length c. Squared and over s^2, those without a token are
# chi-squared with r degrees of freedom, those with one besides have the non-centrality L = (c / s)^2. The n longest are
# those beyond t, where (V - n) P(chi^2_r > t) + n P(chi^2_r(L) > t) = n.


def expected_share(length: float, sigma: float, rank: int, count: int) -> float:
    """Of n tokens, how many are among the n longest of V columns."""
    excess = (length / sigma) ** 2
    low, high = 0.0, 1e3 + 2 * excess
    for _ in range(100):
        t = (low + high) / 2
        beyond = (VOCABULARY - count) * stats.chi2.sf(t, rank) + count * stats.ncx2.sf(t, rank, excess)
        low, high = (t, high) if beyond > count else (low, t)
    return float(stats.ncx2.sf(low, rank, excess))


def hiding_noise(length: float, rank: int, count: int, more: float) -> float:
    """The noise at which the n longest hold a share of `more` beyond chance n / V of the tokens. A non-central chi^2 is
    a mixture over Poisson: for small L it lies beyond t more often by L f(t), f the density of chi^2 of r + 2 degrees.
    """
    t = stats.chi2.isf(count / VOCABULARY, rank)
    return float(length * np.sqrt(stats.chi2.pdf(t, rank + 2) / more))


def share_found(made: Rounds, sigma: float, draws: int) -> float:
    rng, move, held = np.random.default_rng(0), made.move(0), made.held(0)
    found = []
    for _ in range(draws):
        squares = ((move + sigma * rng.standard_normal(move.shape)) ** 2).sum(axis=0)
        longest = np.argsort(-squares)[: held.sum()]
        found.append(held[longest].mean())
    return float(np.mean(found))


def length_of(made: Rounds) -> float:
    """Adam's first step moves every number that has a gradient by the rate: all columns by rate sqrt(r)."""
    lengths = np.linalg.norm(made.move(0), axis=0)[made.held(0)]
    assert lengths == pytest.approx(np.full(len(lengths), 4e-3 * 0.1 / 21 * np.sqrt(16)), rel=0.01)
    return float(lengths.mean())


@pytest.mark.parametrize("settings", [ONE, EIGHT, ALL], ids=["1", "8", "32"])
def test_noise_hides_tokens_where_the_closed_form_says(settings: dict[str, str]) -> None:
    """100 draws of noise: the share has a standard error of at most 1 / (2 sqrt(100 n)), and 4 of them are allowed.
    Chance is n / V; at the predicted noise .02 more are found, in which the first order in L is off by a third at most.
    """
    made = rounds(**settings)
    length, count = length_of(made), int(made.held(0).sum())
    error = 4 / (2 * np.sqrt(100 * count))
    shares = []
    for sigma in (length / 10, length / 4, length / 2, length):
        shares.append(share_found(made, sigma, 100))
        assert shares[-1] == pytest.approx(expected_share(length, sigma, 16, count), abs=error)
    assert shares[0] > 0.99
    assert shares == sorted(shares, reverse=True)
    hidden = hiding_noise(length, 16, count, 0.02)
    assert expected_share(length, hidden, 16, count) - count / VOCABULARY == pytest.approx(0.02, rel=1 / 3)
    assert abs(share_found(made, hidden, 100) - count / VOCABULARY - 0.02) < error
    assert share_found(made, 100 * hidden, 100) == pytest.approx(count / VOCABULARY, abs=error)


def test_the_attack_finds_columns_beyond_the_longest_of_noise() -> None:
    """One false column is expected; at a tenth of a column's length every token is found."""
    made = rounds(**ONE)
    sigma, rng = length_of(made) / 10, np.random.default_rng(0)
    false = []
    for _ in range(20):
        noisy = made.move(0) + sigma * rng.standard_normal((16, VOCABULARY))
        found = touched(noisy, made.move(0))
        assert (found | ~made.held(0)).all()
        false.append((found & ~made.held(0)).sum())
    assert np.mean(false) < 1 + 4 * np.sqrt(1 / 20)


# Answers


def by_hand(seed: int, respondents: int, shared: bool) -> tuple[Transcript, npt.NDArray[np.int64]]:
    """A form of three questions of three answers and the missing one, in one or two tokens, and the outcome's two.
    Where `shared`, the template lists the answers of the last two. One round of so many respondents; answers [N, Q].
    """
    rng = np.random.default_rng(seed)
    options = np.full((4, 4, 2), -1)
    options[:3, :3, 0] = np.arange(20, 29).reshape(3, 3)
    options[1, :3, 1] = [40, 41, 42]
    options[:3, 3, 0] = 50
    options[3, :2, 0] = [60, 61]
    listed = [*range(26, 29), 60, 61] if shared else []
    chosen = np.concatenate([rng.integers(0, 3, (respondents, 3)), rng.integers(0, 2, (respondents, 1))], axis=1)
    said = {int(token) for row in chosen for q, k in enumerate(row) for token in options[q, k] if token >= 0}
    move = np.zeros((4, 70), np.float32)
    columns = [1, 2, 3, *listed, *said]
    move[:, columns] = rng.standard_normal((4, len(columns)))
    arrays: dict[str, npt.NDArray[Any]] = {
        "updates/a": np.concatenate([move.ravel(), np.zeros(5)]).astype(np.float32)[None],
        "updates/a/mask": np.ones(1, np.uint8),
        "updates/a/shown": np.array([respondents]),
        "public/form/template": np.array([1, -1, 2, -1, 3, -1, *listed, -1]),
        "public/form/options": options,
    }
    return Transcript(arrays, {"parameters": [["x.lora_embedding_A.y", [4, 70]], ["bias", [5]]]}), chosen


def view(made: Transcript) -> View:
    records = np.arange(int(made.array("updates/a/shown").sum())) if "updates/a/shown" in made.arrays else np.arange(1)
    return view_of(server_with_updates(), made, secret="a", moved=(), candidates=records, hints=Hints.none())


def read(made: Transcript) -> npt.NDArray[np.int64]:
    """Options as the attack reads them [N, Q]."""
    found = EmbeddingColumns()(view(made), np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    options = made.array("public/form/options")
    slots = found.accumulated[-1].reshape(-1, *options.shape[::2])
    return (slots[:, :, None] == options[None]).all(axis=3).argmax(axis=2)


def test_of_one_respondent_every_answer_that_the_template_does_not_hold_is_read() -> None:
    """Of the others the first is said: as often right as one reply for everybody."""
    for seed in range(30):
        made, chosen = by_hand(seed, 1, shared=False)
        assert np.array_equal(read(made), chosen)
        made, chosen = by_hand(seed, 1, shared=True)
        assert np.array_equal(read(made)[:, :2], chosen[:, :2])
        assert not read(made)[:, 2:].any()


def test_of_many_respondents_one_reply_is_read() -> None:
    made, chosen = by_hand(0, 40, shared=False)
    found = read(made)
    assert (found == found[0]).all()
    assert abs((found[:, :3] == chosen[:, :3]).mean() - 1 / 3) < 4 * np.sqrt(2 / 9 / 120)


def test_a_missing_answer_is_the_last_that_is_thought_of() -> None:
    """Not where another answer is there. By Bayes' rule it is likelier than each of three answers of which the template
    tells nothing, where three questions may have it (.05 / (1 - .95^3) and .95 / 3); and less where fourteen may.
    """
    made, _ = by_hand(1, 1, shared=True)
    form, found = Form.of(view(made), 70), np.zeros(70, np.bool_)
    found[[20, 50]] = True
    said = form.answered(found, np.ones(70)).reshape(4, 2)
    assert said.tolist() == [[20, -1], [50, -1], [50, -1], [60, -1]]


def test_among_several_the_column_that_moved_furthest_counts() -> None:
    made, _ = by_hand(1, 1, shared=True)
    found, weight = np.zeros(70, np.bool_), np.ones(70)
    found[[20, 21, 22]], weight[21] = True, 2.0
    assert Form.of(view(made), 70).answered(found, weight)[0] == 21


@pytest.mark.parametrize(
    ("lost", "metadata", "why"),
    [
        ("updates/a/shown", None, "needs 'updates/a/shown', which was not recorded"),
        ("public/form/options", None, "needs 'public/form/options', which was not recorded"),
        (None, {}, "needs to know what the numbers of an update are ('parameters')"),
        (
            None,
            {"parameters": [["all", [285]]]},
            "no adapter of an embedding is among what the client trains (lora_embedding_A)",
        ),
    ],
)
def test_what_it_needs(lost: str | None, metadata: dict[str, Any] | None, why: str) -> None:
    made, _ = by_hand(0, 1, shared=False)
    arrays = {name: np.asarray(array) for name, array in made.arrays.items() if name != lost}
    told = {"parameters": made.metadata["parameters"]} if metadata is None else metadata
    assert EmbeddingColumns()(view(Transcript(arrays, told)), np.random.default_rng(0)) == NotApplicable(why)


def test_who_sees_no_updates_reads_none() -> None:
    made, _ = by_hand(0, 1, shared=False)
    seen = view_of(curious_server(), made, secret="a", moved=(), candidates=np.arange(1), hints=Hints.none())
    assert seen.parameters == ()
    refused = EmbeddingColumns()(seen, np.random.default_rng(0))
    assert refused == NotApplicable("needs the channel updates, which curious server does not see")
