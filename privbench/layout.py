"""Which arrays a recording may hold: names, types, shapes that fit together. Unknown names are refused.

SITE, TASK, CLIENT, PARAM stand for any name; N, T and the like must agree wherever they appear in one file. The table
is the published format (docs/recordings.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privbench.errors import InputError
from privbench.tensors import DTYPES, Array, Blocks, blocks_of, is_float

Kind = Literal["transcript", "oracle", "secrets"]

_FLOATS, _COINS, _LABELS, _EXACT = ("F32", "F16", "BF16"), ("U8",), ("I64",), ("F64",)
KNOWN_INDEX = "auxiliary/index"
"""The array that says which records a party knows by right."""
_LONGEST_NAME = 120
_LARGEST = 1e15
"""A release beyond it is no gradient, and its square does not fit into 32 bits."""


@dataclass(frozen=True)
class Rule:
    """One line of the format. dims: a trailing "..." allows any further axes; "d SITE" is one d per site."""

    pattern: str
    types: tuple[str, ...]
    dims: tuple[str, ...]

    def bind(self, name: str) -> Mapping[str, str] | None:
        """What the capitals stand for in this name, or None when it does not match."""
        wanted, given = self.pattern.split("/"), name.split("/")
        if len(wanted) != len(given):
            return None
        bound = {}
        for word, part in zip(wanted, given, strict=True):
            if word.isupper() and not word.isdigit():
                bound[word] = part
            elif word != part:
                return None
        return bound


# Fixed words stand before capitals: gradients/A/seen is not a task called seen.
RULES: Mapping[Kind, tuple[Rule, ...]] = {
    "transcript": (
        Rule("gradients/SITE", _FLOATS, ("T", "N", "d SITE")),
        Rule("gradients/SITE/seen", _COINS, ("T", "N")),
        Rule("gradients/SITE/TASK", _FLOATS, ("T", "N", "d SITE")),
        Rule("activations/SITE", _FLOATS, ("T activations", "N", "...")),
        Rule("activations/SITE/mask", _COINS, ("N", "L SITE")),
        Rule("received/activations", _FLOATS, ("M received", "L received", "d cut")),
        Rule("received/mask", _COINS, ("M received", "L received")),
        Rule("asked/activations", _FLOATS, ("N", "L asked", "d cut")),
        Rule("asked/mask", _COINS, ("N", "L asked")),
        Rule("asked/losses", _EXACT, ("R updates", "N")),
        Rule("asked/squares", _EXACT, ("R updates", "N")),
        Rule("asked/squares/BLOCK", _EXACT, ("R updates", "N")),
        Rule("asked/products/CLIENT", _EXACT, ("R updates", "N")),
        Rule("asked/products/CLIENT/BLOCK", _EXACT, ("R updates", "N")),
        Rule("updates/CLIENT", _FLOATS, ("R updates", "P updates")),
        Rule("updates/CLIENT/mask", _COINS, ("R updates",)),
        Rule("updates/CLIENT/shown", _LABELS, ("R updates",)),
        Rule("updates/CLIENT/squares", _EXACT, ("R updates",)),
        Rule("updates/CLIENT/squares/BLOCK", _EXACT, ("R updates",)),
        Rule("read/drawn", _LABELS, ("R updates", "D read", "S read", "Q form")),
        Rule("read/matches/CLIENT", _EXACT, ("R updates", "D read")),
        Rule("read/practice/held", _LABELS, ("R updates", "M read", "D read")),
        Rule("read/practice/matches", _EXACT, ("R updates", "M read", "D read")),
        Rule("public/global", _FLOATS, ("P updates",)),
        Rule("public/tokens", _LABELS, ("A public", "L public")),
        Rule("public/activations", _FLOATS, ("A public", "L public", "d public")),
        Rule("public/form/template", _LABELS, ("F form",)),
        Rule("public/form/options", _LABELS, ("Q form", "K form", "A form")),
        Rule("public/vocabulary", _COINS, ("V public", "W public")),
        Rule("public/labels/TASK", _LABELS, ("K labels", "A labels")),
        Rule("public/trunk/PARAM", _FLOATS, ("...",)),
        Rule("public/NAME", _FLOATS, ("...",)),
        Rule("outputs/population", _COINS, ("N",)),
        Rule("outputs/TASK", _FLOATS, ("N", "K TASK")),
        Rule("outputs/TASK/labels", _LABELS, ("N", "...")),
        Rule("checkpoints/outputs/TASK", _FLOATS, ("T checkpoints", "N", "K TASK")),
        Rule("checkpoints/activations/SITE", _FLOATS, ("T checkpoints", "N", "d SITE")),
        Rule("checkpoints/gradients/SITE", _FLOATS, ("T checkpoints", "N")),
        Rule("reference/outputs/TASK", _FLOATS, ("R", "N", "K TASK")),
        Rule("reference/member", _COINS, ("R", "N")),
        Rule("model/SITE/PARAM", _FLOATS, ("...",)),
        Rule("adversary/NAME", _FLOATS, ("...",)),
        Rule(KNOWN_INDEX, _LABELS, ("A",)),
        Rule("auxiliary/SITE/inputs", _FLOATS, ("A or N", "...")),
        Rule("auxiliary/PARTY/inputs/SITE", _FLOATS, ("A or N", "...")),
        Rule("auxiliary/PARTY/inputs/SITE/observed", _COINS, ("A or N", "...")),
        Rule("auxiliary/SITE/labels/TASK", _LABELS, ("A or N", "...")),
    ),
    "oracle": (
        Rule("oracle/gradients/SITE/clean", _FLOATS, ("T", "N", "d SITE")),
        Rule("oracle/gradients/SITE/clean/TASK", _FLOATS, ("T", "N", "d SITE")),
        Rule("oracle/gradients/SITE/TASK/0", _FLOATS, ("T", "N", "d SITE")),
        Rule("oracle/gradients/SITE/TASK/1", _FLOATS, ("T", "N", "d SITE")),
    ),
    "secrets": (
        Rule("labels/TASK", _LABELS, ("N", "...")),
        Rule("canary/member", _COINS, ("N",)),
        Rule("canary/TASK", _COINS, ("N",)),
        Rule("member", _COINS, ("N",)),
        Rule("inputs/SITE", (*_FLOATS, *_LABELS), ("N", "...")),
        Rule("inputs/SITE/answers", _LABELS, ("N", "L SITE")),
        Rule("inputs/SITE/codes", _LABELS, ("N", "Q SITE")),
        Rule("inputs/SITE/prior", _LABELS, ("N", "L SITE")),
        Rule("inputs/SITE/observed", _COINS, ("N", "...")),
    ),
}


def check_arrays(kind: Kind, arrays: Mapping[str, Blocks], where: str) -> None:
    """Names, types, shapes and values of a recording; raises `InputError` that names the array and what is wrong.

    where: what to call the recording in messages, a file name where there is one.
    """
    if not arrays:
        raise InputError(f"{where} holds no arrays; a {kind} needs at least one, see docs/recordings.md.")
    sizes: dict[str, tuple[int, str]] = {}
    for name, array in arrays.items():
        rule, bound = _rule(kind, name, where)
        _check_type(rule, name, array, where)
        for size, dim in zip(array.shape, rule.dims, strict=False):
            if dim != "...":
                _agree(sizes, _dim_key(dim, bound, arrays), size, name, where)
        _check_values(name, array, where)
    _check_index(arrays, sizes, where)
    for name in arrays:
        _check_inputs(name, arrays, where)


def _rule(kind: Kind, name: str, where: str) -> tuple[Rule, Mapping[str, str]]:
    shown = name if name.isprintable() and len(name) <= _LONGEST_NAME else repr(name[:_LONGEST_NAME])
    for rule in RULES[kind]:
        bound = rule.bind(name)
        if bound is not None and all(bound.values()) and shown == name:
            return rule, bound
    allowed = ", ".join(rule.pattern for rule in RULES[kind])
    raise InputError(f"{where}: array '{shown}' is not part of a {kind}; allowed: {allowed}.")


def _check_type(rule: Rule, name: str, array: Blocks, where: str) -> None:
    allowed = [DTYPES[item] for item in rule.types]
    if array.dtype not in allowed:
        names = ", ".join(str(item) for item in allowed)
        raise InputError(f"{where}: array '{name}' has type {array.dtype}; allowed: {names}. Convert it.")
    fixed = tuple(dim for dim in rule.dims if dim != "...")
    if array.ndim < len(fixed) or (array.ndim > len(fixed) and fixed == rule.dims):
        dims = ", ".join(dim.split()[0] for dim in rule.dims)
        raise InputError(f"{where}: array '{name}' has shape {list(array.shape)}; it must be [{dims}].")
    if 0 in array.shape:
        raise InputError(f"{where}: array '{name}' has shape {list(array.shape)}: nothing is in it. Leave it out.")


def _dim_key(dim: str, bound: Mapping[str, str], arrays: Mapping[str, Blocks]) -> str:
    """The name under which a size must agree: "d SITE" is d of one site; auxiliary records are A where indexed."""
    if dim == "A or N":
        return "A" if KNOWN_INDEX in arrays else "N"
    symbol, _, scope = dim.partition(" ")
    return f"{symbol} of {bound[scope]}" if scope in bound else dim


def _agree(sizes: dict[str, tuple[int, str]], key: str, size: int, name: str, where: str) -> None:
    first, holder = sizes.setdefault(key, (size, name))
    if size != first:
        raise InputError(f"{where}: array '{name}' has {key} = {size} where '{holder}' has {first}; they must agree.")


def _check_index(arrays: Mapping[str, Blocks], sizes: Mapping[str, tuple[int, str]], where: str) -> None:
    """Who is known is among the records."""
    if KNOWN_INDEX not in arrays:
        return
    values = np.asarray(arrays[KNOWN_INDEX])
    records, holder = sizes.get("N", (math.inf, ""))
    if int(values.min()) < 0:
        raise InputError(f"{where}: array '{KNOWN_INDEX}' names record {int(values.min())}; they count from 0.")
    if int(values.max()) >= records:
        raise InputError(
            f"{where}: array '{KNOWN_INDEX}' names record {int(values.max())}; they count from 0, and '{holder}' has "
            f"{records}."
        )
    if len(np.unique(values)) < len(values):
        raise InputError(f"{where}: array '{KNOWN_INDEX}' names a record twice.")


def _check_answers(name: str, arrays: Mapping[str, Blocks], where: str) -> None:
    """Every record of token inputs answers something, by tokens that are there."""
    given = name.removesuffix("/answers")
    tokens, answers = arrays.get(given), np.asarray(arrays[name])
    if tokens is None or tokens.shape != answers.shape:
        raise InputError(f"{where}: '{name}' needs '{given}' of the same shape {list(answers.shape)}.")
    empty = np.flatnonzero((answers < 0).all(axis=1))
    if len(empty):
        raise InputError(f"{where}: '{name}' marks no answer of record {int(empty[0])}; leave it out.")
    lost = np.argwhere((answers >= 0) & (np.asarray(tokens) < 0))
    if len(lost):
        record, place = map(int, lost[0])
        raise InputError(
            f"{where}: '{name}' marks place {place} of record {record} as an answer to question "
            f"{int(answers[record, place])}, and '{given}' holds no token there (-1); give it, or "
            "mark the template."
        )


def _check_inputs(name: str, arrays: Mapping[str, Blocks], where: str) -> None:
    """Inputs that are numbers have features on the last axis; where they were measured is said of each of them. What a
    language model says stands where there are answers.
    """
    parts = name.split("/")
    if parts[0] == "inputs" and parts[-1] == "answers":
        _check_answers(name, arrays, where)
    elif parts[-1] == "observed" and "inputs" in parts[:-2]:
        inputs = name.removesuffix("/observed")
        if inputs not in arrays:
            raise InputError(f"{where}: array '{name}' says what was measured of '{inputs}', which is missing; add it.")
        if arrays[name].shape != arrays[inputs].shape:
            raise InputError(
                f"{where}: array '{name}' has shape {list(arrays[name].shape)}; '{inputs}' has "
                f"{list(arrays[inputs].shape)}, and they must be the same."
            )
    elif parts[-1] == "prior" and (answers := name.replace("/prior", "/answers")) not in arrays:
        raise InputError(f"{where}: array '{name}' says what stands where '{answers}' marks, which is missing; add it.")
    elif "inputs" in parts[-2:-1] and is_float(arrays[name].dtype) and arrays[name].ndim < 2:
        raise InputError(
            f"{where}: array '{name}' has shape {list(arrays[name].shape)}; numbers need their features on a last "
            "axis, [N, ..., F]. A single feature is [N, 1]."
        )


def _check_values(name: str, array: Blocks, where: str) -> None:
    parts = name.split("/")
    numbers = name == "public/tokens" or name.startswith("public/form/") or parts[-1] == "shown"
    whole = "labels" in parts or numbers or (parts[0] == "inputs" and not is_float(array.dtype))
    zero_one = parts[-1] in ("seen", "mask", "observed", "member", "population") or "canary" in parts
    for block in _read(array):
        if is_float(array.dtype) and not np.isfinite(block).all():
            raise InputError(f"{where}: array '{name}' holds values that are not finite; a recording must be finite.")
        if is_float(array.dtype) and float(np.abs(block).max()) > _LARGEST:
            raise InputError(
                f"{where}: array '{name}' holds {float(np.abs(block).max()):.3g}; at most {_LARGEST:g} is read."
            )
        if zero_one and int(block.max()) > 1:
            raise InputError(f"{where}: array '{name}' holds {int(block.max())}; it may hold 0 and 1 only.")
        if whole and int(block.min()) < -1:
            raise InputError(
                f"{where}: array '{name}' holds {int(block.min())}; labels and tokens are 0 and above, -1 for none."
            )


def _read(array: Blocks) -> Iterator[Array]:
    for part in blocks_of(array):
        yield np.asarray(array[part])
