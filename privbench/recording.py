"""Recordings: what parties exchanged, what only the auditor may see, and what only the scorer may see.

Three files because each has another reader: `Transcript` may be handed to an
auditor, `Oracle` reveals labels beside the releases, `Secrets` holds what an attack has to guess.
All are safetensors with one JSON object in the metadata; nothing is ever pickled. Large arrays stay in their files
and are read by blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from privbench.errors import InputError
from privbench.layout import Kind, check_arrays
from privbench.mechanism import Claim, Mechanism
from privbench.tensors import Array, Blocks, Stored, TensorWriter, is_float, read_file
from privbench.updates import UPDATE_KEYS, require_updates

SMALLEST, LARGEST = 1e-12, 1e12
"""Clips and sigmas outside are none, or lie outside the arithmetic of 32-bit releases."""
MOST_CLAIMS = 20
STANDARD_NORMAL = "standard-normal"
"""A distribution of inputs: each entry an independent standard normal."""
PRIORS = (STANDARD_NORMAL,)
JOINT = "joint"
"""The secret whose coin sets every label that the curious site does not hold."""
MEMBER = "member"
"""The secret whose coin puts a record into the training."""


@dataclass(frozen=True)
class Recording:
    """Named read-only arrays with metadata, checked when made. Subclasses fix the kind and read the metadata.

    Arrays of three or more axes that come from a file stay there (`tensors.Stored`).
    """

    arrays: Mapping[str, Blocks]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    kind: ClassVar[Kind]
    keys: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        where = self.where
        extra = sorted(set(self.metadata) - {"schema", *self.keys})
        if extra:
            known = ", ".join(("schema", *self.keys))
            raise InputError(f"{where}: unknown key '{extra[0][:60]}' in the metadata; known: {known}.")
        check_arrays(self.kind, self.arrays, where)
        object.__setattr__(self, "arrays", MappingProxyType({n: _read_only(a) for n, a in self.arrays.items()}))
        object.__setattr__(self, "metadata", MappingProxyType({**self.metadata, "schema": self.schema()}))
        self._check(where)

    @property
    def where(self) -> str:
        """What to call it in a message: its file, or its kind."""
        return self.kind if self.path is None else self.path.name

    @classmethod
    def file_name(cls) -> str:
        """What its file is called in the folder of a run."""
        return f"{cls.kind}.safetensors"

    @classmethod
    def schema(cls) -> str:
        """The name and version of the format that this version reads and writes."""
        return f"privbench/{cls.kind}/1"

    def array(self, name: str) -> Array:
        """A whole array in memory; `InputError` when it is not there."""
        if name not in self.arrays:
            raise InputError(f"{self.where} holds no '{name}'; it holds {', '.join(sorted(self.arrays))}.")
        return np.asarray(self.arrays[name])

    def save(self, path: Path) -> None:
        """Write the file; `InputError` when the disk does not take it."""
        layout = {name: (np.dtype(array.dtype), array.shape) for name, array in self.arrays.items()}
        with TensorWriter(path, layout) as file:
            for name, array in self.arrays.items():
                for at in range(len(array)):
                    file.put(name, np.asarray(array[at]), at)
            file.close(self.metadata)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of this schema; raises `InputError` for anything else, naming what is wrong."""
        stored, metadata = read_file(path)
        found = metadata.get("schema")
        if found != cls.schema():
            what = f"schema is {str(found)[:60]!r}" if found is not None else "no schema is named in the metadata"
            hint = ""
            if isinstance(found, str) and found.rpartition("/")[0] == cls.schema().rpartition("/")[0]:
                hint = " It is of another version: update privbench, or write the version that it reads."
            raise InputError(f"{path.name}: {what}, expected '{cls.schema()}'.{hint}")
        arrays = {name: array if array.ndim >= 3 else array[...] for name, array in stored.items()}
        return cls(arrays, metadata, path)

    def _check(self, where: str) -> None:
        """Further checks of a kind."""


@dataclass(frozen=True)
class Transcript(Recording):
    """What parties exchanged. gradients/SITE [T, N, d] releases, gradients/SITE/seen uint8 [T, N]; where each task's
    release is sent apart, gradients/SITE/TASK.

    Metadata: "mechanisms" and "claims", lists of JSON objects; "features" per site; of token inputs "questions" per
    party; of updates "parameters", "samples" and "missed" (`updates.require_updates`). All optional.
    """

    kind: ClassVar[Kind] = "transcript"
    keys: ClassVar[tuple[str, ...]] = ("mechanisms", "claims", "features", "questions", *UPDATE_KEYS)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return tuple(Mechanism.from_json(item) for item in self.metadata.get("mechanisms", ()))

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(Claim.from_json(item) for item in self.metadata.get("claims", ()))

    def _check(self, where: str) -> None:
        for key in ("mechanisms", "claims"):
            if not isinstance(self.metadata.get(key, ()), list | tuple):
                raise InputError(f"{where}: '{key}' in the metadata must be a list of JSON objects.")
        if len(self.metadata.get("claims", ())) > MOST_CLAIMS:
            raise InputError(
                f"{where}: {len(self.metadata['claims'])} claims; at most {MOST_CLAIMS} are tested together."
            )
        try:
            mechanisms, _ = self.mechanisms, self.claims
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        self._check_streams(where)
        require_updates(self.arrays, self.metadata, where)
        described = [(mechanism.channel, mechanism.party) for mechanism in mechanisms]
        for channel, party in {item for item in described if described.count(item) > 1}:
            raise InputError(f"{where}: two mechanisms are described for {channel} and party '{party}'; keep one.")
        for mechanism in mechanisms:
            self._check_mechanism(mechanism, where)

    def _check_streams(self, where: str) -> None:
        """A party receives a sum, or each task's release apart."""
        for site in {name.split("/")[1] for name in self._apart}:
            if f"gradients/{site}" in self.arrays:
                raise InputError(
                    f"{where}: 'gradients/{site}' is a sum, and releases of single tasks stand beside it; a party "
                    "receives one or the other."
                )

    def _check_mechanism(self, mechanism: Mechanism, where: str) -> None:
        channels = ("gradients", "activations", "updates")
        parties = {name.split("/")[1] for name in self.arrays if name.split("/")[0] in channels}
        if mechanism.party not in (*parties, "*"):
            raise InputError(
                f"{where}: a mechanism is described for party '{mechanism.party[:60]}', which is not in the "
                f"recording; parties: {', '.join(sorted(parties)) or 'none'}, or '*' for all."
            )
        if (
            mechanism.channel == "gradients"
            and mechanism.sigma
            and (mechanism.noise == "separate") != bool(self._apart)
        ):
            raise InputError(
                f"{where}: the mechanism's noise is '{mechanism.noise}', but the releases are "
                f"{'sent apart by task' if self._apart else 'sums'}; they must agree."
            )
        for name, size in (("clip", mechanism.clip), *((f"sigma of {t}", s) for t, s in mechanism.sigma.items())):
            if size and not SMALLEST <= size <= LARGEST:
                raise InputError(f"{where}: {name} is {size:g}; allowed: {SMALLEST:g} to {LARGEST:g}.")

    @property
    def _apart(self) -> tuple[str, ...]:
        """The releases of single tasks: gradients/SITE/TASK."""
        parts = {name: name.split("/") for name in self.arrays}
        return tuple(n for n, p in parts.items() if p[0] == "gradients" and len(p) == 3 and p[2] != "seen")


@dataclass(frozen=True)
class Oracle(Recording):
    """For the auditor only: oracle/gradients/SITE/TASK/0 and /1 [T, N, d], the noise-free release under either label.

    TASK "joint" sets every task that the joint coin moves. oracle/gradients/SITE/clean is the release that
    happened, before noise: the positive control; clean/TASK where tasks are sent apart.
    """

    kind: ClassVar[Kind] = "oracle"
    keys: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Secrets(Recording):
    """For the scorer only: labels/TASK int64 [N] or [N, L], labels/joint int64 [N], canary/joint uint8 [N];
    member uint8 [N], 1 where a record was trained on; canary/member uint8 [N], 1 where a fair coin said so; inputs/SITE
    [N, ...] numbers in the features' units, the last axis features, with inputs/SITE/observed uint8 of the same shape;
    or token ids int64 [N, L] (-1 padding) with inputs/SITE/answers int64 [N, L], the number of the question that a
    token answers, -1 in the template; codes [N, Q]: answers as numbers; prior [N, L]: what a language model says there.

    Metadata: "joint", the tasks that the joint coin moves; "priors", by SITE the distribution that its inputs were
    drawn from, where that is known: one of PRIORS.
    """

    kind: ClassVar[Kind] = "secrets"
    keys: ClassVar[tuple[str, ...]] = ("joint", "priors")

    @property
    def joint(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("joint", ()))

    def moved(self, secret: str) -> tuple[str, ...]:
        """The tasks whose labels this secret's coin moves."""
        return self.joint if secret == JOINT else (secret,)

    @property
    def coined(self) -> tuple[str, ...]:
        """The secrets that are fair coins on canaries: "joint" first, then single tasks."""
        names = [name.partition("/")[2] for name in self.arrays if name.startswith("canary/")]
        names = [name for name in names if name != MEMBER]
        return tuple(sorted(names, key=lambda name: (name != JOINT, name)))

    @property
    def given(self) -> tuple[str, ...]:
        """The parties whose token inputs are recorded, with the places of the answers."""
        return tuple(sorted(name.split("/")[1] for name in self.arrays if name.endswith("/answers")))

    @property
    def measured(self) -> tuple[str, ...]:
        """The parties whose inputs are recorded as numbers, in their features' units."""
        named = [name.split("/") for name, array in self.arrays.items() if is_float(array.dtype)]
        return tuple(sorted(parts[1] for parts in named if parts[0] == "inputs" and len(parts) == 2))

    @property
    def natural_labels(self) -> tuple[str, ...]:
        """Arrays of labels that no coin has set."""
        tossed = {f"labels/{task}" for secret in self.coined for task in (secret, *self.moved(secret))}
        return tuple(sorted(name for name in self.arrays if name.startswith("labels/") and name not in tossed))

    @property
    def asks_membership(self) -> bool:
        """Whether it is recorded who was trained on."""
        return MEMBER in self.arrays

    def memberships(self) -> tuple[Array, Array]:
        """Records that a fair coin put into the training or left out [n], ascending, and their coins uint8 [n].

        Where canary/member marks them, others may be members or not without a coin; else every record is one.
        """
        member = self.array(MEMBER)
        marked = self.arrays.get(f"canary/{MEMBER}")
        tossed = np.arange(len(member)) if marked is None else np.flatnonzero(np.asarray(marked))
        return tossed, member[tossed].astype(np.uint8)

    def coins(self, secret: str) -> tuple[Array, Array]:
        """Canaries' record numbers [m], ascending, and their coins uint8 [m]."""
        canaries = np.flatnonzero(self.array(f"canary/{secret}"))
        labels = self.array(f"labels/{secret}")[canaries]
        return canaries, _flat(labels)[:, 0].astype(np.uint8)

    def _check(self, where: str) -> None:
        joint = self.metadata.get("joint", ())
        if not isinstance(joint, list | tuple) or not all(isinstance(task, str) and task for task in joint):
            raise InputError(f"{where}: 'joint' in the metadata must be a list of task names, got {str(joint)[:60]}.")
        if len(set(joint)) != len(joint) or (f"canary/{JOINT}" in self.arrays and not joint):
            raise InputError(f"{where}: 'joint' in the metadata must name each task that the joint coin moves, once.")
        priors = self.metadata.get("priors", {})
        known = isinstance(priors, Mapping) and set(priors) <= set(self.measured)
        if not known or not all(prior in PRIORS for prior in priors.values()):
            raise InputError(
                f"{where}: 'priors' in the metadata is {str(priors)[:60]}; it maps sites with inputs/SITE to one of "
                f"{', '.join(PRIORS)}."
            )
        self._check_membership(where)
        for secret in self.coined:
            name = f"labels/{secret}"
            if name not in self.arrays:
                raise InputError(f"{where}: canary/{secret} has no coins; add '{name}'.")
            canaries = np.flatnonzero(self.array(f"canary/{secret}"))
            coins = _flat(self.array(name)[canaries])
            if not np.isin(coins, (0, 1)).all() or (coins != coins[:, :1]).any():
                raise InputError(
                    f"{where}: '{name}' must hold one coin, 0 or 1, for each record that canary/{secret} marks."
                )
            for task in self.moved(secret):
                own = _flat(self.array(f"labels/{task}")[canaries]) if f"labels/{task}" in self.arrays else coins
                if (own != coins[:, :1]).any():
                    raise InputError(
                        f"{where}: 'labels/{task}' is not what the coin of {secret} set it to, at "
                        f"{int((own != coins[:, :1]).any(axis=1).sum())} canaries."
                    )

    def _check_membership(self, where: str) -> None:
        if f"canary/{MEMBER}" in self.arrays and MEMBER not in self.arrays:
            raise InputError(f"{where}: canary/{MEMBER} marks records whose coins are missing; add '{MEMBER}'.")
        if MEMBER in self.arrays and len(np.unique(self.memberships()[1])) < 2:
            raise InputError(f"{where}: '{MEMBER}' needs records that were trained on and others that were not.")


def _flat(labels: Array) -> Array:
    """Labels [n] or [n, L] as [n, L]."""
    return labels.reshape(len(labels), math.prod(labels.shape[1:]))


def _read_only(array: Blocks) -> Blocks:
    if isinstance(array, Stored):
        return array
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
