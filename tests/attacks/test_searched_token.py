"""The search behind public layers: its trials against a naive twin, and stands whose tokens are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from privbench.attack import Hints, NotApplicable, Reconstruction, View, view_of
from privbench.attacks.inversion.bottoms import Bottom
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.attacks.inversion.searched_token import SearchedToken
from privbench.recording import Transcript
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.shape import Shape
from privbench.threat import curious_server
from privbench.trunks import PREFIX, recorded, trunk_of

WORDS, WIDTH, LENGTH, RECORDS, TEXTS = 60, 16, 20, 40, 150
SHAPE = Shape(vocabulary=WORDS, width=WIDTH, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, tied=True)


def base() -> Any:
    """Layers that add about as much as they are given."""
    model, generator = random_llama(SHAPE, 2), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.0 if "embed" in name else 0.3, generator=generator)
    return model


def sent_by(model: Any, tokens: np.ndarray, k: int) -> np.ndarray:
    """What the base's first k layers make of tokens [N, L]."""
    with torch.inference_mode():
        states = model.model(input_ids=torch.from_numpy(np.maximum(tokens, 0)), output_hidden_states=True).hidden_states
    return states[k].numpy()


def stand(seed: int, turn: float = 0.0, releases: int = 1) -> tuple[View, np.ndarray]:
    """Records of unequal lengths behind one layer; turn: how far a random matrix moves every activation."""
    rng, model = np.random.default_rng(seed), base()
    tokens, texts = (rng.integers(0, WORDS, (count, LENGTH)) for count in (RECORDS, TEXTS))
    mask = np.arange(LENGTH) < rng.integers(8, LENGTH + 1, RECORDS)[:, None]
    tokens[~mask] = -1
    matrix = np.eye(WIDTH) + turn * rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
    made = (sent_by(model, tokens, 1) @ matrix + turn).astype(np.float32) * mask[:, :, None]
    arrays = {
        "activations/c": np.repeat(made[None], releases, axis=0),
        "activations/c/mask": mask.astype(np.uint8),
        "public/embedding": model.model.embed_tokens.weight.detach().numpy(),
        "public/tokens": texts,
        "public/activations": sent_by(model, texts, 1),
        **recorded(model.model, 1),
    }
    threat, everybody = curious_server(), np.arange(RECORDS)
    view = view_of(threat, Transcript(arrays), secret="c", moved=(), candidates=everybody, hints=Hints.none())
    return view, tokens


def share(found: Reconstruction, tokens: np.ndarray) -> float:
    there = tokens >= 0
    return float((found.accumulated[-1] == tokens)[there].mean())


def read(attack: Any, view: View) -> Reconstruction:
    found = attack(view, np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    return found


def test_candidates_are_what_the_layers_make_of_them_after_the_tokens_before() -> None:
    model, rng = base(), np.random.default_rng(3)
    tokens = rng.integers(0, WORDS, (11, LENGTH))
    places, candidates = np.tile([3, 0, 19], (11, 1)), rng.integers(0, WORDS, (11, 3, 4))
    table = model.model.embed_tokens.weight.detach()
    made, tried = Bottom(trunk_of(recorded(model.model, 2), WIDTH), table).tried(tokens, places, candidates)

    def last(text: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(text)[None]
        with torch.inference_mode():
            hidden = table[rows]
            causal = torch.ones(len(text), len(text), dtype=torch.bool).tril()[None, None]
            place = torch.arange(len(text))[None]
            for layer in model.model.layers:
                turned = model.model.rotary_emb(hidden, position_ids=place)
                hidden = layer(hidden, attention_mask=causal, position_embeddings=turned, position_ids=place)
        return hidden[0, -1].numpy()

    for record in range(0, 11, 5):
        np.testing.assert_allclose(made[record, 7], last(tokens[record, :8]), rtol=1e-4, atol=1e-4)
        for number, place in enumerate(places[record]):
            for one, candidate in enumerate(candidates[record, number]):
                expected = last(np.array([*tokens[record, :place], candidate]))
                np.testing.assert_allclose(tried[record, number, one], expected, rtol=1e-4, atol=1e-4)


def test_behind_a_layer_that_everybody_knows_all_is_read() -> None:
    """A look-up without the layer is not enough there."""
    view, tokens = stand(0)
    assert share(read(SearchedToken(doubted=1.0), view), tokens) > 0.99
    assert share(read(NearestToken(), view), tokens) < 0.95


def test_a_search_reads_more_than_its_first_guess() -> None:
    """Behind an affine map of all activations; without trying anything the likeliest token stands."""
    view, tokens = stand(1, turn=0.25)
    tried, untried = (share(read(SearchedToken(doubted=0.5, rounds=rounds), view), tokens) for rounds in (2, 0))
    assert tried > untried


def test_padding_stays_unread() -> None:
    view, tokens = stand(2, releases=2)
    found = read(SearchedToken(), view)
    for guess in (*found.single, *found.accumulated):
        assert ((guess == -1) == (tokens < 0)).all()


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (PREFIX, "no public layers before the cut"),
        ("public/tokens", "no public texts"),
        (f"{PREFIX}rotary", "the public layers lack"),
    ],
)
def test_what_it_lacks_is_said(left_out: str, said: str) -> None:
    view, _ = stand(0)
    kept = {name: array for name, array in view.arrays.items() if not name.startswith(left_out)}
    found = SearchedToken()(replace(view, arrays=kept), np.random.default_rng(0))
    assert isinstance(found, NotApplicable)
    assert said in found.reason
