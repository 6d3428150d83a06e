"""All choices of a split-LLaMA run, in one object.

From the paper (Syfullah and Khalil, "LLM-Based Schema-Aware Split Learning"): LoRA r 16, alpha 32 on every matrix of a
layer and on the embedding, a residual projection that starts at zero, the cut after the embedding. Our choices, where
it leaves a detail open: the bottleneck, who holds the labels, how clients take turns, the tuning recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, cast, get_args

from privbench.data.catalogue import without_folders
from privbench.defenses.base import CutDefense, build_defense
from privbench.errors import InputError, unknown
from privbench.options import AuditOptions
from privbench.registry import Registry
from privbench.targets.split_llama.halves import Placement
from privbench.targets.split_llama.models import shape_of
from privbench.targets.split_llama.recipe import (
    DEFAULT_DATA,
    DEFAULT_MODEL,
    NO_YES,
    LlamaConfig,
    Recipe,
    read_recipe,
    require_data,
)
from privbench.tensors import RELEASE_TYPES

Schedule = Literal["round-robin", "parallel"]

_PRETRAINED: Mapping[str, str] = {
    "steps": "60", "public": "200", "record": "40", "record_as": "bfloat16", "prior": "no", "reference_steps": "60",
}  # fmt: skip
"""Beside `recipe.PRETRAINED`."""


@dataclass(frozen=True)
class Tuning(Recipe):
    """What --set may change. Sizes count respondents; `steps` is a number, never a wall-clock budget; 0 is one pass
    over the training respondents, of the largest client. Defaults are those of model tiny; docs/split-llama.md has
    those of a pretrained one beside them.

    outcome        of the survey; its first when empty; of several surveys one each, as A:B
    leaks          drop (default) or keep: columns and answers that give the outcome away
    share          of the training respondents over clients: even, power, one-large, or one number each, as 5:3:2
    schema         homogeneous: all clients hold one survey; moderate, heterogeneous: two, or all invented ones, the
                   c-th client the c-th of them and so on in turn
    unseen         an invented survey that no client holds and that is asked about, as NAME or NAME:OUTCOME
    turns          equal: one client after the other; sized: each as often as it holds respondents
    schedule       round-robin: one client half is handed on from client to client; parallel: each has its own, averaged
                   by respondents every `sync` steps
    k              trunk layers at the client; labels: server, or client (U-shape)
    rate           of the server and the LM head; the clients' is client_rate times it; warm-up steps, then linear
                   decay to 0
    clip           gradient norm at which each half clips its own step
    tuned          no: the first client sends its respondents once, before any training, and no answer is asked for
    train_head     whether the LM head is trained, or the base's
    prompting      yes: the untuned model's answers stand beside, without examples and with `shots` of them
    tabular        yes: FT-Transformer stands beside (extra: pip install privbench[tabular])
    public         texts about invented respondents, from which a curious server learns to invert the public base
    prior          yes: what the base says next at each answer, told all that stands before it, stands beside attacks
    record         respondents of the first client whose activations are recorded; 0 for all of them
    members        no: nobody asks who was trained on, which takes a tuning of its own
    references     models that the adversary of membership inference tunes itself, at least 4 for LiRA; 0 for none: the
                   loss and the match at the cut need none
    reference_steps  of that tuning and of each reference alike, or one pass over the respondents where that is more
    """

    schedule: str = "round-robin"
    sync: int = 10
    k: int = 0
    labels: str = "server"
    steps: int = 400
    tuned: str = "yes"
    public: int = 1200
    prior: str = "yes"
    record: int = 200
    record_as: str = "float32"
    reference_steps: int = 150

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Recipe.choices,
        "schedule": get_args(Schedule),
        "labels": get_args(Placement),
        "tuned": NO_YES,
        "prior": NO_YES,
        "record_as": tuple(RELEASE_TYPES),
    }
    from_zero: ClassVar[tuple[str, ...]] = (*Recipe.from_zero, "k", "steps", "public", "record")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "parallel" and self.turns != "equal":
            raise InputError(
                f"turns={self.turns} with schedule=parallel: side by side nobody takes turns; leave one of them out."
            )

    @property
    def placement(self) -> Placement:
        return cast("Placement", self.labels)

    @property
    def asks_members(self) -> bool:
        """Whether there is a run about membership: where nothing is tuned, nobody was trained on."""
        return super().asks_members and self.tuned == "yes"

    def sent_at_once(self, client: int) -> int:
        """Respondents in one batch of this client; side by side, clients share it, the first ones its remainder."""
        if self.schedule == "round-robin":
            return self.batch
        share, rest = divmod(self.batch, self.clients)
        return max(share + (client < rest), 1)

    def one_pass(self, held: Sequence[int]) -> int:
        """The fewest steps in which every client sends each of its respondents once; held: how many each one has."""
        batches = [-(-count // self.sent_at_once(client)) for client, count in enumerate(held)]
        if self.schedule == "parallel" or self.turns == "equal":
            return max(batches) * (1 if self.schedule == "parallel" else self.clients)
        steps, order = 0, self.senders()
        while max(batches) > 0:
            batches[next(order)] -= 1
            steps += 1
        return steps


@dataclass(frozen=True, kw_only=True)
class SplitLlamaConfig(LlamaConfig):
    """A resolved run."""

    tuning: Tuning
    defense: CutDefense | None
    defense_spec: str

    @property
    def coined(self) -> bool:
        """Whether label coins are tossed: where clients hold the labels, a server may guess them while they train."""
        return self.tuning.placement == "client" and self.tuning.tuned == "yes"

    def to_json(self) -> dict[str, Any]:
        return {
            "data": without_folders(self.data),
            "model": self.model.partition(":")[0],
            "tuning": asdict(self.tuning),
            "defense": self.defense_spec,
            "eps": "inf" if self.defense is None else None,
        }


def resolve(options: AuditOptions, registry: Registry) -> SplitLlamaConfig:
    """Check every option. No file is read: a record is verified where its data and its model are not."""
    if options.eps not in (None, math.inf) or options.noise_multiplier or options.sigma:
        raise InputError(
            "split-llama's defences have sizes of their own, in units of the public table: leave --eps, --sigma and "
            "--noise-multiplier out, and give for example --defense activation-gaussian:clip=1,noise=1."
        )
    if options.eps is not None and options.defenses not in ((), ("none",)):
        raise InputError("--eps inf says that nothing is promised; with a --defense leave it out.")
    if len(options.defenses) > 1:
        raise InputError(f"split-llama takes one --defense, got {len(options.defenses)}.")
    if options.party not in (None, "server"):
        raise unknown("party", str(options.party), ("server",))
    data, model = options.data or DEFAULT_DATA, options.model or DEFAULT_MODEL
    spec = options.defenses[0] if options.defenses else "none"
    defense: CutDefense | None = None
    if spec != "none":
        defense = build_defense(spec, registry, CutDefense, "split-llama")  # type: ignore[type-abstract]
    tuning = _tuning(model, options.settings)
    require_data(data, "split-llama", tuning.schema)
    return SplitLlamaConfig(
        data=data, model=model, tuning=tuning, defense=defense, defense_spec=spec, seed=options.seed
    )


def require_depth(config: SplitLlamaConfig) -> None:
    """`InputError` for a cut below the model's last layer; the model's own configuration is read."""
    k, layers = config.tuning.k, shape_of(config.model).layers
    if k > layers:
        raise InputError(f"k = {k}: model {config.model} has {layers} layers, so that 0 to {layers} fit at the client.")


def _tuning(model: str, settings: Mapping[str, str]) -> Tuning:
    tuning = read_recipe(Tuning, model, settings, _PRETRAINED, "split-llama")
    if tuning.steps:
        return tuning
    return replace(tuning, steps=tuning.one_pass(tuning.most_held))
