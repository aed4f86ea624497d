r"""Walking from one point of a sphere to another along the great circle (SLERP), at any radius and any angle.

Between v and w of one length l at the angle theta, with m and d the directions of v + w and w - v (orthogonal),

    x(t) = l [cos((t - 1/2) theta) m + sin((t - 1/2) theta) d],   0 <= t <= 1.

This is sin((1 - t) theta) / sin(theta) v + sin(t theta) / sin(theta) w without the division: it stays on the sphere to
rounding at angles near 0 and near pi, where the usual weights lose all digits. The angle is 2 atan2(|w - v|, |w + v|).
Between antipodes every great circle is as short as any other, so there is no path to name: an error.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import DegenerateSubspace, ShapeError
from headspan.subspaces.precision import common_dtype, epsilon, require_finite


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
        raise ShapeError(
            f"SLERP needs two points of one sphere, found radii {float(radius.flatten()[worst]):.6g} and "
            f"{float(other.flatten()[worst]):.6g}; scale one of them"
        )
    return v, w * (radius / other), radius


def angle_between(v: Float[Tensor, "*#batch n"], w: Float[Tensor, "*#batch m"]) -> Float[Tensor, "*#batch"]:
    """The angle between two points of one sphere, in [0, pi]; exact to rounding at both ends, pi / 2 by chance."""
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
        raise ShapeError(f"a pair at an angle needs at least 2 dimensions and 1 draw, found {n} and {draws}")
    if not (radius > 0 and math.isfinite(radius)):
        raise DegenerateSubspace(f"a sphere needs a positive radius, found {radius:g}")
    v = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    v = v / v.norm(dim=-1, keepdim=True)
    u = torch.randn(draws, n, generator=generator, dtype=torch.float64)
    u = u - (u * v).sum(-1, keepdim=True) * v
    u = u / u.norm(dim=-1, keepdim=True)
    return radius * v, radius * (math.cos(angle) * v + math.sin(angle) * u)
