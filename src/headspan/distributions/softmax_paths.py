r"""Divergence of softmax distributions along a great circle, its cosine fit, and the law of its average.

Along x(t) from v to w on the sphere of radius l, at the angle theta,

    KL(t) = KL(softmax w || softmax x(t)) = LSE(x(t)) - LSE(w) + <softmax w, w - x(t)>.

The inner product is a sinusoid of frequency theta in t; only LSE, the logarithm of the normaliser, is not. So single
curves are near a cosine, and how near is what `cosine_fit` measures. On average over pairs at one angle the cosine is
exact, for every n, l and theta: x(t) is spread over the sphere as w is, so both LSE cancel, and x(t) is cos((1 - t)
theta) w plus a part orthogonal to w that has no preferred direction, so

    E KL(t) = c (1 - cos((1 - t) theta)),   c = E <softmax w, w>,   about l^2 (n - 1) / n^2 for l << sqrt n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.entropy_of_softmax import softmax_entropy
from headspan.distributions.slerp import angle_between, slerp
from headspan.errors import ShapeError
from headspan.subspaces.precision import require_finite


def kl_of_softmax(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """KL(softmax x || softmax y) over the last axis, in nats: log E e^(y - x) - E (y - x), means under softmax x.

    >= 0, 0 where x and y differ by a constant.
    """
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"two softmaxes need one number of logits, found {x.shape[-1]} and {y.shape[-1]}")
    x, y = x.double(), y.double()
    require_finite(x, "logits")
    require_finite(y, "logits")
    p, q = torch.log_softmax(x, -1), torch.log_softmax(y, -1)
    return (p.exp() * (p - q)).sum(-1).clamp(min=0)


def jsd_of_softmax(x: Float[Tensor, "*#batch n"], y: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """Jensen-Shannon divergence of softmax x and softmax y, in nats; in [0, log 2], its root is a metric."""
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"two softmaxes need one number of logits, found {x.shape[-1]} and {y.shape[-1]}")
    require_finite(x, "logits")
    require_finite(y, "logits")
    p, q = torch.log_softmax(x.double(), -1), torch.log_softmax(y.double(), -1)
    m = torch.logaddexp(p, q) - math.log(2)
    return 0.5 * (p.exp() * (p - m) + q.exp() * (q - m)).sum(-1).clamp(0, 2 * math.log(2))


@dataclass(frozen=True)
class SoftmaxPath:
    """What softmax distributions do along great circles from v to w, at times t.

    Every field but `t` and `angle` is [..., k]: `kl` is KL(softmax w || softmax x(t)), >= 0; `jsd` the Jensen-Shannon
    divergence from softmax w, in [0, log 2], and `distance` its root; `entropy` that of softmax x(t), in [0, log n].
    """

    t: Tensor
    angle: Tensor
    kl: Tensor
    jsd: Tensor
    entropy: Tensor

    @property
    def distance(self) -> Tensor:
        """The Jensen-Shannon distance, a metric; in [0, sqrt(log 2)]."""
        return self.jsd.sqrt()


def softmax_path(v: Float[Tensor, "*#batch n"], w: Float[Tensor, "*#batch m"], t: Float[Tensor, " k"]) -> SoftmaxPath:
    """Divergences from softmax w, and entropy, along the great circle from v to w (see `slerp` for what is refused)."""
    points, end = slerp(v, w, t).double(), w.double()[..., None, :]
    return SoftmaxPath(
        t=t.double(),
        angle=angle_between(v, w).double(),
        kl=kl_of_softmax(end, points),
        jsd=jsd_of_softmax(end, points),
        entropy=softmax_entropy(points),
    )


@dataclass(frozen=True)
class CosineFit:
    """amplitude cos(angle t + phase) + offset, by least squares, and what it leaves.

    `amplitude` >= 0, `phase` in (-pi, pi], `residual` the largest deviation over the range of the curve, >= 0 (NaN for
    a constant curve), `r2` the share of variance explained, at most 1; all [...].
    """

    amplitude: Tensor
    phase: Tensor
    offset: Tensor
    residual: Tensor
    r2: Tensor
    curve: Tensor
    """[..., k]: the fitted values."""


def cosine_fit(values: Float[Tensor, "*batch k"], t: Float[Tensor, " k"], angle: Float[Tensor, "*#batch"]) -> CosineFit:
    """The best sinusoid of frequency `angle` through curves over t, as the thesis conjectures for 5.16 and 5.17."""
    if values.shape[-1] != len(t) or len(t) < 4:
        raise ShapeError(
            f"a cosine fit needs 4 times or more, one for each value, found {len(t)} and {values.shape[-1]}"
        )
    require_finite(values, "the curve to fit")
    values, turned = values.double(), angle.double()[..., None] * t.double()
    design = torch.stack([turned.cos(), turned.sin(), torch.ones_like(turned)], -1)
    design = design.expand(*values.shape, 3)
    # By pseudo-inverse: at angle 0 the columns coincide, and the curve is a constant.
    weights = (torch.linalg.pinv(design) @ values[..., None])[..., 0]
    curve = (design @ weights[..., None])[..., 0]
    left = values - curve
    spread = values.amax(-1) - values.amin(-1)
    about = (values - values.mean(-1, keepdim=True)).square().sum(-1)
    return CosineFit(
        amplitude=torch.hypot(weights[..., 0], weights[..., 1]),
        phase=torch.atan2(-weights[..., 1], weights[..., 0]),
        offset=weights[..., 2],
        residual=left.abs().amax(-1) / torch.where(spread > 0, spread, math.nan),
        r2=1 - left.square().sum(-1) / torch.where(about > 0, about, math.nan),
        curve=curve,
    )


def mean_kl_law(scale: float, angle: float, t: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """c (1 - cos((1 - t) theta)): the KL from softmax w, averaged over all pairs of a sphere at one angle; exact.

    Parameters
    ----------
    scale
        c = E <softmax w, w>, see `sphere_alignment`.
    angle, t
        Between v and w; times.

    Returns
    -------
    Tensor
        In [0, 2 c], 0 at t = 1.
    """
    # 1 - cos = 2 sin^2 of the half, which keeps its digits near t = 1.
    return 2 * scale * ((1 - t.double()) * (angle / 2)).sin().square()


def sphere_alignment(n: int, radius: float, draws: int, generator: torch.Generator) -> tuple[float, float]:
    """c = E <softmax w, w> over the sphere of a radius in R^n, by Monte Carlo, and its standard error.

    In [0, radius]; l^2 (n - 1) / n^2 for l << sqrt n, and the mean of the largest coordinate for l >> sqrt n.
    Drawn as w and -w together, whose sum has no linear part.
    """
    if n < 1 or draws < 2:
        raise ShapeError(f"an average over a sphere needs at least 1 dimension and 2 draws, found {n} and {draws}")
    w = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    w = radius * w / w.norm(dim=-1, keepdim=True)
    found = 0.5 * ((torch.softmax(w, -1) - torch.softmax(-w, -1)) * w).sum(-1)
    return float(found.mean()), float(found.std()) / math.sqrt(draws)


def small_radius_kl(n: int, radius: float, angle: float, t: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """`mean_kl_law` with c = l^2 (n - 1) / n^2, its value for l << sqrt n."""
    if n < 1:
        raise ShapeError(f"a softmax needs at least 1 logit, found {n}")
    return mean_kl_law(radius**2 * (n - 1) / n**2, angle, t)


def exp_departure(vectors: Float[Tensor, "*batch m n"], weights: Float[Tensor, " k"]) -> Float[Tensor, "*batch"]:
    """How far exp of a combination is from the sum of single exponentials, relative to what exp does at all.

    With z = sum_i a_i v_i: the root mean square over coordinates of exp(z) - [sum_i exp(a_i v_i) - (m - 1)], which is
    about the cross terms sum_{i<j} a_i a_j v_i v_j, divided by that of exp(z) - 1.

    Returns
    -------
    Tensor
        >= 0. By chance, vectors of length l in R^n: about l sqrt(sum_{i<j} a_i^2 a_j^2) / (sqrt(n) |a|) for small l, 0
        for one vector; NaN where exp(z) = 1 everywhere.

    References
    ----------
    Thesis 5.3.2, with -(m - 1) in place of the printed +(m - 1).
    """
    if vectors.shape[-2] != len(weights):
        raise ShapeError(
            f"a combination needs a weight per vector, found {vectors.shape[-2]} vectors, {len(weights)} weights"
        )
    require_finite(vectors, "vectors to combine")
    require_finite(weights, "weights of a combination")
    parts = weights.double()[:, None] * vectors.double()
    signal = torch.expm1(parts.sum(-2))
    gap = signal - torch.expm1(parts).sum(-2)
    size = signal.square().sum(-1)
    return (gap.square().sum(-1) / torch.where(size > 0, size, math.nan)).sqrt()
