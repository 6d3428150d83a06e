"""Span test: the first layer's matrices get gradients in the span of their inputs, and tokens have public inputs.

A layer with LoRA computes W x + B A x. Of places with inputs x_t and gradients d_t of the outputs, A's gradient is the
sum of B^T d_t x_t^T, with rows in the span of the x_t, and B's that of d_t (A x_t)^T, with rows in the span of the
A x_t. PEFT starts with B = 0: in the very first step A's gradient is zero and B's alone speaks. q, k and v of layer 0
have the same inputs, which no attention has mixed and no place has turned. A gradient spans all of the inputs only
where they are few: fewer distinct tokens than r for B's, than 3 r for the three A's together, and than the width. Of
more, a few with large gradients may still lie close to the span.

Adam divides every number of a gradient by a size of its own. What is left has full rank, and spans nothing of the kind:
the test reads plain gradients, and sums of them, and no update of Adam.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from privbench.attack import AttackCard, Scores, View
from privbench.attacks.inversion.forms import FormInversion, Tokens, part
from privbench.attacks.inversion.lookup import EMBEDDING
from privbench.threat import Channel, Knowledge
from privbench.updates import part_of

NORM = "public/input_norm"
_LAYER = re.compile(r"layers\.0\.self_attn\.([qkv])_proj\.lora_([AB])\b")
_SMALL, _EXACT, _NEAR = 1e-5, 2e-3, 2e-2
"""Singular values, in the largest, that are rounding. Distances from a span, in an input's length, of a token within
it: of B's, where inputs are known exactly, and of A's, while the client's embedding moves away from the public one."""


@dataclass(frozen=True)
class Span(FormInversion):
    """A's of later rounds, B's where no A moved yet. Inputs are rows of the public table times the weights of the first
    norm: by how much a norm divides does not turn them.
    """

    card = AttackCard(
        name="inversion/span",
        summary="tokens whose inputs lie in the span of the first layer's LoRA gradients, answers by the questionnaire",
        paper="Petrov, Dimitrov, Baader, Mueller, Vechev 2024 (DAGER)",
        deviates="the three matrices together, B where A is still; the public rows, however far the client's moved; "
        "sets of tokens, and no second layer to order them",
        channels=(Channel.UPDATES,),
        knowledge=(Knowledge.BASE,),
        cost="a singular value decomposition [3 r, d] and a product with the table for each round",
    )

    def lacks(self, view: View) -> str | None:
        why = super().lacks(view)
        if why is not None:
            return why
        missing = [name for name in (EMBEDDING, NORM, "public/global") if name not in view.arrays]
        if missing:
            return f"needs '{missing[0]}', which was not recorded"
        kinds = {match.groups() for name, _ in view.parameters if (match := _LAYER.search(name))}
        lacking = [f"{which}_proj of layer 0" for which in "qkv" for kind in "AB" if (which, kind) not in kinds]
        return f"LoRA on {lacking[0]} is not among what the client trains" if lacking else None

    def vocabulary(self, view: View) -> int:
        return len(view.array(EMBEDDING))

    def tokens(self, view: View, number: int) -> tuple[Tokens, Scores]:
        """The tokens [V] in the span of this round's update; each counts the same."""
        named = {match.groups(): item for item in view.parameters if (match := _LAYER.search(item[0]))}
        inputs = np.asarray(view.array(EMBEDDING)).astype(np.float64) * np.asarray(view.array(NORM))
        moved = np.concatenate([part(view, number, *named[which, "A"]) for which in "qkv"])
        if moved.any():
            there = spanned(moved, inputs, _NEAR)
        else:
            start = np.asarray(view.array("public/global")).astype(np.float64)
            there = np.ones(len(inputs), np.bool_)
            for which in "kv":  # a first place sees itself alone, so that its query has no gradient
                name, shape = named[which, "A"]
                seen = inputs @ start[part_of(view.parameters, name)].reshape(shape).T
                there &= spanned(part(view, number, *named[which, "B"]), seen, _EXACT)
        return there, np.ones(len(inputs))


def spanned(rows: Scores, inputs: Scores, near: float) -> Tokens:
    """Which inputs [V, d] lie in the span of these rows [n, d]: none where they span everything, or nothing."""
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    basis = directions[sizes > _SMALL * sizes[0]] if sizes[0] > 0 else directions[:0]
    if len(basis) in (0, inputs.shape[1]):
        return np.zeros(len(inputs), np.bool_)
    away = np.linalg.norm(inputs - inputs @ basis.T @ basis, axis=1)
    found: Tokens = away < near * np.linalg.norm(inputs, axis=1)
    return found
