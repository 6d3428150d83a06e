"""One door for targets, attacks, defences and bounds: typed, lazy, frozen.

Built-ins and third parties register the same way: a name and a "module:attribute" string; third parties do it
with entry points in the groups privbench.targets, .attacks, .defenses and .bounds. Nothing is imported before
it is asked for, so listing names costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from privbench.errors import InputError, unknown

T = TypeVar("T")
Group = Literal["targets", "attacks", "defenses", "bounds"]

GROUPS: tuple[Group, ...] = ("targets", "attacks", "defenses", "bounds")

SINGULAR: Mapping[Group, str] = {
    "targets": "target",
    "attacks": "attack",
    "defenses": "defence",
    "bounds": "bound",
}

# The base class that a member of each group must have.
BASES: Mapping[Group, str] = {
    "targets": "privbench.target:Target",
    "attacks": "privbench.attack:AttackBase",
    "defenses": "privbench.defenses.base:DefenseBase",
    "bounds": "privbench.bounds.base:BoundBase",
}

BUILT_IN: Mapping[Group, Mapping[str, str]] = {
    "targets": {
        "fedavg": "privbench.targets.fedavg.target:FedAvg",
        "gaussian": "privbench.targets.gaussian.target:GaussianTarget",
        "prism": "privbench.targets.prism.target:Prism",
        "recorded": "privbench.targets.recorded.target:Recorded",
        "split-llama": "privbench.targets.split_llama.target:SplitLlama",
    },
    "attacks": {
        "inversion/affine-token": "privbench.attacks.inversion.affine_token:AffineToken",
        "inversion/bisr": "privbench.attacks.inversion.bisr:BiSR",
        "inversion/embedding-columns": "privbench.attacks.inversion.embedding_columns:EmbeddingColumns",
        "inversion/fsha": "privbench.attacks.inversion.fsha:FeatureSpaceHijacking",
        "inversion/learned-token": "privbench.attacks.inversion.learned_token:LearnedToken",
        "inversion/mlp": "privbench.attacks.inversion.decoders:Mlp",
        "inversion/nearest-token": "privbench.attacks.inversion.nearest_token:NearestToken",
        "inversion/optimise": "privbench.attacks.inversion.optimise:Optimise",
        "inversion/noise-aware-token": "privbench.attacks.inversion.noise_aware_token:NoiseAwareToken",
        "inversion/searched-token": "privbench.attacks.inversion.searched_token:SearchedToken",
        "inversion/relaxation": "privbench.attacks.inversion.relaxation:Relaxation",
        "inversion/rescaled-token": "privbench.attacks.inversion.affine_token:RescaledToken",
        "inversion/ridge": "privbench.attacks.inversion.ridge:Ridge",
        "inversion/update-match": "privbench.attacks.inversion.update_match:UpdateMatch",
        "inversion/span": "privbench.attacks.inversion.span:Span",
        "inversion/sdar": "privbench.attacks.inversion.sdar:SimulatorDecoder",
        "inversion/sequence": "privbench.attacks.inversion.decoders:Sequence",
        "inversion/unsplit": "privbench.attacks.inversion.unsplit:UnSplit",
        "label/answer-length": "privbench.attacks.label.answer_length:AnswerLength",
        "label/gradient-match": "privbench.attacks.label.gradient_match:GradientMatch",
        "label/gradient-match-perturbed": "privbench.attacks.label.gradient_match:GradientMatchPerturbed",
        "label/oracle-lr": "privbench.attacks.label.oracle_lr:OracleLikelihoodRatio",
        "label/update-counts": "privbench.attacks.label.update_counts:UpdateCounts",
        "label/spectral": "privbench.attacks.label.spectral:Spectral",
        "membership/cut-match": "privbench.attacks.membership.cut_match:CutMatch",
        "membership/drift": "privbench.attacks.membership.cut_layer:Drift",
        "membership/embedding": "privbench.attacks.membership.cut_layer:Embedding",
        "membership/fedmia": "privbench.attacks.membership.fedmia:FedMia",
        "membership/gradient-norm": "privbench.attacks.membership.cut_layer:GradientNorm",
        "membership/lira": "privbench.attacks.membership.lira:Lira",
        "membership/lira-offline": "privbench.attacks.membership.lira:LiraOffline",
        "membership/loss": "privbench.attacks.membership.loss:Loss",
        "membership/nasr": "privbench.attacks.membership.nasr:Nasr",
        "membership/one-run": "privbench.attacks.membership.one_run:OneRun",
        "membership/rmia": "privbench.attacks.membership.rmia:Rmia",
        "membership/trajectory": "privbench.attacks.membership.trajectory:Trajectory",
        "membership/update-cosine": "privbench.attacks.membership.update_cosine:UpdateCosine",
        "membership/update-difference": "privbench.attacks.membership.update_difference:UpdateDifference",
    },
    "defenses": {
        "none": "privbench.defenses.none:NoDefense",
        "gaussian": "privbench.defenses.gaussian:CutGradientGaussian",
        "activation-clip": "privbench.defenses.cut:ActivationClip",
        "activation-gaussian": "privbench.defenses.cut:ActivationGaussian",
        "nopeek": "privbench.defenses.nopeek:NoPeek",
        "token-dchi": "privbench.defenses.cut:TokenDChi",
        "dp-sgd": "privbench.defenses.dp_sgd:DpSgd",
        "update-gaussian": "privbench.defenses.updates:UpdateGaussian",
        "secure-aggregation": "privbench.defenses.updates:SecureAggregation",
        "top-k": "privbench.defenses.updates:TopK",
        "quantisation": "privbench.defenses.updates:Quantisation",
    },
    "bounds": {
        "g": "privbench.bounds.gaussian_sum:OneRelease",
        "g-composed": "privbench.bounds.gaussian_sum:Composed",
        "g-as-published": "privbench.bounds.gaussian_sum:AsPublished",
        "single-task": "privbench.bounds.gaussian_sum:SingleTask",
        "label-dp": "privbench.bounds.labels:PureLabelDP",
        "channel": "privbench.bounds.inputs:Channel",
        "fisher": "privbench.bounds.inputs:Fisher",
        "dp-cap": "privbench.bounds.claims:DPCap",
        "dp-members": "privbench.bounds.members:DPMembers",
        "nominal-curve": "privbench.bounds.claims:NominalCurve",
    },
}


@dataclass(frozen=True)
class Registry:
    """An immutable table group -> name -> "module:attribute"."""

    entries: Mapping[Group, Mapping[str, str]]

    def names(self, group: Group) -> tuple[str, ...]:
        return tuple(sorted(self.entries[group]))

    def get(self, group: Group, name: str) -> type[Any]:
        """The registered class; unknown names answer with near matches, broken plugins are named."""
        reference = self.entries[group].get(name)
        if reference is None:
            raise unknown(SINGULAR[group], name, self.entries[group])
        found = _load(reference, f"{SINGULAR[group]} '{name}'")
        base = _load(BASES[group], "the base class")
        if not (isinstance(found, type) and issubclass(found, base)):
            raise InputError(
                f"{SINGULAR[group]} '{name}' ({reference}) is not a subclass of {BASES[group]}; derive it from there."
            )
        return found

    def made(self, group: Group, kind: type[T]) -> dict[str, T]:
        """An instance of each member that is of this kind, by name, in registry order."""
        found = {name: self.get(group, name) for name in self.names(group)}
        return {name: member() for name, member in found.items() if issubclass(member, kind)}

    def add(self, group: Group, name: str, reference: str) -> Registry:
        """A registry with one more entry; a collision raises and shows both."""
        present = self.entries[group].get(name)
        if present is not None:
            raise InputError(f"{SINGULAR[group]} '{name}' is registered twice: {present} and {reference}. Rename one.")
        group_entries = MappingProxyType({**self.entries[group], name: reference})
        return replace(self, entries=MappingProxyType({**self.entries, group: group_entries}))

    def select(self, group: Group, patterns: Sequence[str]) -> tuple[str, ...]:
        """Names by full name, by family ("label") or "all", in registry order."""
        chosen: set[str] = set()
        if not patterns:
            raise InputError(f"no {SINGULAR[group]} is named; give names, a family or all.")
        for pattern in patterns:
            matches = {
                name for name in self.entries[group] if pattern in ("all", name) or name.startswith(f"{pattern}/")
            }
            if not matches:
                families = {name.split("/")[0] for name in self.entries[group] if "/" in name}
                raise unknown(SINGULAR[group], pattern, {*self.entries[group], *families, "all"})
            chosen |= matches
        return tuple(name for name in self.names(group) if name in chosen)


def default_registry() -> Registry:
    """Built-ins plus every installed entry point."""
    registry = Registry(MappingProxyType({group: MappingProxyType(dict(BUILT_IN[group])) for group in GROUPS}))
    for group in GROUPS:
        for point in entry_points(group=f"privbench.{group}"):
            registry = registry.add(group, point.name, point.value)
    return registry


def _load(reference: str, what: str) -> Any:
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{what} ({reference}) cannot be loaded: {error}. Mend or uninstall it.") from error
