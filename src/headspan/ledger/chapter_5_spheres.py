"""Chapter 5 of the thesis, second part: spheres and simplices, scaling, and walking along great circles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import slerp, slerp_velocity, slerp_weights, softmax_entropy
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, near, same, variance_is

claim = ClaimsOf("003")
RIGHT = math.pi / 2


def _times(*t: float) -> Tensor:
    return torch.tensor(t, dtype=torch.float64)


@claim(
    "5.2.2b",
    kind="text",
    status="wrong",
    statement="Softmax maps a sphere one-to-one onto the probability distributions.",
    correction="Two points that mirror one another along (1, ..., 1) have one softmax, and ratios of weights stay "
    "below exp(sqrt2 l), so most distributions are not reached.",
    tolerance="1e-12",
    reference="thesis 5.2.2",
)
def sphere_and_simplex(draws: Draws) -> Evidence:
    n, radius = 12, 1.0
    v = draws.sphere(2000, n, radius=radius)
    mirrored = v - 2 * v.mean(-1, keepdim=True)
    p = torch.softmax(v, -1)
    gap = (p - torch.softmax(mirrored, -1)).abs().max()
    extreme = torch.zeros(n, dtype=torch.float64)
    extreme[:2] = _times(radius / math.sqrt(2), -radius / math.sqrt(2))
    ratio = torch.softmax(extreme, -1)
    return Evidence(
        printed=(at_least("difference of the softmaxes of two points", gap, 1e-6),),
        truth=(
            equals("difference of the softmaxes of mirrored points", gap, 0.0, 1e-12),
            at_most("largest ratio drawn", (p.amax(-1) / p.amin(-1)).max(), math.exp(math.sqrt(2) * radius)),
            equals("largest ratio there is", ratio[0] / ratio[1], math.exp(math.sqrt(2) * radius), 1e-12),
        ),
        figures={"distance of mirrored points": float((v - mirrored).norm(dim=-1).max())},
    )


@claim(
    "5.3",
    kind="formula",
    status="holds",
    statement="Vectors with entries of variance 1/n have inner products of mean 0 and variance 1/n.",
    correction="The same is exact for independent points of the unit sphere.",
    tolerance="4 standard errors",
    reference="thesis 5.3",
)
def inner_products(draws: Draws) -> Evidence:
    n = 24
    normal = (draws.normal(150_000, n) * draws.normal(150_000, n)).sum(-1) / n
    sphere = (draws.sphere(150_000, n) * draws.sphere(150_000, n)).sum(-1)
    return Evidence(
        truth=(
            mean_is("mean", normal, 0.0),
            variance_is("variance", normal, 1 / n),
            variance_is("variance on the sphere", sphere, 1 / n),
        )
    )


@claim(
    "5.2.2c",
    kind="text",
    status="wrong",
    statement="Sums of random vectors keep their length.",
    correction="E |v + w|^2 = 2. A combination keeps the length on average if |lambda|_2 = 1, and always only for "
    "orthonormal vectors.",
    tolerance="1 %",
    reference="thesis 5.2.2",
)
def length_of_sums(draws: Draws) -> Evidence:
    v, w = draws.sphere(100_000, 24), draws.sphere(100_000, 24)
    one, other = draws.pairs_at(math.cos(1.0), 4, 24)
    return Evidence(
        printed=(near("mean length of v + w", (v + w).norm(dim=-1).mean(), 1.0, 0.01),),
        truth=(
            near("mean squared length of v + w", (v + w).square().sum(-1).mean(), 2.0, 0.01),
            near("mean squared length of 0.6 v + 0.8 w", (0.6 * v + 0.8 * w).square().sum(-1).mean(), 1.0, 0.01),
            equals(
                "0.6 v + 0.8 w at 1 radian",
                (0.6 * one + 0.8 * other).norm(dim=-1)[0],
                math.sqrt(1 + 0.96 * math.cos(1.0)),
                1e-12,
            ),
        ),
    )


@claim(
    "5.2.3a",
    kind="text",
    status="holds",
    statement="Scaling logits up leads to one certain outcome and entropy 0, scaling them down to log n.",
    correction="The way there is monotone: dH/d alpha = -alpha Var_p(v).",
    tolerance="1e-6",
    reference="thesis 5.2.3",
)
def scaling(draws: Draws) -> Evidence:
    v = draws.normal(10)
    alpha = torch.linspace(0, 6, 61, dtype=torch.float64)
    entropy = softmax_entropy(alpha[:, None] * v)
    at, step = 1.3, 1e-5
    p = torch.softmax(at * v, -1)
    slope = softmax_entropy((at + step) * v) - softmax_entropy((at - step) * v)
    return Evidence(
        truth=(
            equals("entropy at 0", entropy[0], math.log(10), 1e-12),
            at_most("entropy at 10^6", softmax_entropy(1e6 * v), 1e-6),
            at_most("largest step", entropy.diff().max(), 0.0),
            equals("slope", slope / (2 * step), -at * ((p * v * v).sum() - (p * v).sum() ** 2), 1e-6),
        )
    )


@claim(
    "5.2.3b",
    kind="typo",
    status="wrong",
    statement="SLERP is first printed with the weight sin((t - 1) theta) / sin theta for v.",
    correction="The weight is sin((1 - t) theta) / sin theta, as in the second print.",
    tolerance="1e-12",
    reference="thesis 5.2.3",
)
def first_weight(draws: Draws) -> Evidence:
    angle = 1.1
    v, w = (side[0] for side in draws.pairs_at(math.cos(angle), 1, 6))
    return Evidence(
        printed=(same("start of the path", math.sin(-angle) / math.sin(angle) * v, v, 1e-12),),
        truth=(same("start of the path", slerp(v, w, _times(0.0))[0], v, 1e-12),),
    )


@claim(
    "5.2.3c",
    kind="text",
    status="wrong",
    statement="SLERP keeps |lambda|_2 = 1.",
    correction="It keeps a^2 + b^2 + 2 a b cos theta = 1, which is |lambda|_2 = 1 only at a right angle.",
    tolerance="1e-12",
    reference="thesis 5.2.3",
)
def norm_of_weights(draws: Draws) -> Evidence:
    angle = _times(1.0)
    a, b = slerp_weights(angle, 0.4)
    c, d = slerp_weights(_times(RIGHT), 0.4)
    return Evidence(
        printed=(equals("norm of the weights", torch.hypot(a, b), 1.0, 1e-12),),
        truth=(
            equals("a^2 + b^2 + 2 a b cos theta", a * a + b * b + 2 * a * b * angle.cos(), 1.0, 1e-12),
            equals("norm at a right angle", torch.hypot(c, d), 1.0, 1e-12),
        ),
    )


@claim(
    "5.5",
    kind="formula",
    status="wrong",
    statement="Along the path the cross-entropy changes by sum_i (softmax(w) - softmax(v))_i v_i'.",
    correction="The sign is the other one: sum_i (softmax(v) - softmax(w))_i v_i', v the point of the path.",
    tolerance="1e-6",
    reference="thesis 5.5",
)
def slope_along_path(draws: Draws) -> Evidence:
    v, w = (side[0] for side in draws.pairs_at(0.0, 1, 6))
    target, at, step = torch.softmax(w, -1), 0.3, 1e-5
    points = slerp(v, w, _times(at - step, at, at + step))
    entropies = -(target * torch.log_softmax(points, -1)).sum(-1)
    numeric = (entropies[2] - entropies[0]) / (2 * step)
    slope = ((torch.softmax(points[1], -1) - target) * slerp_velocity(v, w, _times(at))[0]).sum()
    return Evidence(
        printed=(equals("slope", numeric, -slope, 1e-6),),
        truth=(equals("slope", numeric, slope, 1e-6),),
    )


@claim(
    "5.6-5.11",
    kind="formula",
    status="holds",
    statement="At a right angle the velocity of SLERP is pi/2 (cos(pi t/2) w - sin(pi t/2) v).",
    correction="The identity quoted beside it, cos(t + pi/2) = sin t, lacks a minus; it is not used.",
    tolerance="1e-8",
    reference="thesis 5.6 to 5.11",
)
def velocity(draws: Draws) -> Evidence:
    v, w = (side[0] for side in draws.pairs_at(0.0, 1, 6))
    t, step = torch.linspace(0.1, 0.9, 9, dtype=torch.float64), 1e-5
    formula = RIGHT * ((RIGHT * t).cos()[:, None] * w - (RIGHT * t).sin()[:, None] * v)
    numeric = (slerp(v, w, t + step) - slerp(v, w, t - step)) / (2 * step)
    return Evidence(
        truth=(
            same("velocity", slerp_velocity(v, w, t), formula, 1e-12),
            same("against differences", numeric, formula, 1e-8),
        )
    )


@claim(
    "5.12-5.14",
    kind="formula",
    status="wrong",
    statement="Each component of that velocity is a cosine with the phase arctan(-v_i / w_i).",
    correction="The phase is atan2(v_i, w_i): other sign, and the quadrant counts.",
    tolerance="1e-12",
    reference="thesis 5.12 to 5.14",
)
def phase(draws: Draws) -> Evidence:
    v, w = draws.normal(12), draws.normal(12)
    turned = RIGHT * torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    exact, size = w * turned.cos() - v * turned.sin(), torch.hypot(v, w)
    return Evidence(
        printed=(same("component", size * (turned + torch.atan(-v / w)).cos(), exact, 1e-12),),
        truth=(same("component", size * (turned + torch.atan2(v, w)).cos(), exact, 1e-12),),
    )


@claim(
    "5.15",
    kind="formula",
    status="holds",
    statement="The cosine of an arctangent lies between 0 and pi/2.",
    correction="Its range is (0, 1].",
    tolerance="exact",
    reference="thesis 5.15",
)
def cosine_of_arctangent(draws: Draws) -> Evidence:
    found = torch.linspace(-50, 50, 2001, dtype=torch.float64).atan().cos()
    return Evidence(truth=(at_least("smallest", found.min(), 0.0), at_most("largest", found.max(), 1.0)))
