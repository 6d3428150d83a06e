"""Public pairs: what the base makes of invented texts, whatever is tuned; and an inverter that learned from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_llama import SETTINGS, save_llama

from privbench.attack import Hints, Reconstruction, view_of
from privbench.attacks.inversion.inverters import Pairs, inverter
from privbench.attacks.inversion.learned_token import LearnedToken
from privbench.errors import InputError
from privbench.options import AuditOptions
from privbench.recovery import Truth
from privbench.registry import default_registry
from privbench.seeds import stream
from privbench.stats.shares import share_interval
from privbench.target import TargetRun
from privbench.targets.split_llama import models
from privbench.targets.split_llama.public import PublicText, invented_texts
from privbench.targets.split_llama.running import CLIENT
from privbench.targets.split_llama.target import SplitLlama
from privbench.targets.split_llama.tokens import Encoder
from privbench.threat import curious_server
from privbench.trunks import PREFIX, trunk_of

SMALL = {**SETTINGS, "prompting": "no", "test": "4", "public": "9"}


def ran(model: str, seed: int = 0, **settings: str) -> TargetRun:
    target = SplitLlama()
    asked = AuditOptions("split-llama", model=model, seed=seed, settings=settings)
    return target.run(target.configure(asked, default_registry()), stream(seed, "run"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{save_llama(tmp_path_factory.mktemp('models') / 'small', layers=3)}"


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_activations_are_the_base_s_own_hidden_states(llama: str, k: int) -> None:
    """As transformers computes them, text by text; of the last layer before the norm."""
    base = models.load(llama)
    texts = invented_texts(Encoder(base.tokenizer, base.context), 9, np.random.default_rng(0))
    public = PublicText(texts, base.model, k)
    states: list[torch.Tensor] = []
    hook = base.model.model.norm.register_forward_pre_hook(lambda module, given: states.append(given[0]))
    for text, made in zip(texts, public.activations(), strict=True):
        with torch.inference_mode():
            hidden = base.model(torch.tensor([text]), output_hidden_states=True).hidden_states
        twin = (states[-1] if k == 3 else hidden[k])[0].numpy()
        assert np.allclose(made[: len(text)], twin, atol=1e-5)
        assert not made[len(text) :].any()
        assert made.shape == public.shape[1:]
    hook.remove()


@pytest.mark.parametrize("labels", ["server", "client"])
def test_the_recorded_layers_make_what_an_untuned_client_sends(llama: str, labels: str) -> None:
    """Of prompts alone, and of prompts with their answers; at the embedding there are none."""
    run = ran(llama, **{**SMALL, "k": "2", "tuned": "no", "labels": labels, "record_as": "float32"})
    tokens, table = run.secrets.array(f"inputs/{CLIENT}"), run.transcript.array("public/embedding")
    length = tokens.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool).tril().expand(len(tokens), -1, -1)
    place = torch.arange(length).expand(len(tokens), -1)
    with torch.inference_mode():
        trunk = trunk_of(run.transcript.arrays, table.shape[1])
        made = trunk(torch.tensor(np.asarray(table)[np.maximum(tokens, 0)].astype(np.float32)), place, visible).numpy()
    sent, there = np.asarray(run.transcript.array(f"activations/{CLIENT}")[0]).astype(np.float32), tokens >= 0
    assert np.allclose(made[there], sent[there], atol=1e-5)
    assert not any(name.startswith(PREFIX) for name in ran(llama, **SMALL, tuned="no").transcript.arrays)


def test_the_recording_holds_what_the_public_base_makes(llama: str) -> None:
    """Tuning moves what the client sends, not this; another seed has other texts, another k the same."""
    run = ran(llama, **SMALL, k="1")
    tokens, made = (run.transcript.array(f"public/{name}") for name in ("tokens", "activations"))
    base = models.load(llama)
    texts = invented_texts(Encoder(base.tokenizer, base.context), 9, stream(0, "public text"))
    assert [row[row >= 0].tolist() for row in tokens] == [list(text) for text in texts]
    twin = np.stack(list(PublicText(texts, base.model, 1).activations()))
    assert np.array_equal(made, twin.astype(made.dtype))
    assert np.array_equal(tokens, ran(llama, **SMALL).transcript.array("public/tokens"))
    assert not np.array_equal(tokens[:, :50], ran(llama, 1, **SMALL).transcript.array("public/tokens")[:, :50])


def test_texts_change_nothing_else_and_can_be_left_out(llama: str) -> None:
    run, bare = ran(llama, **SMALL), ran(llama, **{**SMALL, "public": "0"})
    assert {*run.transcript.arrays} - {*bare.transcript.arrays} == {"public/tokens", "public/activations"}
    for name, array in bare.transcript.arrays.items():
        assert np.array_equal(np.asarray(array), run.transcript.array(name))


def test_texts_are_surveys_and_fit_the_context(llama: str) -> None:
    base = models.load(llama)
    encoder = Encoder(base.tokenizer, 300)
    texts = invented_texts(encoder, 40, np.random.default_rng(3))
    assert len(texts) == 40
    assert max(map(len, texts)) <= 300
    assert len(set(texts)) > 35
    assert all(encoder.text(text).startswith("Survey:") for text in texts)


def test_a_context_without_room_is_one_line(llama: str) -> None:
    base = models.load(llama)
    with pytest.raises(InputError, match="context holds 0 of 3 public texts: use a model with a longer context, or"):
        invented_texts(Encoder(base.tokenizer, 20), 3, np.random.default_rng(0))


def test_a_cut_below_the_last_layer_is_refused(llama: str) -> None:
    with pytest.raises(InputError, match="cut depth k = 4 is out of range: this model has 3 layers, so 0 to 3 fit"):
        ran(llama, **SMALL, k="4")


@pytest.mark.slow
@pytest.mark.parametrize(("k", "least"), [("0", 0.95), ("1", 0.85), ("2", 0.6)])
def test_an_inverter_of_the_public_base_reads_the_tuned_cut(k: str, least: float) -> None:
    """The default tuning of the tiny base; and it reads no more of the texts that it learned from than of those held
    back, by more than that share's interval.
    """
    run = ran("tiny", prompting="no", test="8", k=k)
    truth = Truth(run.secrets.array(f"inputs/{CLIENT}"), run.secrets.array(f"inputs/{CLIENT}/answers"))
    rows = np.arange(len(truth.tokens))
    view = view_of(
        curious_server(), run.transcript, secret=CLIENT, moved=(), candidates=rows, hints=Hints.none()
    )  # fmt: skip
    found = LearnedToken()(view, np.random.default_rng(0))
    assert isinstance(found, Reconstruction)
    for guess in (found.single[-1], found.accumulated[-1]):
        for metric in ("token-accuracy", "answer-accuracy"):
            assert truth.score(guess, metric, np.roll(rows, 1)).value > least
    tokens, made, table = (run.transcript.array(f"public/{name}") for name in ("tokens", "activations", "embedding"))
    learned = inverter(Pairs.of(tokens, made, table), np.random.default_rng(0))
    held = len(tokens) // 5
    assert learned.learned <= share_interval(learned.held, held, 1 / held)[1]
