r"""Great circles on a sphere (SLERP), and the divergence of softmax distributions along them.

Between v and w of one length l at the angle theta, with m and d the directions of v + w and w - v (orthogonal),

    x(t) = l [cos((t - 1/2) theta) m + sin((t - 1/2) theta) d],   0 <= t <= 1.

This is sin((1 - t) theta) / sin(theta) v + sin(t theta) / sin(theta) w without the division: it stays on the sphere to
rounding at angles near 0 and near pi, where the usual weights lose all digits. The angle is 2 atan2(|w - v|, |w + v|).
Between antipodes every great circle is as short as any other, so there is no path to name: an error.

Along x(t) from v to w on the sphere of radius l, at the angle theta,

    KL(t) = KL(softmax w || softmax x(t)) = LSE(x(t)) - LSE(w) + <softmax w, w - x(t)>.

The inner product is a sinusoid of frequency theta in t; only LSE, the logarithm of the normalizer, is not. So single
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

from headspan.distributions.divergences import jsd_of_softmax, kl_of_softmax
from headspan.distributions.entropy_of_softmax import softmax_entropy
from headspan.errors import ArgumentError, DegenerateSubspace, ShapeError
from headspan.subspaces.rank import common_dtype, epsilon, require_finite


def _points(v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both points and their radius [..., 1], checked; the second is put on the first one's sphere to rounding."""
    if v.shape[-1:] != w.shape[-1:] or v.ndim < 1 or v.shape[-1] < 1:
        raise ShapeError(f"two points need one dimension, found shapes {tuple(v.shape)} and {tuple(w.shape)}")
    v, w = torch.broadcast_tensors(*common_dtype(v, w))  # type: ignore[no-untyped-call]
    require_finite(v, "a point of the sphere")
    require_finite(w, "a point of the sphere")
    radius, other = v.norm(dim=-1, keepdim=True), w.norm(dim=-1, keepdim=True)
    if bool((radius == 0).any()) or bool((other == 0).any()):
        raise DegenerateSubspace("SLERP needs points on a sphere, found a zero vector, which has no direction")
    uneven = (other / radius - 1).abs()
    if bool((uneven > 1e3 * epsilon(v)).any()):
        worst = int(uneven.flatten().argmax())
        raise ArgumentError(
            f"SLERP needs two points of one sphere, found radii {float(radius.flatten()[worst]):.6g} and "
            f"{float(other.flatten()[worst]):.6g}; scale one of them"
        )
    return v, w * (radius / other), radius


def angle_between(v: Float[Tensor, "*#batch n"], w: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """The angle between two points of one sphere, in [0, pi]; exact to rounding at both ends, pi / 2 under the null."""
    v, w, _ = _points(v, w)
    return 2 * torch.atan2((w - v).norm(dim=-1), (w + v).norm(dim=-1))


def _frame(v: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The angle [..., 1, 1], and l m and l d [..., 1, n] of the module's formula."""
    v, w, radius = _points(v, w)
    total, change = w + v, w - v
    long, short = total.norm(dim=-1, keepdim=True), change.norm(dim=-1, keepdim=True)
    if bool((long <= 4 * epsilon(v) * radius).any()):
        raise DegenerateSubspace(
            "SLERP needs points that are not antipodes, found w = -v; walk by way of a third point"
        )
    angle = 2 * torch.atan2(short, long)
    # Equal points: the difference has no direction and needs none, its sine is 0.
    middle, across = total / long, change / torch.where(short > 0, short, 1.0)
    # The shorter of the two was rounded more: it is made orthogonal to the longer.
    near, overlap = long >= short, (middle * across).sum(-1, keepdim=True)
    middle = torch.where(near, middle, torch.nn.functional.normalize(middle - overlap * across, dim=-1))
    across = torch.where(near & (short > 0), torch.nn.functional.normalize(across - overlap * middle, dim=-1), across)
    return angle[..., None], radius[..., None] * middle[..., None, :], radius[..., None] * across[..., None, :]


def _times(t: Tensor, like: Tensor) -> Tensor:
    require_finite(t, "the times of a path")
    return t.to(like.dtype)[:, None]


def slerp(v: Float[Tensor, "*#batch n"], w: Float[Tensor, "*#batch m"], t: Float[Tensor, " k"]) -> Tensor:
    """The points at times t on the shortest great circle from v (t = 0) to w (t = 1).

    Parameters
    ----------
    v, w
        Points of one sphere about 0, batched; not 0 and not antipodes. Equal points give a constant path.
    t
        [k], any finite times: beyond [0, 1] the walk goes on around the circle.

    Returns
    -------
    Tensor
        [..., k, n], of the radius of v.

    References
    ----------
    Shoemake (1985), Animating rotation with quaternion curves.
    """
    angle, middle, across = _frame(v, w)
    turned = (_times(t, angle) - 0.5) * angle
    return turned.cos() * middle + turned.sin() * across


def slerp_velocity(v: Float[Tensor, "*#batch n"], w: Float[Tensor, "*#batch m"], t: Float[Tensor, " k"]) -> Tensor:
    """d/dt of `slerp`, [..., k, n]: of constant length l theta and orthogonal to the path."""
    angle, middle, across = _frame(v, w)
    turned = (_times(t, angle) - 0.5) * angle
    return angle * (turned.cos() * across - turned.sin() * middle)


def slerp_weights(angle: Float[Tensor, "*shape"], t: float) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The weights of v and of w at time t, sin((1 - t) theta) / sin theta and sin(t theta) / sin theta.

    They satisfy a^2 + b^2 + 2 a b cos theta = 1, hence a^2 + b^2 = 1 only at a right angle. At angle 0 they are 1 - t
    and t, the limit; at pi they are infinite, save at the ends.
    """
    angle = angle.double()
    if bool(((angle < 0) | (angle >= math.pi) | angle.isnan()).any()):
        raise DegenerateSubspace(f"the weights of SLERP need angles in [0, pi), found {angle.flatten().tolist()[:3]}")
    sine = torch.where(angle > 0, angle.sin(), 1.0)
    first = torch.where(angle > 0, ((1 - t) * angle).sin() / sine, 1 - t)
    return first, torch.where(angle > 0, (t * angle).sin() / sine, t)


def random_pairs(
    n: int, radius: float, angle: float, draws: int, generator: torch.Generator
) -> tuple[Float[Tensor, "draws n"], Float[Tensor, "draws n"]]:
    """Pairs spread evenly over those of a sphere in R^n at a given angle to one another, in float64."""
    if n < 2 or draws < 1:
        raise ArgumentError(f"a pair at an angle needs at least 2 dimensions and 1 draw, found {n} and {draws}")
    if not (radius > 0 and math.isfinite(radius)):
        raise DegenerateSubspace(f"a sphere needs a positive radius, found {radius:g}")
    v = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    v = v / v.norm(dim=-1, keepdim=True)
    u = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    u = u - (u * v).sum(-1, keepdim=True) * v
    u = u / u.norm(dim=-1, keepdim=True)
    return radius * v, radius * (math.cos(angle) * v + math.sin(angle) * u)


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
        raise ArgumentError(f"an average over a sphere needs at least 1 dimension and 2 draws, found {n} and {draws}")
    w = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    w = radius * w / w.norm(dim=-1, keepdim=True)
    found = 0.5 * ((torch.softmax(w, -1) - torch.softmax(-w, -1)) * w).sum(-1)
    return float(found.mean()), float(found.std()) / math.sqrt(draws)


def small_radius_kl(n: int, radius: float, angle: float, t: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """`mean_kl_law` with c = l^2 (n - 1) / n^2, its value for l << sqrt n."""
    if n < 1:
        raise ArgumentError(f"a softmax needs at least 1 logit, found {n}")
    return mean_kl_law(radius**2 * (n - 1) / n**2, angle, t)
