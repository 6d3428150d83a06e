"""The built-in cohort: seeded, physiological, shaped like the ICU data that PRISM-VFL is published on.

Each stay has an age, five chronic burdens and a severity that starts somewhere and drifts over 48 hours.
Vitals, labs and outcomes all follow from these, so that every site knows a part and none knows all.
No row is, or resembles, a real person. Ranges and prevalences are set to what ICU cohorts show
(mortality about 13%: PhysioNet Challenge 2012 set-a has 13.85%).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import optimize, signal, stats

from privbench.data.cohort import Cohort, Feature, SiteData, Splits, Task, join

Array = npt.NDArray[np.float64]

HOURS = 48

_BLOCK = 4_000
MORTALITY = 0.13
DECOMPENSATION = 0.035
PHENOTYPES = 25

VITALS = (
    Feature("heart rate", "1/min", 20, 220),
    Feature("systolic pressure", "mmHg", 40, 250),
    Feature("diastolic pressure", "mmHg", 15, 150),
    Feature("mean pressure", "mmHg", 20, 180),
    Feature("respiratory rate", "1/min", 4, 60),
    Feature("temperature", "°C", 32, 42),
    Feature("SpO2", "%", 50, 100),
)
LABS = (
    Feature("blood urea nitrogen", "mg/dL", 2, 200),
    Feature("creatinine", "mg/dL", 0.2, 20),
    Feature("glucose", "mg/dL", 30, 800),
    Feature("Glasgow coma scale", "points", 3, 15),
)
ADMISSION = (
    Feature("age", "years", 18, 95),
    Feature("height", "cm", 130, 210),
    Feature("weight", "kg", 35, 200),
)
TASKS = (
    Task("ihm", "A", ("in-hospital death",)),
    Task("decompensation", "B", ("death within 24 h after hour 48",)),
    Task("phenotyping", "C", tuple(f"phenotype {j + 1}" for j in range(PHENOTYPES))),
)

# Hourly probability of a measurement in a stay of average severity.
_VITAL_RATE = np.array([0.90, 0.80, 0.80, 0.80, 0.85, 0.30, 0.85])
_LAB_RATE = np.array([0.07, 0.07, 0.20, 0.25])
_ADMISSION_RATE = np.array([1.0, 0.55, 0.92])


def _disease_world() -> tuple[Array, Array, Array]:
    """Fixed coefficients of a fixed disease world, not parameters of a draw.

    Returns the mixing matrix [8, 9] from independent normals to the latents (age, five burdens, onset, drift),
    and the latents' weights in the death liability [8] and in the phenotype liabilities [25, 8].
    """
    own_age, own_frailty, own_onset, own_drift = np.eye(9)[[0, 1, 7, 8]]
    # Diseases come together: a shared frailty, part of it age, stands behind all five burdens.
    frailty = _unit(0.5 * own_age + 0.87 * own_frailty)
    burdens = [_unit(0.45 * frailty + 0.89 * own) for own in np.eye(9)[2:7]]
    onset = _unit(0.35 * own_age + 0.45 * burdens[2] + 0.80 * own_onset)
    mixing = np.stack([own_age, *burdens, onset, own_drift])
    death = np.array([0.05, 0, 0, 0, 0, 0.22, 0.50, 0.40])
    # The sick have more diagnoses of every kind: no loading is negative, each phenotype leans on one or two
    # burdens (cardiac, renal, infection, metabolic, neurological) and on the severity at admission.
    which = np.arange(PHENOTYPES)
    weights = np.zeros((PHENOTYPES, 8))
    weights[:, 1:6] = np.maximum(np.cos(0.7 * which[:, None] + 2 * np.pi * np.arange(5) / 5), 0) ** 2
    weights[:, 6] = 0.2 + 0.3 * np.sin(1.3 * which) ** 2
    spread = np.linalg.norm(weights @ mixing, axis=1, keepdims=True)
    return mixing, death, np.sqrt(0.6) * weights / spread


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)


_MIXING, _DEATH, _PHENOTYPE = _disease_world()
# Death within a day: the death liability and the drift, which are correlated.
_ACUTE = np.array([0.6, 0.5])
_DRIFT_SHARE = float((_MIXING @ _MIXING.T)[7] @ _DEATH)
_ACUTE_COVARIANCE = np.array([[1.0, _DRIFT_SHARE], [_DRIFT_SHARE, 1.0]])
_PREVALENCES = np.linspace(0.40, 0.05, PHENOTYPES)


def synthetic(rng: np.random.Generator, train: int = 2_000, validation: int = 500, test: int = 20_000) -> Splits:
    """Draw disjoint stays for training, validation and test.

    Each split has its own stream: the training stays do not change with the number of test stays.
    """
    streams = rng.spawn(3)
    sizes = (train, validation, test)
    first = np.cumsum((0, *sizes))
    drawn = [
        _draw_in_blocks(stream, size, start) for stream, size, start in zip(streams, sizes, first[:-1], strict=True)
    ]
    return Splits(*drawn)


def _draw_in_blocks(rng: np.random.Generator, count: int, first_id: int) -> Cohort:
    """Blocks keep the float64 intermediates of a large split small."""
    starts = range(0, max(count, 1), _BLOCK)
    blocks = [_draw(rng, min(_BLOCK, count - start), first_id + start) for start in starts]
    return join(blocks)


def _draw(rng: np.random.Generator, count: int, first_id: int) -> Cohort:
    latent = rng.normal(size=(count, 9)) @ _MIXING.T
    age = np.clip(64 + 16 * latent[:, 0], 18, 95)
    burden, onset, drift = latent[:, 1:6], latent[:, 6], latent[:, 7]
    severity = onset[:, None] + drift[:, None] * np.linspace(0, 1, HOURS) + 0.4 * _wander(rng, (count, HOURS))
    labels = _outcomes(rng, latent)
    values = {
        "A": _vitals(rng, severity, burden),
        "B": _labs(rng, severity, burden),
        "C": _admission(rng, age, burden)[:, None, :],
    }
    observed = {
        "A": _observe(rng, severity, _VITAL_RATE),
        "B": _observe(rng, severity, _LAB_RATE),
        "C": rng.random((count, 1, 3)) < _ADMISSION_RATE,
    }
    sites = {
        name: _site(features, values[name], observed[name])
        for name, features in (("A", VITALS), ("B", LABS), ("C", ADMISSION))
    }
    return Cohort(np.arange(first_id, first_id + count), sites, TASKS, labels)


def _site(features: tuple[Feature, ...], values: Array, observed: npt.NDArray[np.bool_]) -> SiteData:
    low = np.array([feature.low for feature in features])
    high = np.array([feature.high for feature in features])
    kept = np.where(observed, np.clip(values, low, high), 0.0)
    return SiteData(features, kept.astype(np.float32), observed)


def _wander(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A stationary AR(1) path with unit variance along axis 1 (correlation .9 from hour to hour)."""
    shocks = rng.normal(size=shape)
    shocks[:, 1:] *= np.sqrt(1 - 0.9**2)
    return np.asarray(signal.lfilter([1.0], [1.0, -0.9], shocks, axis=1))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _vitals(rng: np.random.Generator, severity: Array, burden: Array) -> Array:
    cardiac, _, infection, _, _ = (column[:, None] for column in burden.T)
    habit = rng.normal(size=(len(severity), 4, 1))
    path = _wander(rng, (len(severity), HOURS, 6))
    jitter = rng.normal(size=(len(severity), HOURS, 7))
    heart = 84 + 8 * severity + 4 * infection + 9 * habit[:, 0] + 5 * path[:, :, 0] + 2 * jitter[:, :, 0]
    systolic = 122 - 7 * severity + 6 * cardiac + 12 * habit[:, 1] + 8 * path[:, :, 1] + 4 * jitter[:, :, 1]
    diastolic = 0.48 * systolic + 4 - cardiac + 5 * habit[:, 2] + 4 * path[:, :, 2] + 2 * jitter[:, :, 2]
    mean = diastolic + (systolic - diastolic) / 3 + 2 * jitter[:, :, 3]
    breath = 18.5 + 2.2 * severity + 2 * habit[:, 3] + 2 * path[:, :, 3] + 1.5 * jitter[:, :, 4]
    temperature = 36.9 + 0.3 * infection + 0.12 * severity + 0.3 * path[:, :, 4] + 0.1 * jitter[:, :, 5]
    oxygen = 98.3 - 1.3 * _softplus(severity) + 1.0 * path[:, :, 5] + 0.6 * jitter[:, :, 6]
    return np.stack([heart, systolic, diastolic, mean, breath, temperature, oxygen], axis=2)


def _labs(rng: np.random.Generator, severity: Array, burden: Array) -> Array:
    _, renal, _, metabolic, neuro = (column[:, None] for column in burden.T)
    habit = 0.25 * rng.normal(size=(len(severity), 3, 1))
    path = _wander(rng, (len(severity), HOURS, 4))
    urea = np.exp(np.log(22) + 0.45 * renal + 0.22 * severity + habit[:, 0] + 0.10 * path[:, :, 0])
    creatinine = np.exp(np.log(1.1) + 0.45 * renal + 0.15 * severity + habit[:, 1] + 0.10 * path[:, :, 1])
    glucose = np.exp(np.log(132) + 0.25 * metabolic + 0.08 * severity + habit[:, 2] + 0.18 * path[:, :, 2])
    coma = np.rint(15.4 - 2.2 * _softplus(0.9 * neuro + 0.9 * severity - 0.6 + 0.5 * path[:, :, 3]))
    return np.stack([urea, creatinine, glucose, coma], axis=2)


def _admission(rng: np.random.Generator, age: Array, burden: Array) -> Array:
    tall = rng.normal(size=len(age)) + 0.9 * np.where(rng.random(len(age)) < 0.56, 1, -1)
    height = 169 + 7 * tall - 0.05 * (age - 64)
    weight = np.exp(np.log(78) + 0.11 * tall + 0.12 * burden[:, 3] + 0.16 * rng.normal(size=len(age)))
    return np.stack([np.floor(age), np.rint(height), np.round(weight, 1)], axis=1)


def _observe(rng: np.random.Generator, severity: Array, rate: Array) -> npt.NDArray[np.bool_]:
    """Irregular measurements: each stay has its own tempo, the sicker are measured more often."""
    tempo = 0.5 * rng.normal(size=(len(severity), 1))
    shift = 0.3 * severity + tempo
    logit = np.log(rate / (1 - rate)) + shift[:, :, None]
    return rng.random(logit.shape) < 1 / (1 + np.exp(-logit))


def _outcomes(rng: np.random.Generator, latent: Array) -> dict[str, npt.NDArray[np.int64]]:
    death = _liability(rng, latent, _DEATH)
    acute = _liability(rng, np.stack([death, latent[:, 7]], axis=1), _ACUTE, _ACUTE_COVARIANCE)
    dies = death > stats.norm.isf(MORTALITY)
    phenotypes = np.stack([_liability(rng, latent, weights) for weights in _PHENOTYPE], axis=1)
    return {
        "ihm": dies.astype(np.int64),
        "decompensation": (dies & (acute > _early_threshold())).astype(np.int64),
        "phenotyping": (phenotypes > stats.norm.isf(_PREVALENCES)).astype(np.int64),
    }


def _liability(
    rng: np.random.Generator, latent: Array, weights: Array, covariance: Array = _MIXING @ _MIXING.T
) -> Array:
    """weights . latent plus what nobody measures, with variance 1: a threshold then gives an exact prevalence."""
    explained = float(weights @ covariance @ weights)
    return np.asarray(latent @ weights + np.sqrt(1 - explained) * rng.normal(size=len(latent)))


def _early_threshold() -> float:
    """The cut on the acute liability at which deaths within 24 h have the wanted prevalence."""
    correlation = float((_ACUTE @ _ACUTE_COVARIANCE)[0])
    both = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    cut = stats.norm.isf(MORTALITY)

    def excess(threshold: float) -> float:
        return float(both.cdf([-cut, -threshold])) - DECOMPENSATION

    return float(optimize.brentq(excess, -3, 4))
