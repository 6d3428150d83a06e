"""A record's inputs as the package's own types, for `privbench.verify`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from privbench import accounting, pld
from privbench.attack import AttackBase, Inversion, unmet
from privbench.errors import InputError, RecordError
from privbench.estimates import LEAST_KNOWN
from privbench.mechanism import Claim, Mechanism, gradient_mechanism
from privbench.membership import MembershipAttack
from privbench.parts import adversary
from privbench.reach import most_senders
from privbench.record import Audit, Finding
from privbench.registry import BUILT_IN, Registry
from privbench.threat import Channel, Party, ThreatModel
from privbench.verify_scores import releases_of


@dataclass(frozen=True)
class Parts:
    """A record's parts as the package's own types. `settings`: the resolved configuration with its nested settings
    beside its own keys; `configured`: a target made the run, it was not a recording; `own`: a built-in one.
    """

    audit: Audit
    given: Mapping[str, Any]
    resolved: Mapping[str, Any]
    settings: Mapping[str, Any]
    mechanisms: tuple[Mechanism, ...]
    claims: tuple[Claim, ...]
    threats: tuple[ThreatModel, ...]
    configured: bool
    own: bool

    @classmethod
    def of(cls, audit: Audit) -> Parts:
        config = audit.manifest["config"]
        given, resolved = config["given"], config["resolved"]
        for key in ("data", "defense", "eps"):
            if key not in resolved:
                raise RecordError(f"the manifest's resolved configuration lacks '{key}'.")
        nested: dict[str, Any] = {}
        for value in resolved.values():
            nested |= value if isinstance(value, Mapping) else {}
        try:
            return cls(
                audit,
                given,
                resolved,
                nested | dict(resolved),
                tuple(Mechanism.from_json(item) for item in audit.mechanisms),
                tuple(Claim.from_json(item) for item in audit.claims),
                tuple(ThreatModel.from_json(item) for item in audit.threats),
                configured=not given.get("recording"),
                own=audit.findings[0].target in BUILT_IN["targets"],
            )
        except InputError as error:
            raise RecordError(f"audit.json: {error}") from error

    def option(self, name: str) -> Any:
        """What an option resolved to, as it is given: the server is a party without a name."""
        return str(Party.SERVER) if name == "party" and self.resolved[name] == "" else self.resolved[name]

    def adversary(self, attack: type[AttackBase]) -> ThreatModel:
        """`parts.adversary` of this record."""
        return adversary(attack, self.threats)

    def able(self, attack: type[AttackBase]) -> ThreatModel | None:
        """The same, where it lacks nothing."""
        found = self.adversary(attack)
        return None if unmet(attack.card, found) else found

    def lacks(self, attack: type[AttackBase], findings: Sequence[Finding], registry: Registry) -> bool:
        """Whether an attack may have too little: reference models, known records to learn from or others to be asked
        about, public texts or layers.
        """
        members, estimates, about = self.audit.members, self.audit.estimates, findings[0].secret
        if issubclass(attack, MembershipAttack) and members is not None:
            return bool(members["references"] < attack.least_references) or self._apart(attack.least_senders, registry)
        if estimates is not None and about == estimates["name"]:
            return bool(estimates["known"] < LEAST_KNOWN or estimates["records"] < 2)
        return issubclass(attack, Inversion) and self._lacks_public(attack)

    def _apart(self, least: int, registry: Registry) -> bool:
        """Whether no round may have brought so many updates: it is not so, or some of its clients may have left."""
        most = most_senders(self.resolved, self.settings, registry)
        return most is not None and least > 0 and (most < least or self.settings["drop"] != "0")

    def _lacks_public(self, attack: type[Inversion]) -> bool:
        """Texts, questionnaires, layers before the cut, or a cut without any behind described noise: what one needs."""
        texts, layers = (int(self.settings.get(name, 0)) for name in ("public", "k"))
        noised = any(item.channel == Channel.ACTIVATIONS and item.total_sigma for item in self.mechanisms)
        return (
            texts < attack.least_texts
            or int(self.settings.get("forms", 0)) < attack.least_forms
            or (attack.searches_layers and not layers)
            or (attack.reads_noise and (layers > 0 or not noised))
        )

    @property
    def mechanism(self) -> Mechanism | None:
        """On the gradients of the curious site, or server, also where no finding is about them."""
        party = str(self.resolved.get("party", self.audit.findings[0].party))
        return gradient_mechanism(self.mechanisms, party or str(Party.SERVER))

    @property
    def noised(self) -> bool:
        return self.mechanism is not None and self.mechanism.total_sigma > 0

    @property
    def releases(self) -> int:
        """T, by the findings about coins, or as configured where no coin was guessed."""
        recorded = releases_of(self.audit)
        if self.audit.secret is not None or not self.configured:
            return recorded
        return recorded if self.releases_by_manifest is None else self.releases_by_manifest

    @property
    def releases_by_manifest(self) -> int | None:
        """T by the configuration: epochs, or releases; None where that does not say."""
        found = self.settings.get("epochs", self.settings.get("releases"))
        return None if found is None else int(found)

    @property
    def moved(self) -> tuple[str, ...]:
        """The tasks that the coin moves, as recorded or, where no coin was guessed, as configured."""
        return tuple(self.audit.secret["moved"]) if self.audit.secret is not None else self.moved_by_manifest or ()

    @property
    def moved_by_manifest(self) -> tuple[str, ...] | None:
        """The tasks that the coin moves by the configuration; None where that does not say."""
        tasks, count = self.resolved.get("tasks"), self.settings.get("moved")
        if isinstance(tasks, Mapping):
            return tuple(task for task, holder in tasks.items() if holder != self.resolved.get("party"))
        if isinstance(count, int) and self.mechanism is not None:
            return self.mechanism.tasks[: count or None]
        return None

    @property
    def sample_rate(self) -> float | None:
        """Batch over records; None where the manifest does not say."""
        batch, records = self.settings.get("batch"), self.settings.get("records")
        if not positive(batch) or not positive(records):
            return None
        return float(min(1.0, batch / records))

    def site_eps(self, delta: float) -> float | None:
        """The site's eps about the moved labels, from its mechanism; None without noise."""
        if self.mechanism is None:
            return None
        mu = accounting.mechanism_mu(self.mechanism, len(self.moved), self.releases)
        return None if mu is None else accounting.gdp_eps(mu, delta)

    def nominal(self, delta: float) -> float | None:
        """The published habit's eps from the noise multiplier; None where that or the sampling is not known."""
        z, rate = self.resolved.get("noise_multiplier"), self.sample_rate
        if not positive(z) or rate is None:
            return None
        return accounting.nominal_eps(z, rate, pld.steps(rate, self.releases), delta)


def positive(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
