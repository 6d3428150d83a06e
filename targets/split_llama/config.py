"""All choices of a split-LLaMA run, in one object.

From the paper (Syfullah and Khalil, "LLM-Based Schema-Aware Split Learning"): LoRA r 16, alpha 32 on every matrix of a
layer and on the embedding, a residual projection that starts at zero, the cut after the embedding. Our choices, where
it leaves a detail open: the bottleneck, who holds the labels, how clients take turns, the tuning recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from privbench.data.catalogue import INVENTED, SURVEYS, invented, without_folders
from privbench.data.surveys import synthetic
from privbench.data.surveys.read import parse_spec
from privbench.data.surveys.splits import Share, parts
from privbench.defenses.base import CutDefense, build_defense
from privbench.errors import InputError, unknown
from privbench.options import AuditOptions, parse_number, read_settings
from privbench.registry import Registry
from privbench.target import Role
from privbench.targets.split_llama.halves import BOTTLENECK, Placement
from privbench.targets.split_llama.models import shape_of
from privbench.tensors import RELEASE_TYPES

DEFAULT_DATA, DEFAULT_MODEL = INVENTED, "tiny"
Schedule = Literal["round-robin", "parallel"]
NO_YES = ("no", "yes")
SHARES = ("even", "power", "one-large")
_MOST_POPULATION = 500

_FROM_ZERO = ("k", "warmup", "steps", "public", "record", "shots", "references")
_PRETRAINED: Mapping[str, str] = {
    "train": "240", "validation": "40", "test": "100", "steps": "60", "batch": "4", "rate": "1e-3", "train_head": "no",
    "public": "200", "record": "40", "record_as": "bfloat16", "shots": "2", "prior": "no",
    "members": "no", "references": "0", "reference_steps": "60",
}  # fmt: skip
"""What a model of a hundred million parameters and more starts from, which is slow here and knows its words already."""


@dataclass(frozen=True)
class Tuning:
    """What --set may change. Sizes count respondents; `steps` is a number, never a wall-clock budget; 0 is one pass
    over the training respondents, of the largest client. Defaults are those of model tiny; docs/split-llama.md has
    those of a pretrained one beside them.

    outcome        of the survey; its first when empty
    leaks          drop (default) or keep: columns and answers that give the outcome away
    share          of the training respondents over clients: even, power, one-large, or one number each, as 5:3:2
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

    outcome: str = ""
    leaks: str = "drop"
    train: int = 800
    validation: int = 100
    test: int = 500
    clients: int = 4
    share: str = "even"
    schedule: str = "round-robin"
    sync: int = 10
    k: int = 0
    labels: str = "server"
    bottleneck: int = BOTTLENECK
    rank: int = 16
    alpha: float = 32.0
    steps: int = 400
    batch: int = 8
    rate: float = 4e-3
    client_rate: float = 0.1
    warmup: int = 20
    clip: float = 1.0
    tuned: str = "yes"
    train_head: str = "yes"
    prompting: str = "yes"
    shots: int = 4
    tabular: str = "no"
    public: int = 1200
    prior: str = "yes"
    record: int = 200
    record_as: str = "float32"
    members: str = "yes"
    references: int = 8
    reference_steps: int = 150

    def __post_init__(self) -> None:
        allowed: Mapping[str, tuple[str, ...]] = {
            "leaks": ("drop", "keep"),
            "schedule": get_args(Schedule),
            "labels": get_args(Placement),
            "train_head": NO_YES,
            "tuned": NO_YES,
            "prompting": NO_YES,
            "tabular": NO_YES,
            "members": NO_YES,
            "prior": NO_YES,
            "record_as": tuple(RELEASE_TYPES),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise unknown(f"value of {name}", getattr(self, name), values)
        for f in fields(self):
            value, lowest = getattr(self, f.name), 0 if f.name in _FROM_ZERO else None
            if f.type != "str" and not (math.isfinite(value) and (value > 0 or value == lowest)):
                raise InputError(f"{f.name} must be a positive number{' or 0' if lowest == 0 else ''}, got {value!r}.")
        _ = self.shares

    @property
    def placement(self) -> Placement:
        return cast("Placement", self.labels)

    @property
    def asks_members(self) -> bool:
        """Whether there is a run about membership: where nothing is tuned, nobody was trained on."""
        return self.members == "yes" and self.tuned == "yes"

    @property
    def population(self) -> int:
        """Test respondents whom the adversary of membership inference holds, at most: RMIA compares with them."""
        return min(self.test, _MOST_POPULATION)

    def sent_at_once(self, client: int) -> int:
        """Respondents in one batch of this client; side by side, clients share it, the first ones its remainder."""
        if self.schedule == "round-robin":
            return self.batch
        share, rest = divmod(self.batch, self.clients)
        return max(share + (client < rest), 1)

    def one_pass(self, held: Sequence[int]) -> int:
        """The fewest steps in which every client sends each of its respondents once; held: how many each one has."""
        batches = max(-(-count // self.sent_at_once(client)) for client, count in enumerate(held))
        return batches if self.schedule == "parallel" else self.clients * batches

    @property
    def shares(self) -> Share:
        """As `splits.split` takes it: the numbers of 5:3:2 as parts of 1."""
        if self.share in SHARES:
            return cast("Share", self.share)
        if ":" not in self.share:
            raise unknown("value of share", self.share, (*SHARES, "numbers such as 5:3:2"))
        sizes = [float(parse_number("share", item)) for item in self.share.split(":")]
        if len(sizes) != self.clients or not all(0 < size < math.inf for size in sizes):
            raise InputError(f"share {self.share}: {self.clients} clients need {self.clients} positive numbers.")
        return tuple(size / math.fsum(sizes) for size in sizes)


@dataclass(frozen=True)
class SplitLlamaConfig:
    """A resolved run."""

    data: str
    model: str
    tuning: Tuning
    defense: CutDefense | None
    defense_spec: str
    seed: int
    role: Role = "audited"

    @property
    def coined(self) -> bool:
        """Whether label coins are tossed: where clients hold the labels, a server may guess them while they train."""
        return self.tuning.placement == "client" and self.tuning.tuned == "yes"

    @property
    def called(self) -> str:
        """What this run is called while it goes on."""
        return f"{self.role} run"

    def as_role(self, role: Role) -> SplitLlamaConfig:
        return replace(self, role=role)

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
    _check_data(data)
    spec = options.defenses[0] if options.defenses else "none"
    defense: CutDefense | None = None
    if spec != "none":
        defense = build_defense(spec, registry, CutDefense, "split-llama")  # type: ignore[type-abstract]
    return SplitLlamaConfig(data, model, _tuning(model, options.settings), defense, spec, options.seed)


def require_depth(config: SplitLlamaConfig) -> None:
    """`InputError` for a cut below the model's last layer; the model's own configuration is read."""
    k, layers = config.tuning.k, shape_of(config.model).layers
    if k > layers:
        raise InputError(f"k = {k}: model {config.model} has {layers} layers, so that 0 to {layers} fit at the client.")


def _check_data(data: str) -> None:
    kind, _, name = data.partition(":")
    if kind not in (DEFAULT_DATA, *SURVEYS):
        raise unknown("data of target split-llama", kind, (DEFAULT_DATA, *SURVEYS))
    if not invented(data):
        parse_spec(data)
    elif name and name not in synthetic.SURVEYS:
        raise unknown("synthetic survey", name, synthetic.SURVEYS)


def _tuning(model: str, settings: Mapping[str, str]) -> Tuning:
    given = settings if model == DEFAULT_MODEL else {**_PRETRAINED, **settings}
    tuning = Tuning(**read_settings(Tuning, given, "split-llama"))
    if tuning.steps:
        return tuning
    held = [math.ceil(tuning.train * part - 1e-9) for part in parts(tuning.shares, tuning.clients)]
    return replace(tuning, steps=tuning.one_pass(held))
