"""Checks of the inputs that the scorer holds, against what was sent of them and what everybody knows."""

from __future__ import annotations

import numpy as np

from privbench.errors import InputError
from privbench.recording import MEMBER, Secrets, Transcript
from privbench.targets.recorded.public import TABLE, matrix


def require_given(transcript: Transcript, secrets: Secrets) -> None:
    """`InputError` where what was sent, asked or known to everybody is not of the inputs that the scorer holds."""
    for party in secrets.given:
        sent, tokens = transcript.arrays.get(f"activations/{party}"), secrets.arrays[f"inputs/{party}"]
        if sent is not None and sent.ndim == 4 and sent.shape[1:3] != tokens.shape:
            raise InputError(
                f"{transcript.where}: 'activations/{party}' has {list(sent.shape[1:3])} records and tokens, "
                f"'inputs/{party}' in {secrets.where} has {list(tokens.shape)}; they must be the same."
            )
        _require_rows(transcript, secrets, party)
        _require_slots(transcript, secrets, party)
        _require_shown(transcript, secrets, party)
    for name, array in transcript.arrays.items():
        kind = name.split("/")[0]
        axis = 0 if name.startswith(("outputs/", "asked/activations", "asked/mask")) else 1
        asked = {"outputs": MEMBER, "asked": MEMBER, "checkpoints": MEMBER, "reference": MEMBER}
        of = asked.get(kind, f"inputs/{name.partition('/')[2]}" if kind == "activations" else "")
        ours = secrets.arrays.get(of)
        if ours is not None and array.shape[axis] != len(ours):
            raise InputError(
                f"{secrets.where} holds '{of}' of {len(ours)} records, '{name}' in {transcript.where} has "
                f"{array.shape[axis]}; they must be the same records in the same order."
            )


def _require_rows(transcript: Transcript, secrets: Secrets, party: str) -> None:
    """Every token has a row in the public table: no attack could name another, and it would count as hidden."""
    table, tokens = matrix(transcript, TABLE), secrets.array(f"inputs/{party}")
    if table is not None and int(tokens.max()) >= len(table):
        record, place = map(int, np.argwhere(tokens >= len(table))[0])
        raise InputError(
            f"{secrets.where}: 'inputs/{party}' has token {int(tokens[record, place])} at place {place} of record "
            f"{record}; '{TABLE}' in {transcript.where} has {len(table)} rows, counted from 0. Record the whole table, "
            "or the tokens by its numbers."
        )


def _require_shown(transcript: Transcript, secrets: Secrets, party: str) -> None:
    """Records of a party's updates are as many as the updates show, in the slots of the questionnaire."""
    name, tokens = f"updates/{party}/shown", secrets.arrays[f"inputs/{party}"]
    if name not in transcript.arrays:
        return
    asked = int(transcript.array(name).sum())
    if asked != len(tokens):
        raise InputError(
            f"{transcript.where}: '{name}' counts {asked} records, 'inputs/{party}' in {secrets.where} holds "
            f"{len(tokens)}; they must be the same, round by round."
        )
    options = transcript.arrays.get("public/form/options")
    if options is not None and options.shape[0] * options.shape[2] != tokens.shape[1]:
        raise InputError(
            f"{transcript.where}: 'public/form/options' has {options.shape[0]} questions of {options.shape[2]} places, "
            f"'inputs/{party}' in {secrets.where} {tokens.shape[1]} places; each answer stands in a slot of its own."
        )


def _require_slots(transcript: Transcript, secrets: Secrets, party: str) -> None:
    """Every answer stands where something was sent, in reply to a question that was asked: no attack could read
    another, and it would count as hidden.
    """
    answers, mask = secrets.array(f"inputs/{party}/answers"), transcript.arrays.get(f"activations/{party}/mask")
    if mask is not None:
        unsent = np.argwhere((answers >= 0) & (np.asarray(mask) == 0))
        if len(unsent):
            record, place = map(int, unsent[0])
            raise InputError(
                f"{secrets.where}: place {place} of record {record} answers question {int(answers[record, place])}, "
                f"and 'activations/{party}/mask' says that nothing was sent there; mend the one or the other."
            )
    asked = transcript.metadata.get("questions", {}).get(party)
    if asked is not None and int(answers.max()) >= len(asked):
        raise InputError(
            f"{secrets.where}: 'inputs/{party}/answers' has an answer to question {int(answers.max())}; 'questions' in "
            f"the metadata of {transcript.where} names {len(asked)} of {party}, counted from 0. Name them all."
        )
