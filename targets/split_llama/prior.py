"""What a language model says of respondents whom it knows but for one token at a time, without any activation.

The public base reads each respondent's true text up to every answer token and says the next one: all earlier answers,
and the true beginning of the answer itself, are given to it. An attack that reads no more than that has shown nothing
of the cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_AT_ONCE = 8
_NONE = -1


def foretold(
    model: LlamaForCausalLM, tokens: npt.NDArray[np.int64], answers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The likeliest token, int64 [N, L], at every place that `answers` [N, L] marks, after the true tokens [N, L]
    before it; -1 in the template, and at a first place, which nothing stands before. Tokens are -1 behind their end.
    """
    found = np.full(tokens.shape, _NONE, np.int64)
    for start in range(0, len(tokens), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        ids = torch.from_numpy(np.maximum(tokens[part], 0))  # padding stands behind: no earlier token sees it
        with torch.inference_mode():
            hidden = model.model(input_ids=ids).last_hidden_state
            record, place = (torch.from_numpy(axis) for axis in np.nonzero(answers[part, 1:] >= 0))
            said = model.lm_head(hidden[record, place]).argmax(dim=1)
        found[start + record.numpy(), place.numpy() + 1] = said.numpy()
    return found
