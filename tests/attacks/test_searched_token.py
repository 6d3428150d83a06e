"""The search behind public layers: its trials against a naive twin, and stands whose tokens are known."""

from __future__ import annotations

import numpy as np
import torch
from layer_stand import LENGTH, WIDTH, WORDS, base, read, share, stand

from privbench.attacks.inversion.bottoms import Bottom
from privbench.attacks.inversion.nearest_token import NearestToken
from privbench.attacks.inversion.searched_token import SearchedToken
from privbench.trunks import recorded, trunk_of


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
