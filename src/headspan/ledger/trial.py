"""A trial: one number, what it should be, and how far off it may be. Evidence is a set of trials.

A check of the ledger never answers yes or no by itself: it hands over trials, so that every number a verdict rests on
is there to be read, and so that a number that is not one (NaN) cannot pass for a form that fails.

Random numbers for one check, and how far they are from a law.

Every check has its own stream, so that no check moves when another is added or left out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, SupportsFloat

import torch
from torch import Tensor

from headspan.errors import BrokenCheck

Relation = Literal["equals", "at most", "at least"]


@dataclass(frozen=True)
class Trial:
    """A measured number held against an expected one; `slack` is the absolute difference that is allowed."""

    name: str
    measured: float
    expected: float
    slack: float
    relation: Relation = "equals"

    def __post_init__(self) -> None:
        if math.isnan(self.measured) or math.isnan(self.expected):
            raise BrokenCheck(f"trial {self.name!r} compares {self.measured} with {self.expected}: not a number")
        if not (math.isfinite(self.slack) and self.slack >= 0):
            raise BrokenCheck(f"trial {self.name!r} allows a difference of {self.slack}, not one in 0..infinity")

    @property
    def holds(self) -> bool:
        """Whether the measured number is where it should be."""
        if self.relation == "at most":
            return self.measured <= self.expected + self.slack
        if self.relation == "at least":
            return self.measured >= self.expected - self.slack
        return self.measured == self.expected or abs(self.measured - self.expected) <= self.slack


@dataclass(frozen=True)
class Evidence:
    """What a check found.

    `truth` are the trials of the statement as it stands in the ledger (for a wrong claim: of the corrected form);
    `printed` those of the form as published, for a claim that is called wrong or could not be reproduced. `figures` are
    further numbers worth printing.
    """

    truth: tuple[Trial, ...]
    printed: tuple[Trial, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.truth:
            raise BrokenCheck("a check that tries nothing proves nothing: needed at least one trial")

    @property
    def truth_holds(self) -> bool:
        """Whether every trial of the right form comes out."""
        return all(trial.holds for trial in self.truth)

    @property
    def printed_holds(self) -> bool:
        """Whether every trial of the printed form comes out."""
        return all(trial.holds for trial in self.printed)


def evidence(
    *truth: Trial, printed: Iterable[Trial] = (), figures: Mapping[str, SupportsFloat] | None = None
) -> Evidence:
    """Evidence of the trials of the right form, those of the form as printed, and further numbers by name."""
    return Evidence(truth, tuple(printed), {name: float(value) for name, value in (figures or {}).items()})


def equals(name: str, measured: SupportsFloat, expected: SupportsFloat, slack: float) -> Trial:
    """A number that should equal another to an absolute difference of `slack`."""
    return Trial(name, float(measured), float(expected), slack)


def near(name: str, measured: SupportsFloat, expected: SupportsFloat, share: float) -> Trial:
    """A number that should equal another to a share of it: 0.01 for one per cent."""
    return Trial(name, float(measured), float(expected), share * abs(float(expected)))


def at_most(name: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 0.0) -> Trial:
    """A number that should not exceed a bound."""
    return Trial(name, float(measured), float(bound), slack, "at most")


def at_least(name: str, measured: SupportsFloat, bound: SupportsFloat, slack: float = 0.0) -> Trial:
    """A number that should not fall below a bound."""
    return Trial(name, float(measured), float(bound), slack, "at least")


def same(name: str, measured: Tensor, expected: Tensor | float, slack: float) -> Trial:
    """Arrays that should be equal: the largest absolute difference against zero."""
    return Trial(name, float((measured - expected).abs().max()), 0.0, slack)


def mean_is(name: str, draws: Tensor, expected: SupportsFloat, errors: float = 4.0) -> Trial:
    """The mean of independent draws `[n]`, to so many of its standard errors (chance of missing 4: 6e-5)."""
    if draws.ndim != 1 or draws.numel() < 2:
        raise BrokenCheck(f"trial {name!r} needs a list of at least 2 draws, found shape {tuple(draws.shape)}")
    error = float(draws.std()) / math.sqrt(draws.numel())
    return Trial(name, float(draws.mean()), float(expected), errors * error)


def variance_is(name: str, draws: Tensor, expected: SupportsFloat, errors: float = 4.0) -> Trial:
    """The variance of independent draws `[n]`, to so many standard errors of that variance."""
    squares = (draws - draws.mean()) ** 2
    return mean_is(name, squares * (draws.numel() / (draws.numel() - 1)), expected, errors)


class Draws:
    """Random arrays in float64, fixed by a seed and the name of the claim."""

    def __init__(self, seed: int, name: str) -> None:
        # torch uses the lowest 32 bits of a seed and drops the rest
        self.generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))

    def normal(self, *shape: int, sd: float = 1.0) -> Tensor:
        """Independent N(0, sd^2)."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64) * sd

    def uniform(self, *shape: int) -> Tensor:
        """Independent, uniform on [0, 1)."""
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def sphere(self, *shape: int, radius: float = 1.0) -> Tensor:
        """Points uniform on the sphere of that radius; the last axis holds coordinates."""
        x = self.normal(*shape)
        norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return radius * x / norms

    def pairs_at(self, cosine: float, count: int, n: int) -> tuple[Tensor, Tensor]:
        """Pairs of unit vectors `[count, n]`, each uniform, at a given cosine."""
        x, other = self.sphere(count, n), self.normal(count, n)
        other -= (other * x).sum(-1, keepdim=True) * x
        return x, cosine * x + (1 - cosine**2) ** 0.5 * torch.nn.functional.normalize(other, dim=-1)

    def haar(self, n: int, count: int | None = None) -> Tensor:
        """Orthogonal matrices `[count, n, n]` (or one `[n, n]`), uniform by Haar measure."""
        q: Tensor
        q, r = torch.linalg.qr(self.normal(*(() if count is None else (count,)), n, n))
        return q * torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)

    def covariance(self, n: int, floor: float = 0.3) -> Tensor:
        """A covariance `[n, n]` in general position, eigenvalues at least `floor`."""
        x = self.normal(n, 2 * n)
        return x @ x.T / (2 * n) + floor * torch.eye(n, dtype=torch.float64)

    def gaussian(self, mean: Tensor, covariance: Tensor, count: int) -> Tensor:
        """`count` draws `[count, n]` of N(mean, covariance)."""
        root: Tensor = torch.linalg.cholesky(covariance)
        return mean + self.normal(count, mean.shape[-1]) @ root.T

    def seed(self) -> int:
        """A seed for a function that takes one."""
        return int(torch.randint(2**31, (1,), generator=self.generator))


def ks_distance(share: Tensor) -> float:
    """Kolmogorov-Smirnov distance of draws from a law, given F(draw) of all; in [0, 1], 0 for a perfect fit."""
    ordered = share.flatten().sort().values
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(torch.maximum((ordered - steps[:-1]).max(), (steps[1:] - ordered).max()))
