"""What can be learned from the answers as a table: the baselines beside a language model, on the same splits.

Each returns the predicted label text of every test respondent. Everything is fitted on the training side; the
validation side chooses (regularisation, epoch). A missing answer is a category of its own, and so counted is an answer
that no training record gave; a number is standardised, 0 where missing, with an indicator beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from privbench.data.surveys.schema import Question
from privbench.data.surveys.splits import SurveySplits
from privbench.data.surveys.survey import Survey
from privbench.errors import InputError

if TYPE_CHECKING:
    import torch

    Encoded = tuple[torch.Tensor | None, torch.Tensor | None]

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

STRENGTHS = (0.01, 0.1, 1.0)
_UNSEEN = -1


@dataclass(frozen=True)
class Coding:
    """How answers become numbers, fitted on training records.

    levels    per categorical question the answers seen; code 0 is a missing or unseen one
    numbers   the numeric questions with mean and standard deviation
    classes   the label texts that training holds, sorted
    """

    levels: tuple[tuple[str, tuple[str, ...]], ...]
    numbers: tuple[tuple[str, float, float], ...]
    classes: tuple[str, ...]

    def categories(self, survey: Survey) -> Codes:
        """int64 [N, Q]."""
        columns = [pd.Index(seen).get_indexer(pd.Index(survey.answers[column])) + 1 for column, seen in self.levels]
        return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(survey), 0), np.int64)

    def values(self, survey: Survey) -> Floats:
        """Standardised numbers and their missing indicators, float32 [N, 2 R]."""
        columns = []
        for column, mean, spread in self.numbers:
            number = pd.to_numeric(survey.answers[column]).to_numpy(np.float64)
            missing = np.isnan(number)
            columns += [np.where(missing, 0, (number - mean) / spread), missing]
        return np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((len(survey), 0), np.float32)

    def one_hot(self, survey: Survey) -> Floats:
        """Categories as indicators, then `values`: float32 [N, D]."""
        codes = self.categories(survey)
        hot = [codes[:, [q]] == np.arange(len(seen) + 1) for q, (_, seen) in enumerate(self.levels)]
        return np.concatenate([*hot, self.values(survey)], axis=1).astype(np.float32)

    def labels(self, survey: Survey, splits: SurveySplits) -> Codes:
        """int64 [N], the place of the outcome's answer among `classes`; -1 for one that training lacks."""
        answers = survey.answers[splits.outcome.question.column]
        return pd.Index(self.classes).get_indexer(pd.Index(answers)).astype(np.int64)


def fit(splits: SurveySplits) -> Coding:
    """Raises `InputError` when no question is left as input."""
    questions = splits.train.inputs(splits.outcome)
    if not questions:
        raise InputError(f"outcome {splits.outcome.name}: no question is left as input; drop fewer columns.")
    return Coding(
        levels=tuple((q.column, _seen(splits.train, q)) for q in questions if q.kind != "number"),
        numbers=tuple((q.column, *_moments(splits.train, q)) for q in questions if q.kind == "number"),
        classes=_seen(splits.train, splits.outcome.question),
    )


def _seen(survey: Survey, question: Question) -> tuple[str, ...]:
    return tuple(sorted(survey.answers[question.column].dropna().unique()))


def _moments(survey: Survey, question: Question) -> tuple[float, float]:
    """Mean and standard deviation; (0, 1) where they say nothing."""
    numbers = pd.to_numeric(survey.answers[question.column]).dropna().to_numpy(np.float64)
    if not len(numbers):
        return 0.0, 1.0
    return float(numbers.mean()), float(numbers.std()) or 1.0


def majority(splits: SurveySplits) -> list[str]:
    """The commonest answer of the training records, for everyone; of several the first in the question's order."""
    counts = splits.train.answers[splits.outcome.question.column].value_counts()
    order = splits.outcome.question.answers
    commonest = min(counts[counts == counts.max()].index, key=lambda a: order.index(a) if a in order else len(order))
    return [str(commonest)] * len(splits.test)


def logistic_regression(splits: SurveySplits, strengths: Sequence[float] = STRENGTHS) -> list[str]:
    """Multinomial, ridge; of these inverse penalties (scikit-learn's C) the one with the least validation loss."""
    from sklearn.linear_model import LogisticRegression

    coding = fit(splits)
    features, labels = coding.one_hot(splits.train), coding.labels(splits.train, splits)
    right = coding.labels(splits.validation, splits)
    # An answer that training lacks is equally wrong under every model.
    judged = np.flatnonzero(right != _UNSEEN)
    tuning = coding.one_hot(splits.validation)[judged]
    models = [LogisticRegression(C=strength, max_iter=1000).fit(features, labels) for strength in strengths]
    losses = [-model.predict_log_proba(tuning)[np.arange(len(judged)), right[judged]].mean() for model in models]
    best = models[int(np.argmin(losses))]
    return [coding.classes[k] for k in best.predict(coding.one_hot(splits.test))]


def ft_transformer(
    splits: SurveySplits,
    seed: int,
    *,
    epochs: int = 30,
    patience: int = 6,
    batch: int = 128,
    width: int = 64,
    rate: float = 1e-3,
) -> list[str]:
    """FT-Transformer (Gorishniy et al. 2021): two blocks, narrower than the published default (two thousand records are
    few), AdamW with cross-entropy. The epoch with the least validation loss is kept; training ends when `patience`
    epochs brought no better one.

    Raises `InputError` when the optional package rtdl-revisiting-models is not installed.
    """
    try:
        from rtdl_revisiting_models import FTTransformer
    except ImportError:
        raise InputError(
            "FT-Transformer needs rtdl-revisiting-models; run pip install -e '.[tabular]' in privbench's folder."
        ) from None
    import torch

    coding = fit(splits)
    train, validation, test = (_encode(coding, side) for side in (splits.train, splits.validation, splits.test))
    labels, right = (torch.as_tensor(coding.labels(side, splits)) for side in (splits.train, splits.validation))
    # Weights, order and dropout draw from torch's global generator; the caller's state is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)
        defaults = FTTransformer.get_default_kwargs(2)
        model = FTTransformer(
            n_cont_features=0 if train[0] is None else train[0].shape[1],
            cat_cardinalities=[len(seen) + 1 for _, seen in coding.levels],
            **{**defaults, "d_block": width, "d_out": len(coding.classes), "_is_default": False},
        )
        optimizer = torch.optim.AdamW(model.make_parameter_groups(), lr=rate, weight_decay=1e-5)
        best, kept, since = float("inf"), copy.deepcopy(model.state_dict()), 0
        for _ in range(epochs):
            model.train()
            for rows in torch.split(torch.randperm(len(labels)), batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(*_rows(train, rows)), labels[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            loss = float(torch.nn.functional.cross_entropy(_logits(model, validation), right, ignore_index=_UNSEEN))
            since += 1
            if loss < best:
                best, kept, since = loss, copy.deepcopy(model.state_dict()), 0
            if since >= patience:
                break
        model.load_state_dict(kept)
        chosen = _logits(model, test).argmax(1)
    return [coding.classes[k] for k in chosen.tolist()]


def _encode(coding: Coding, survey: Survey) -> Encoded:
    """Numbers float32 [N, 2 R] and categories int64 [N, Q]; None for a kind that the survey lacks."""
    import torch

    values, codes = coding.values(survey), coding.categories(survey)
    return (
        torch.as_tensor(values) if values.shape[1] else None,
        torch.as_tensor(codes) if codes.shape[1] else None,
    )


def _rows(encoded: Encoded, rows: torch.Tensor) -> Encoded:
    values, codes = encoded
    return None if values is None else values[rows], None if codes is None else codes[rows]


def _logits(model: torch.nn.Module, encoded: Encoded) -> torch.Tensor:
    import torch

    model.eval()
    with torch.no_grad():
        logits: torch.Tensor = model(*encoded)
    return logits
