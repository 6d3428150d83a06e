"""What the server is to read of respondents, and what everybody knows of their questionnaire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privbench.defenses.base import UpdateDefense
from privbench.errors import InputError
from privbench.targets.fedavg.defending import SUM, called
from privbench.targets.fedavg.form import Form
from privbench.targets.fedavg.tape import Watched
from privbench.targets.split_llama.material import Material
from privbench.targets.split_llama.prior import foretold
from privbench.targets.split_llama.system import WATCHED
from privbench.targets.split_llama.tape import padded, spelled
from privbench.targets.split_llama.tokens import TEMPLATE, Encoded
from privbench.targets.split_llama.tune import Shard

_NONE = -1


@dataclass(frozen=True)
class Reading:
    """watched: whose update is asked, and about whom; held: those respondents; form: their survey's."""

    material: Material
    watched: Watched
    held: Sequence[Encoded]
    form: Form

    @classmethod
    def of(cls, material: Material, shards: Sequence[Shard], defense: UpdateDefense | None) -> Reading:
        """The first client's respondents and updates; where the server sees sums, those of all who hold its survey."""
        summed = defense is not None and defense.summed
        clients = material.first.people.clients if summed else (WATCHED,)
        sizes = [len(shards[client].samples) for client in clients]
        starts = dict(zip(clients, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        held = [item for client in clients for item in shards[client].samples]
        watched = Watched(SUM if summed else called(WATCHED), starts)
        return cls(material, watched, held, Form.of(material.first, held, material.encoder))

    def rows(self, shown: Sequence[int]) -> npt.NDArray[np.int64]:
        """These of those respondents as numbers of all that are trained on."""
        holder = self.material.holder
        return np.concatenate([np.flatnonzero(holder == client) for client in self.watched.starts])[list(shown)]

    @property
    def questions(self) -> list[str]:
        """In the order of their numbers."""
        survey = self.material.first
        return [*(asked.strip().rstrip(":") for asked in survey.asked[:-1]), survey.people.outcome.question.ask]

    def public(self, words: bool) -> dict[str, npt.NDArray[Any]]:
        """The form; of the base the embedding table [V, d] and the weights [d] of the norm before the first layer's
        matrices; with `words` the text of each token.
        """
        base = self.material.base.model.model
        norm = base.layers[0].input_layernorm.weight.detach()
        spelling = self.material.encoder.vocabulary(len(self.material.table))
        spelling[self.form.end] = b""  # it closes an answer, and is no part of its text
        told = {"public/vocabulary": spelled(spelling)}
        return {
            **self.form.arrays,
            "public/embedding": self.material.table.float().numpy(),
            "public/input_norm": norm.float().numpy(),
            **(told if words else {}),
        }

    def secrets(self, shown: Sequence[int]) -> Mapping[str, npt.NDArray[np.int64]]:
        """Answers of these of the client's respondents in the slots of the form, and what the base says there, told all
        that stands before; where an answer is closed by the end token, that is told too. `InputError` for nobody.
        """
        records, name = [self.held[row] for row in shown], f"inputs/{self.watched.sender}"
        if not records:
            raise InputError(
                f"{self.watched.sender}, whose respondents are to be read, sent no update in any round; use more "
                "rounds, a larger fraction, or let it drop out less often (--set drop)."
            )
        tokens, answers = self.form.slots(records)
        whole = padded([item.sent(True) for item in records], _NONE)
        outcome = len(self.form.options) - 1
        marked = padded([(*item.answers, *[outcome] * (len(item.label) - 1), TEMPLATE) for item in records], TEMPLATE)
        said = foretold(self.material.base.model, whole, marked)
        prior = np.where((answers >= 0) & (tokens == self.form.end), tokens, _NONE)
        open_places = (answers >= 0) & (tokens != self.form.end)
        prior[open_places] = said[marked >= 0]
        return {name: tokens, f"{name}/answers": answers, f"{name}/prior": prior}
