r"""How flat a softmax of Gaussian logits is: its mean entropy and spread as functions of logit variance and length.

For n independent logits of variance v write phi(t) = E exp(-t e^x). With 1 / Z = int exp(-t Z) dt and the integral of
Frullani for log Z, every mean is one integral over t = e^u of powers of phi, exact for every n:

    E log Z         = int (exp(-t) - phi^n) du
    E sum_i p_i x_i = n int E[x t e^x exp(-t e^x)] phi^(n-1) du
    E sum_i p_i^2   = n int E[(t e^x)^2 exp(-t e^x)] phi^(n-1) du

and the mean entropy is the first less the second. Integrands are analytic and die out fast at both ends, so the
trapezoidal rule with a step of 1/4 in u, and of 0.6 standard deviations or 1/4 in x, whichever is smaller, is exact to
rounding. phi does not depend on n, so many lengths cost little more than one. Only differences of logits matter: for
equally correlated logits put v (1 - rho), and a common shift changes nothing.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headspan.distributions.lognormal import checked_variance
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces.rank import require_finite

if TYPE_CHECKING:
    from scipy.interpolate import RectBivariateSpline  # type: ignore[import-untyped,unused-ignore]

_STEP, _TAIL = 0.25, 9.0
"""Step of the trapezoidal rule, and where normal tails are cut, in standard deviations (2e-19 is left outside)."""
LARGEST_VARIANCE = 400.0
"""The table and the grids end here: a softmax of such logits is one key's."""
LARGEST_LENGTH = 2**24


def softmax_entropy(logits: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Entropy in nats of softmax over the last axis; -inf logits are masked keys, a row of them is an error.

    Returns
    -------
    Tensor
        In [0, log n]; log n for equal logits, about log n - v / 2 for independent logits of small variance v.
    """
    if logits.ndim < 1 or logits.shape[-1] < 1:
        raise ShapeError(f"a softmax needs at least 1 logit, found shape {tuple(logits.shape)}")
    logs = logits.double()
    if bool((logs.isnan() | (logs == math.inf)).any()) or bool((logs.amax(-1) == -math.inf).any()):
        raise ArgumentError(
            "a softmax needs logits that are finite, or -inf for masked keys, one at least finite in each row"
        )
    logs = torch.log_softmax(logs, -1)
    entropy: Tensor = torch.special.entr(logs.exp()).sum(-1)
    return entropy


def _lengths(keys: Tensor) -> Tensor:
    if keys.numel() and not 1 <= int(keys.min()) <= int(keys.max()) <= LARGEST_LENGTH:
        raise ArgumentError(f"a softmax needs 1 to {LARGEST_LENGTH} keys, found {int(keys.min())} to {int(keys.max())}")
    return keys.double()


def _integrals(variance: float, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E log Z, E sum p x and E sum p^2 of independent logits of that variance, for every length in `n` [m]."""
    s = math.sqrt(variance)
    step = min(0.6, _STEP / s) if s else 0.6
    x = torch.arange(-math.ceil(_TAIL / step), math.ceil(_TAIL / step) + 1, dtype=torch.float64) * step
    weights = step / math.sqrt(2 * math.pi) * (-x * x / 2).exp()
    # Below the left end n t E e^x is under rounding; beyond the right end every phi^n is.
    left = -(40 + math.log(float(n.max())) + min(variance / 2, _TAIL * s))
    u = torch.arange(math.floor(left / _STEP), math.ceil((_TAIL * s + 5) / _STEP) + 1, dtype=torch.float64) * _STEP
    # e^300 stands for all that lies beyond: exp(-t e^x) is 0 there, and products with it stay finite.
    hit = (u[:, None] + s * x).clamp(max=300.0).exp()
    missed = torch.expm1(-hit)
    fade = missed + 1
    # From 1 - phi where phi is near 1, from phi where it is small; -800 stands for the logarithm of 0.
    lost = missed @ weights
    log_phi = torch.where(lost > -0.5, torch.log1p(lost.clamp(min=-0.5)), (fade @ weights).log().clamp(min=-800.0))
    power = (log_phi[:, None] * (n - 1)).exp()
    whole = -torch.expm1(log_phi[:, None] * n) + torch.expm1(-u.exp())[:, None]
    log_z = _STEP * whole.sum(0)
    aligned = n * _STEP * (power * ((hit * fade) @ (weights * s * x))[:, None]).sum(0)
    squares = n * _STEP * (power * ((hit * hit * fade) @ weights)[:, None]).sum(0)
    return log_z, aligned, squares


def _by_variance(variance: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Mean entropy and mean sum of squared weights, one pass per distinct variance."""
    variance, n = torch.broadcast_tensors(checked_variance(variance), _lengths(keys))  # type: ignore[no-untyped-call]
    if variance.numel() and float(variance.max()) > LARGEST_VARIANCE:
        raise ArgumentError(
            f"logit variances up to {LARGEST_VARIANCE:g} are tabulated, found {float(variance.max()):.4g}"
        )
    entropy, squares = torch.empty_like(variance), torch.empty_like(variance)
    for value in torch.unique(variance).tolist():
        mine = variance == value
        lengths, place = torch.unique(n[mine], return_inverse=True)
        log_z, aligned, squared = _integrals(value, lengths)
        bounded = torch.minimum((log_z - aligned).clamp(min=0), lengths.log())
        entropy[mine], squares[mine] = bounded[place], squared.clamp(max=1)[place]
    return entropy, squares


def expected_entropy(variance: Float[Tensor, "*#shape"], keys: Int[Tensor, "*#shape"]) -> Float[Tensor, "*#shape"]:
    """Mean entropy, in nats, of a softmax over `keys` independent Gaussian logits of a variance; exact by quadrature.

    Parameters
    ----------
    variance
        Of one logit, 0 to 400; broadcasts with `keys`.
    keys
        How many logits, 1 or more.

    Returns
    -------
    Tensor
        float64, in [0, log n]: log n at variance 0, falling; absolute error about 1e-13. Small variances give
        log n - v (n - 1) / (2 n), large n log n - v / 2 while v < 2 log n.
    """
    return _by_variance(variance, keys)[0]


def expected_collision(variance: Float[Tensor, "*#shape"], keys: Int[Tensor, "*#shape"]) -> Float[Tensor, "*#shape"]:
    """Mean of sum_i p_i^2 of a softmax over independent Gaussian logits; exact by quadrature.

    In [1 / n, 1]; its inverse is the number of keys that a head effectively attends to. The variance of one weight is
    (this - 1 / n) / n, since every weight has mean 1 / n.
    """
    return _by_variance(variance, keys)[1]


_WIDE, _LONG = 72, 36
"""Nodes of the table: in asinh of the root of the variance, and in the logarithm of the length."""


@cache
def _table() -> RectBivariateSpline:
    """The entropy's share of log n as a spline of fifth order over (asinh of the root of the variance, log length)."""
    from scipy.interpolate import RectBivariateSpline

    across = np.linspace(0.0, math.asinh(math.sqrt(LARGEST_VARIANCE)), _WIDE)
    along = np.linspace(math.log(2), math.log(LARGEST_LENGTH), _LONG)
    lengths = torch.as_tensor(along).exp()
    rows = []
    for place in across:
        log_z, aligned, _ = _integrals(math.sinh(place) ** 2, lengths)
        rows.append(((log_z - aligned) / lengths.log()).numpy())
    return RectBivariateSpline(across, along, np.stack(rows), kx=5, ky=5)


def predicted_entropy(variance: Float[Tensor, "*#shape"], keys: Int[Tensor, "*#shape"]) -> Float[Tensor, "*#shape"]:
    """`expected_entropy` from a table: fast where every head and row has a variance of its own.

    The table is computed once in a process, in about a second. Variances above 400 count as 400, where at most a tenth
    of log n is left.

    Returns
    -------
    Tensor
        float64, in [0, log n]; within 1e-6 nats of `expected_entropy` (measured over variances 0 to 400 and 2 to 2^24
        keys). 0 for one key.
    """
    variance, n = torch.broadcast_tensors(checked_variance(variance), _lengths(keys))  # type: ignore[no-untyped-call]
    logs = n.log()
    across = variance.clamp(max=LARGEST_VARIANCE).sqrt().asinh()
    found: np.ndarray = _table().ev(across.numpy(), logs.clamp(min=math.log(2)).numpy())
    share: Tensor = torch.as_tensor(found)
    entropy: Tensor = share.clamp(0, 1) * logs
    return entropy


def flat_entropy(variance: Float[Tensor, "*#shape"], keys: Int[Tensor, "*#shape"]) -> Float[Tensor, "*#shape"]:
    """log n - v / 2, the entropy of a softmax over many logits of small variance; meaningless where v > 2 log n."""
    return _lengths(keys).log() - checked_variance(variance) / 2


def sampled_entropy(logits: Float[Tensor, "draws n"]) -> tuple[float, float]:
    """Mean entropy of the softmax of each row and its standard error; the error is NaN for one row."""
    require_finite(logits, "sampled logits")
    found = softmax_entropy(logits)
    return float(found.mean()), float(found.std() / math.sqrt(len(found))) if len(found) > 1 else math.nan
