"""Cut match: look for a record among all that the server received, activation by activation.

Who holds a questionnaire can make of it what a client's half does, or nearly: the public base is where training began.
No loss is needed, and no coin. Clients send nothing but what they train on, so that a match is membership itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from privbench.attack import AttackCard, Scores, View
from privbench.membership import MembershipAttack
from privbench.tensors import Blocks
from privbench.threat import Channel, Knowledge

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_NEEDED = ("received/activations", "received/mask", "asked/activations", "asked/mask")
_POSITIONS = 16
"""Tokens of every sequence that are read at once: whole recordings would take gigabytes."""
_STEPS = 20
"""Of EM, which starts where all that was received is noise, and cools."""
_LEAST = 1e-6
"""Least variance of errors and least squared scale, as shares of what was received: what float32 products resolve."""
_RAREST = 1e-3
"""Least share of strangers, and of asked records, among the received."""
_SMALL = -30.0
"""Log odds below which log(1 + exp(x)) is exp(x) in doubles, and a chance of that logarithm is its own odds."""
_NEVER = -1e30
"""Log odds of a record of whose length nothing came."""


@dataclass(frozen=True)
class CutMatch(MembershipAttack):
    """Score: the posterior log odds that some received sequence is this record.

    A received sequence is one of the asked records of its length, each as likely, times a scale, or a stranger's; with
    normal errors of one variance. Both sides are centred by what is usual at a position, apart for what was received
    and for what the base makes, so that a shift of the release and noise that all sequences share cancel. Scale,
    variance and the share of strangers are fitted to what was received, without any label.
    """

    card = AttackCard(
        name="membership/cut-match",
        summary="odds that one of the activation sequences that were received is this record, and no other's",
        paper="after Narayanan, Shmatikov 2008; EM: Dempster, Laird, Rubin 1977",
        deviates="a posterior under normal errors of activations in place of a score of shared attributes with a "
        "threshold on its margin",
        channels=(Channel.ACTIVATIONS,),
        knowledge=(Knowledge.BASE, Knowledge.CANDIDATES),
        cost="O(N (N + M) L d): seconds for thousands of questionnaires of a tiny model",
    )

    def lacks(self, view: View) -> str | None:
        missing = [name for name in _NEEDED if name not in view.arrays]
        if missing:
            return f"needs '{missing[0]}', which was not recorded"
        asked = len(view.arrays["asked/mask"])
        return None if asked > 1 else f"needs two records to compare, and {asked} is recorded"

    def run(self, view: View, rng: np.random.Generator) -> Scores:
        pairs = _compared(*(view.array(name) for name in _NEEDED))
        found: Scores = _odds(_joint(pairs, _fitted(pairs)))[view.candidates]
        return found


@dataclass(frozen=True)
class _Pairs:
    """N asked records beside M received sequences, centred.

    product [N, M]: inner products; same bool [N, M]: of one length; gram [N, N]: inner products of asked records;
    energy [M]: squared norms of the received; numbers [M]: how many numbers these hold.
    """

    product: Doubles
    same: Mask
    gram: Doubles
    energy: Doubles
    numbers: Doubles

    @property
    def norms(self) -> Doubles:
        """Squared, of asked records [N, 1]."""
        found: Doubles = self.gram.diagonal()[:, None]
        return found

    @property
    def rivals(self) -> Doubles:
        """Asked records of each received sequence's length [M]; 1 where there is none."""
        found: Doubles = np.maximum(self.same.sum(axis=0), 1).astype(np.float64)
        return found

    @property
    def usual(self) -> Doubles:
        """Mean squared norm of these [M]."""
        found: Doubles = (self.same * self.norms).sum(axis=0) / self.rivals
        return found


@dataclass(frozen=True)
class _Fit:
    """Of a received sequence: the scale of its record, the variance of an error, the chance that it is a stranger's."""

    scale: float
    variance: float
    strangers: float


def _compared(received: Blocks, received_mask: Blocks, asked: Blocks, asked_mask: Blocks) -> _Pairs:
    sides = ((asked, np.asarray(asked_mask) == 1), (received, np.asarray(received_mask) == 1))
    product = np.zeros((len(asked), len(received)), np.float32)
    gram = np.zeros((len(asked), len(asked)), np.float32)
    energy = np.zeros(len(received))
    shared = min(asked.shape[1], received.shape[1])
    for start in range(0, shared, _POSITIONS):
        part = slice(start, min(start + _POSITIONS, shared))
        ours, theirs = (_centred(np.asarray(array[:, part], np.float32), mask[:, part]) for array, mask in sides)
        product += ours @ theirs.T
        gram += ours @ ours.T
        energy += (theirs**2).sum(axis=1)
    lengths = [mask.sum(axis=1) for _, mask in sides]
    return _Pairs(
        product.astype(np.float64),
        lengths[0][:, None] == lengths[1],
        gram.astype(np.float64),
        energy,
        np.maximum(lengths[1], 1).astype(np.float64) * asked.shape[2],
    )


def _fitted(pairs: _Pairs) -> _Fit:
    """By EM but for the scale, which under much noise would fit the noise, and be far too large."""
    scale, mean = _scale(pairs), float(pairs.energy.sum() / pairs.numbers.sum())
    least = max(_LEAST * mean, float(np.finfo(np.float32).tiny))
    errors = pairs.energy - 2 * scale * pairs.product + scale**2 * pairs.norms
    fit = _Fit(scale, max(mean, least), 0.5)
    for _ in range(_STEPS):
        joint = _joint(pairs, fit)
        share = np.exp(joint[:-1] - logsumexp(joint, axis=0))
        known = max(float((share * pairs.numbers).sum()), 1.0)
        strangers = float(np.clip(1 - share.sum() / len(pairs.energy), _RAREST, 1 - _RAREST))
        fit = _Fit(scale, max(float((share * errors).sum()) / known, least), strangers)
    return fit


def _scale(pairs: _Pairs) -> float:
    """By moments, as if no stranger had sent: two sums over pairs of one length, of squared norms of what was received
    and of its squared inner products with asked records, whose expectations are linear in the squared scale and in the
    variance of errors. With strangers it errs below the truth, where odds are too near 0 and ranks hardly change.
    """
    known = pairs.same.any(axis=0)
    fellows = pairs.same.astype(np.float64)
    alike = (fellows * (pairs.gram**2 @ fellows)).sum(axis=0) / pairs.rivals
    found = [pairs.energy[known].sum(), (pairs.product[pairs.same] ** 2).sum()]
    by_scale = [pairs.usual[known].sum(), alike.sum()]
    by_variance = [pairs.numbers[known].sum(), (pairs.usual * pairs.rivals)[known].sum()]
    if not (all(found) and all(by_scale)):
        return 0.0  # one sequence, or asked records that are all alike: centred, nothing is left of them
    most = found[0] / by_scale[0]
    square = np.linalg.det([found, by_variance]) / np.linalg.det([by_scale, by_variance])
    return float(np.sqrt(np.clip(square, _LEAST * most, most)))


def _joint(pairs: _Pairs, fit: _Fit) -> Doubles:
    """Log of chance and density of each asked record, and in the last row of a stranger, less what all of a column
    share [N + 1, M]. A stranger is normal, with the spread of asked records.
    """
    gain = (fit.scale * pairs.product - fit.scale**2 * pairs.norms / 2) / fit.variance
    asked = np.where(pairs.same, gain + np.log((1 - fit.strangers) / pairs.rivals), -np.inf)
    spread = fit.variance + fit.scale**2 * pairs.usual / pairs.numbers
    narrower = pairs.numbers / 2 * np.log(fit.variance / spread)
    stranger = np.log(fit.strangers) + narrower + pairs.energy / 2 * (1 / fit.variance - 1 / spread)
    return np.vstack([asked, stranger])


def _odds(joint: Doubles) -> Doubles:
    """Log odds [N] that at least one column of `joint` [N + 1, M] is a record's, columns being independent.

    In logarithms throughout: chances that differ from 0 or 1 by less than a double can say are ranked all the same.
    """
    columns = np.arange(joint.shape[1])
    likeliest = joint[:-1].argmax(axis=0)
    total = logsumexp(joint, axis=0)
    without = joint.copy()
    without[likeliest, columns] = -np.inf
    with np.errstate(divide="ignore"):  # of the likeliest, whose rest is summed anew: a difference would lose it
        rest = total + np.log1p(-np.exp(joint[:-1] - total))
    rest[likeliest, columns] = logsumexp(without, axis=0)
    odds = joint[:-1] - rest
    # -log(1 - chance) of each column is log(1 + exp(odds)); over columns these add up, and are kept as logarithms.
    none = logsumexp(np.where(odds < _SMALL, odds, np.log(np.logaddexp(0, np.maximum(odds, _SMALL)))), axis=1)
    some = np.exp(np.maximum(none, _SMALL))
    found: Doubles = np.maximum(np.where(none < _SMALL, none, some + np.log(-np.expm1(-some))), _NEVER)
    return found


def _centred(rows: Floats, there: Mask) -> Floats:
    """Activations [N, l, d] less the mean of their position, 0 behind the end of a sequence, as [N, l * d]."""
    count = np.maximum(there.sum(axis=0), 1)[:, None]
    usual = (rows * there[..., None]).sum(axis=0) / count
    found: Floats = ((rows - usual) * there[..., None]).reshape(len(rows), -1).astype(np.float32)
    return found
