"""Label coins for an audit of the U-shape: of the recorded respondents the outcome's answer is replaced by a fair coin.

Nothing that a respondent said tells a coin, so that whoever guesses it read it from what crossed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privbench.data.surveys.samples import Sample
from privbench.errors import InputError
from privbench.measure import CALIBRATION_SHARE
from privbench.recording import JOINT
from privbench.targets.split_llama.tokens import Encoded, Encoder

OUTCOME = "outcome"
"""The one task whose label the coin moves."""


@dataclass(frozen=True)
class Coins:
    """options: the two answers that the coin chooses between, 0 and 1, and their token ids with the end; rows: which
    training respondents carry a coin; tossed uint8: of each of them the coin.
    """

    options: tuple[str, str]
    answers: tuple[tuple[int, ...], tuple[int, ...]]
    rows: npt.NDArray[np.int64]
    tossed: npt.NDArray[np.uint8]

    @classmethod
    def toss(
        cls, told: Sequence[Sample], options: Sequence[str], encoder: Encoder, rows: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Coins:  # fmt: skip
        """Between the two answers that are most frequent among `told`; of equally frequent ones the first on offer.

        `InputError` with too few respondents for one known coin among them.
        """
        if len(rows) < CALIBRATION_SHARE:
            raise InputError(
                f"labels=client: {len(rows)} respondents of the first client are recorded, and each carries a label "
                f"coin; {CALIBRATION_SHARE} or more are needed. Use more (--set record, train), or fewer clients."
            )
        counts = Counter(item.answer for item in told)
        zero, one = sorted(options, key=lambda option: -counts[option])[:2]
        tossed = rng.integers(0, 2, len(rows), dtype=np.uint8)
        return cls((zero, one), (encoder.answer(zero), encoder.answer(one)), rows, tossed)

    def into(self, train: Sequence[Encoded]) -> tuple[Encoded, ...]:
        """The training respondents with the coins in place of these respondents' labels."""
        changed = list(train)
        for row, coin in zip(self.rows.tolist(), self.tossed.tolist(), strict=True):
            changed[row] = replace(changed[row], label=self.answers[coin])
        return tuple(changed)

    @property
    def secrets(self) -> dict[str, npt.NDArray[np.generic]]:
        """Every recorded respondent carries a coin."""
        return {f"labels/{JOINT}": self.tossed.astype(np.int64), f"canary/{JOINT}": np.ones(len(self.rows), np.uint8)}

    @property
    def note(self) -> str:
        """What a reader must know of the coins."""
        lengths = [len(answer) for answer in self.answers]
        apart = "" if lengths[0] == lengths[1] else f", which are {lengths[0]} and {lengths[1]} tokens long"
        return (
            f"A coin says '{self.options[0]}' or '{self.options[1]}', the most frequent answers in training{apart}; "
            "utility is that of another run, without coins."
        )
