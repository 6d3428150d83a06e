"""Checks of inputs that are numbers: the two files speak of the same records, features and hours, before any attack."""

from __future__ import annotations

import math

from privbench.errors import InputError
from privbench.layout import KNOWN_INDEX
from privbench.recording import Secrets, Transcript

_LEAST = 2
"""Records to be scored: of one alone nothing can be explained."""


def require_measured(transcript: Transcript, secrets: Secrets) -> None:
    """`InputError` where what was sent, is known or encodes inputs does not fit the inputs that the scorer holds."""
    _require_index(transcript, secrets)
    for site in secrets.measured:
        _require_sent(transcript, site)
        _require_told(transcript, secrets, site)
        _require_encoder(transcript, secrets, site)


def _require_index(transcript: Transcript, secrets: Secrets) -> None:
    if not secrets.measured:
        return
    name = f"inputs/{secrets.measured[0]}"
    index, ours = transcript.array(KNOWN_INDEX) if KNOWN_INDEX in transcript.arrays else (), len(secrets.arrays[name])
    if len(index) and max(index) >= ours:
        raise InputError(
            f"{transcript.where}: '{KNOWN_INDEX}' names record {max(index)}; '{name}' in {secrets.where} has {ours}, "
            "and they count from 0."
        )
    if ours - len(index) < _LEAST:
        raise InputError(
            f"{transcript.where}: '{KNOWN_INDEX}' names {len(index)} of {ours} records, and who is known is never "
            f"scored; at least {_LEAST} must be left."
        )


def _require_sent(transcript: Transcript, site: str) -> None:
    sent = transcript.arrays.get(f"activations/{site}")
    if sent is not None and sent.ndim != 3:
        raise InputError(
            f"{transcript.where}: 'activations/{site}' has shape {list(sent.shape)}; of inputs that are numbers it "
            "must be [T, N, d]."
        )


def _require_told(transcript: Transcript, secrets: Secrets, site: str) -> None:
    """What parties know by right of a site's inputs has the same hours and features."""
    ours = secrets.arrays[f"inputs/{site}"].shape
    for name, array in transcript.arrays.items():
        known = name.startswith("auxiliary/") and name.endswith(f"/inputs/{site}")
        if known and array.shape[1:] != ours[1:]:
            raise InputError(
                f"{transcript.where}: '{name}' holds {list(array.shape[1:])} numbers of each record, 'inputs/{site}' "
                f"in {secrets.where} {list(ours[1:])}; they must be the same hours and features."
            )


def _require_encoder(transcript: Transcript, secrets: Secrets, site: str) -> None:
    """model/SITE/PARAM is an encoder of the inputs and of what is sent."""
    prefix = f"model/{site}/"
    parameters = {name.removeprefix(prefix): name for name in transcript.arrays if name.startswith(prefix)}
    if not parameters:
        return
    sent = transcript.arrays.get(f"activations/{site}")
    if sent is None:
        raise InputError(
            f"{transcript.where} holds '{prefix}{min(parameters)}' and no 'activations/{site}': an encoder of what "
            "was not recorded. Record them, or leave the encoder out."
        )
    from privbench.encoders import encoder_of  # imports torch

    _, *hours, features = secrets.arrays[f"inputs/{site}"].shape
    arrays = {short: transcript.array(name) for short, name in parameters.items()}
    try:
        encoder_of(arrays, math.prod(hours), features, sent.shape[-1])
    except InputError as error:
        raise InputError(f"{transcript.where}: {error}".replace("model/SITE", f"model/{site}")) from error
