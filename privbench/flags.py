"""Flags: "do not read this number without knowing this". Each says when it is raised, what it means, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Flag:
    name: str
    raised_if: str
    means: str
    what_to_do: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


_ALL = (
    Flag(
        "SERVER_NOT_NOISED",
        "the server trains on clean gradients",
        "the trained state, hence other records' releases and every output, carries the labels on a path that no bound "
        "here speaks about; the composed bounds, and the site's and the outsider's epsilons, assume that a record's "
        "labels reach a site through its own noised releases only",
        "treat the composed bounds as holding under that assumption, or let the server train on noised values",
    ),
    Flag(
        "NOMINAL_EPS_NOT_FOR_THIS_SITE",
        "the claim is nominal: noise counted once per batch sum",
        "the curious site receives its records' gradients one by one, in every epoch, and knows its batches: no sum "
        "and no subsampling hides them; the nominal eps says nothing about it",
        "quote the site's eps beside the nominal one, or set the noise with --eps-for site",
    ),
    Flag(
        "ORACLE_WEAK",
        "the oracle is right less often than its own mean Phi(s_i) by what 4 standard errors are in an exact tail",
        "the attack or the recording is at fault; a WITHIN would rest on a broken instrument",
        "check that the recorded releases and hypotheses belong to the same run",
    ),
    Flag(
        "ORACLE_ABOVE_PREDICTION",
        "the oracle is right more often than its own mean Phi(s_i) by what 4 standard errors are in an exact tail",
        "the releases carry less noise than the mechanism declares, or the same noise twice",
        "look for passes without noise and for reused seeds",
    ),
    Flag(
        "ORACLE_BEATEN",
        "another attack reads more coins than the likelihood ratio, in a sign test at 3e-5",
        "no attack can beat the optimal test of the true hypotheses: those recorded are not the mechanism's",
        "record the hypotheses of the coin that was tossed: joint/0 and joint/1 set every moved task",
    ),
    Flag(
        "SHIFT",
        "a classifier that sees the records and no model tells members from others, at 99.9%",
        "members and others were not drawn alike: what the membership attacks score may be the difference between "
        "two kinds of records, and says nothing about the model",
        "draw members and others from one source by fair coins, and leave out what was added by time or place",
    ),
    Flag(
        "COINS_NOT_FAIR",
        "fair coins would be as lopsided as those of the canaries once in a million",
        "chance is not 1/2: natural labels were marked as canaries, or the coin was loaded",
        "draw each canary's label by a fair coin before training",
    ),
    Flag(
        "MOVES_EXCEED_CLIP",
        "a label moves some record's noise-free gradient by more than 2 C",
        "the mechanism does not clip as it declares: no statistics are needed",
        "clip each task's per-sample gradient before summing",
    ),
    Flag(
        "NOISE_NOT_AS_DECLARED",
        "in some release at some site the noise's variance is off its declared value by 6 standard errors",
        "noise is missing in a pass, too small, or given to some records only",
        "compare the code that adds the noise with the declared sigma, for every pass and every site",
    ),
    Flag(
        "NOISE_REUSED",
        "the noises of two releases, sites or records are correlated by 6 standard errors",
        "noise or a seed is used again; whoever holds both releases can subtract it",
        "draw fresh noise for every record, release and site",
    ),
    Flag(
        "CLIP_DEPENDS_ON_BATCH",
        "a record's clipped gradient changes when it is computed without its batch",
        "one record's release tells of others, or the clip acts on gradients that a mean over the batch made B times "
        "too small: no bound per record holds",
        "take per-sample gradients of the unreduced loss, without layers or losses that mix records; clip each alone",
    ),
    Flag(
        "CLIP_AFTER_SUM",
        "noise-free releases lie at the clip norm and never above it, though the mechanism declares a clip per task",
        "the sum over tasks is clipped, not each task: another mechanism, with another bound",
        "declare clip_unit sum, or clip each task's gradient before summing",
    ),
    Flag(
        "CLIP_NEVER_BINDS",
        "at the curious site less than 0.1% of per-sample gradients reach the clip norm in every epoch",
        "the noise is scaled to a norm that no gradient has; often a mean-reduced loss made them 1/B too small",
        "take per-sample gradients of the unreduced loss, or lower the clip norm",
    ),
    Flag(
        "SHUFFLED_CONTROL_FAILED",
        "the 99.9% interval of an attack on shuffled coins leaves out 1/2, or estimated inputs tell of records whose "
        "activations the attack was not given in their place more than one constant estimate for all does",
        "the scoring or the attack finds structure where there is none, such as the order of the records (or one audit "
        "in a thousand was unlucky)",
        "repeat with another --seed; if it stays, the record must not be used",
    ),
    Flag(
        "R2_RESTS_ON_ONE_RECORD",
        "more than half of the variance of an attack's mean R2 is one record's",
        "the interval, made for a mean over many records, is too narrow: seen to hold the truth in .50 to .85 of cases "
        "where few records carry most of the error",
        "score more records, or inputs in a scale without such extremes (the logarithm of a skewed lab value)",
    ),
    Flag(
        "CLEAN_CONTROL_FAILED",
        "an attack reads fewer than 90% of the coins from noise-free releases",
        "the attack is weak on this system; not finding leakage with it proves nothing",
        "train longer, use more canaries, or rely on the oracle",
    ),
    Flag(
        "CLIP_SET_FROM_DATA",
        "the clip norm was set from the private training gradients",
        "the norm itself tells something about the training records, and no epsilon here counts that",
        "fix the clip norm beforehand, or account for how it was found",
    ),
    Flag(
        "ENCODERS_LEARNED_NOTHING",
        "for no task the gain over frozen random encoders has an interval above what another seed of them gives",
        "the utility comes from the server; that the sites learned anything from the noised gradients was not seen",
        "do not quote this utility as the price of the privacy",
    ),
    Flag(
        "MEMBERS_NOT_TRAINED_ON",
        "a respondent whom a coin put in was in no update that the server took, because its client was not drawn, "
        "dropped out or was refused, or Poisson sampling drew it into no batch",
        "it counts as a member all the same: what membership attacks reach is lower than with everybody in",
        "use more rounds (--set reference_rounds=N), a larger fraction, or fewer dropouts",
    ),
    Flag(
        "ALIGNMENT_NOT_PRIVATE",
        "the sites' records were joined by their ids in the clear",
        "this audit does not cover what the alignment itself reveals",
        "use private set intersection in the real system",
    ),
)

VOIDING = frozenset(
    {
        "MOVES_EXCEED_CLIP",
        "NOISE_NOT_AS_DECLARED",
        "NOISE_REUSED",
        "CLIP_DEPENDS_ON_BATCH",
        "CLIP_AFTER_SUM",
        "ORACLE_WEAK",
        "ORACLE_ABOVE_PREDICTION",
        "ORACLE_BEATEN",
        "COINS_NOT_FAIR",
    }
)
"""Flags that refute the mechanism or break the instrument: with one of them no check may read as held."""

FLAGS: Mapping[str, Flag] = {flag.name: flag for flag in _ALL}
