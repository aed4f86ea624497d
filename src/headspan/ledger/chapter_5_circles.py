"""Chapter 5 of the thesis on spheres: simplices, scaling, and the divergence of softmax along great circles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import (
    SoftmaxPath,
    cosine_fit,
    mean_kl_law,
    random_pairs,
    slerp,
    slerp_velocity,
    slerp_weights,
    small_radius_kl,
    softmax_entropy,
    softmax_path,
    sphere_alignment,
)
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, near, same, variance_is

RIGHT = math.pi / 2


def _times(*t: float) -> Tensor:
    return torch.tensor(t, dtype=torch.float64)


@check("5.2.2b")
def sphere_and_simplex(draws: Draws) -> Evidence:
    n, radius = 12, 1.0
    v = draws.sphere(2000, n, radius=radius)
    mirrored = v - 2 * v.mean(-1, keepdim=True)
    p = torch.softmax(v, -1)
    gap = (p - torch.softmax(mirrored, -1)).abs().max()
    extreme = torch.zeros(n, dtype=torch.float64)
    extreme[:2] = _times(radius / math.sqrt(2), -radius / math.sqrt(2))
    ratio = torch.softmax(extreme, -1)
    return evidence(
        equals("difference of the softmaxes of mirrored points", gap, 0.0, 1e-12),
        at_most("largest ratio drawn", (p.amax(-1) / p.amin(-1)).max(), math.exp(math.sqrt(2) * radius)),
        equals("largest ratio there is", ratio[0] / ratio[1], math.exp(math.sqrt(2) * radius), 1e-12),
        printed=[at_least("difference of the softmaxes of two points", gap, 1e-6)],
        figures={"distance of mirrored points": (v - mirrored).norm(dim=-1).max()},
    )


@check("5.3")
def inner_products(draws: Draws) -> Evidence:
    n = 24
    normal = (draws.normal(150_000, n) * draws.normal(150_000, n)).sum(-1) / n
    sphere = (draws.sphere(150_000, n) * draws.sphere(150_000, n)).sum(-1)
    return evidence(
        mean_is("mean", normal, 0.0),
        variance_is("variance", normal, 1 / n),
        variance_is("variance on the sphere", sphere, 1 / n),
    )


@check("5.2.2c")
def length_of_sums(draws: Draws) -> Evidence:
    v, w = draws.sphere(100_000, 24), draws.sphere(100_000, 24)
    one, other = draws.pairs_at(math.cos(1.0), 4, 24)
    return evidence(
        near("mean squared length of v + w", (v + w).square().sum(-1).mean(), 2.0, 0.01),
        near("mean squared length of 0.6 v + 0.8 w", (0.6 * v + 0.8 * w).square().sum(-1).mean(), 1.0, 0.01),
        equals(
            "0.6 v + 0.8 w at 1 radian",
            (0.6 * one + 0.8 * other).norm(dim=-1)[0],
            math.sqrt(1 + 0.96 * math.cos(1.0)),
            1e-12,
        ),
        printed=[near("mean length of v + w", (v + w).norm(dim=-1).mean(), 1.0, 0.01)],
    )


@check("5.2.3a")
def scaling(draws: Draws) -> Evidence:
    v = draws.normal(10)
    alpha = torch.linspace(0, 6, 61, dtype=torch.float64)
    entropy = softmax_entropy(alpha[:, None] * v)
    at, step = 1.3, 1e-5
    p = torch.softmax(at * v, -1)
    slope = softmax_entropy((at + step) * v) - softmax_entropy((at - step) * v)
    return evidence(
        equals("entropy at 0", entropy[0], math.log(10), 1e-12),
        at_most("entropy at 10^6", softmax_entropy(1e6 * v), 1e-6),
        at_most("largest step", entropy.diff().max(), 0.0),
        equals("slope", slope / (2 * step), -at * ((p * v * v).sum() - (p * v).sum() ** 2), 1e-6),
    )


@check("5.2.3b")
def first_weight(draws: Draws) -> Evidence:
    angle = 1.1
    v, w = (side[0] for side in draws.pairs_at(math.cos(angle), 1, 6))
    return evidence(
        same("start of the path", slerp(v, w, _times(0.0))[0], v, 1e-12),
        printed=[same("start of the path", math.sin(-angle) / math.sin(angle) * v, v, 1e-12)],
    )


@check("5.2.3c")
def norm_of_weights(draws: Draws) -> Evidence:
    angle = _times(1.0)
    a, b = slerp_weights(angle, 0.4)
    c, d = slerp_weights(_times(RIGHT), 0.4)
    return evidence(
        equals("a^2 + b^2 + 2 a b cos theta", a * a + b * b + 2 * a * b * angle.cos(), 1.0, 1e-12),
        equals("norm at a right angle", torch.hypot(c, d), 1.0, 1e-12),
        printed=[equals("norm of the weights", torch.hypot(a, b), 1.0, 1e-12)],
    )


@check("5.5")
def slope_along_path(draws: Draws) -> Evidence:
    v, w = (side[0] for side in draws.pairs_at(0.0, 1, 6))
    target, at, step = torch.softmax(w, -1), 0.3, 1e-5
    points = slerp(v, w, _times(at - step, at, at + step))
    entropies = -(target * torch.log_softmax(points, -1)).sum(-1)
    numeric = (entropies[2] - entropies[0]) / (2 * step)
    slope = ((torch.softmax(points[1], -1) - target) * slerp_velocity(v, w, _times(at))[0]).sum()
    return evidence(equals("slope", numeric, slope, 1e-6), printed=[equals("slope", numeric, -slope, 1e-6)])


@check("5.6-5.11")
def velocity(draws: Draws) -> Evidence:
    v, w = (side[0] for side in draws.pairs_at(0.0, 1, 6))
    t, step = torch.linspace(0.1, 0.9, 9, dtype=torch.float64), 1e-5
    formula = RIGHT * ((RIGHT * t).cos()[:, None] * w - (RIGHT * t).sin()[:, None] * v)
    numeric = (slerp(v, w, t + step) - slerp(v, w, t - step)) / (2 * step)
    return evidence(
        same("velocity", slerp_velocity(v, w, t), formula, 1e-12), same("against differences", numeric, formula, 1e-8)
    )


@check("5.12-5.14")
def phase(draws: Draws) -> Evidence:
    v, w = draws.normal(12), draws.normal(12)
    turned = RIGHT * torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    exact, size = w * turned.cos() - v * turned.sin(), torch.hypot(v, w)
    return evidence(
        same("component", size * (turned + torch.atan2(v, w)).cos(), exact, 1e-12),
        printed=[same("component", size * (turned + torch.atan(-v / w)).cos(), exact, 1e-12)],
    )


@check("5.15")
def cosine_of_arctangent(draws: Draws) -> Evidence:
    found = torch.linspace(-50, 50, 2001, dtype=torch.float64).atan().cos()
    return evidence(at_least("smallest", found.min(), 0.0), at_most("largest", found.max(), 1.0))


TIMES = torch.linspace(0, 1, 41, dtype=torch.float64)


def _paths(draws: Draws, n: int, radius: float, pairs: int = 200, angle: float = RIGHT) -> SoftmaxPath:
    v, w = random_pairs(n, radius, angle, pairs, draws.generator)
    return softmax_path(v, w, TIMES)


def _residual(path: SoftmaxPath, values: Tensor) -> float:
    """The median over pairs of the largest deviation from a cosine, over the range of the curve."""
    return float(cosine_fit(values, TIMES, path.angle).residual.median())


@check("5.16-5.17")
def cross_entropy_along_path(draws: Draws) -> Evidence:
    v, w = draws.pairs_at(0.0, 50, 20)
    target = torch.softmax(w, -1)[:, None]
    entropy = -(target * torch.log_softmax(slerp(v, w, TIMES), -1)).sum(-1)
    along_v, along_w = (target[:, 0] * v).sum(-1, keepdim=True), (target[:, 0] * w).sum(-1, keepdim=True)
    sinusoid = (RIGHT * TIMES).cos() * along_v + (RIGHT * TIMES).sin() * along_w
    settings = {(10, 1.0): 400, (100, 1.0): 200, (1000, 1.0): 40, (100, 10.0): 200}
    found = {key: _paths(draws, *key, pairs=pairs) for key, pairs in settings.items()}
    medians = {key: _residual(path, path.kl) for key, path in found.items()}
    loose = {f"n = {n}, l = {size:g}": _paths(draws, n, size) for n, size in ((3, 1.0), (100, 30.0), (100, 100.0))}
    return evidence(
        same("decomposition", entropy, torch.logsumexp(slerp(v, w, TIMES), -1) - sinusoid, 1e-12),
        *(
            at_most(f"median deviation, n = {n}, l = {size:g}", value, 0.2 * max(1.0, size) / n)
            for (n, size), value in medians.items()
        ),
        figures={name: _residual(path, path.kl) for name, path in loose.items()},
    )


@check("5.17*")
def averaged_law(draws: Draws) -> Evidence:
    trials = []
    for n, radius, angle in ((10, 1.0, RIGHT), (10, 30.0, 1.0), (100, 10.0, 2.5), (3, 3.0, 2.0)):
        v, w = random_pairs(n, radius, angle, 3000, draws.generator)
        aligned = (torch.softmax(w, -1) * w).sum(-1, keepdim=True)
        left = softmax_path(v, w, TIMES[::5]).kl - aligned * mean_kl_law(1.0, angle, TIMES[::5])
        trials.append(mean_is(f"KL less the law, n = {n}, l = {radius:g}", left.mean(-1), 0.0))
    path = _paths(draws, 10, 30.0, 3000)
    average = cosine_fit(path.kl.mean(0), TIMES, torch.tensor(RIGHT))
    return evidence(
        *trials,
        at_most("deviation of the average, n = 10, l = 30", average.residual, 0.02),
        figures={"median deviation of single curves": _residual(path, path.kl)},
    )


@check("5.17b")
def no_dirac(draws: Draws) -> Evidence:
    path = _paths(draws, 10, 100.0, 3000)
    average = path.kl.mean(0)
    left = average[20] / average[0]
    fit = cosine_fit(path.jsd, TIMES, path.angle)
    middling = _paths(draws, 100, 5.0)
    return evidence(
        near("share of KL left half-way, l = 100", left, 1 - math.cos(math.pi / 4), 0.05),
        at_least("R^2 of the average", cosine_fit(average, TIMES, torch.tensor(RIGHT)).r2, 0.97),
        at_most("median deviation, n = 100, l = 5", _residual(middling, middling.kl), 0.01),
        at_least("Jensen-Shannon divergence at the start", path.jsd[:, 0].median(), 0.69),
        printed=[at_most("share of KL left half-way, l = 100", left, 0.05)],
        figures={"median deviation of the Jensen-Shannon divergence": fit.residual.median()},
    )


@check("5.17c")
def constants(draws: Draws) -> Evidence:
    trials = []
    for n, radius, count in ((100, 1.0, 20_000), (100, 2.0, 20_000), (1000, 1.0, 3000)):
        scale, _ = sphere_alignment(n, radius, count, draws.generator)
        trials.append(near(f"amplitude, n = {n}, l = {radius:g}", scale, radius**2 / n, 3 / n))
        sharper = small_radius_kl(n, radius, RIGHT, TIMES[:1])
        trials.append(near(f"amplitude by l^2 (n - 1) / n^2, n = {n}, l = {radius:g}", scale, sharper, 3 / n))
    path = _paths(draws, 100, 1.0, 2000)
    formula = (1 - (RIGHT * TIMES).sin()) / 100
    return evidence(*trials, same("average curve, n = 100, l = 1", path.kl.mean(0), formula, 0.03 * 0.01))


@check("5.18-5.19")
def which_entropy(draws: Draws) -> Evidence:
    v, w = (side[0] * 2 for side in draws.pairs_at(0.0, 1, 6))
    start = -(torch.softmax(v, -1) * torch.log_softmax(v, -1)).sum()
    return evidence(
        equals("value at t = 0", start - softmax_entropy(v), 0.0, 1e-12),
        printed=[equals("value at t = 0", start - softmax_entropy(w), 0.0, 1e-12)],
    )


@check("5.2.4J")
def jensen_shannon(draws: Draws) -> Evidence:
    paths = {radius: _paths(draws, 100, radius) for radius in (1.0, 2.0, 10.0, 30.0)}
    found = {radius: _residual(path, path.jsd) for radius, path in paths.items()}
    average = _paths(draws, 50, 20.0, 1000).jsd.mean(0)
    return evidence(
        at_most("median deviation, l = 1", found[1.0], 0.005),
        at_most("median deviation, l = 2", found[2.0], 0.005),
        at_least("deviation of the average, n = 50, l = 20", _of_average(average), 0.03),
        printed=[at_most("median deviation from a cosine, l = 30", found[30.0], 1e-6)],
        figures={"median deviation, l = 10": found[10.0]},
    )


def _of_average(curve: Tensor) -> float:
    return float(cosine_fit(curve, TIMES, torch.tensor(RIGHT)).residual)


@check("5.2.4H")
def entropy_on_sphere(draws: Draws) -> Evidence:
    n = 100
    found = {size: float(softmax_entropy(draws.sphere(10_000, n, radius=size)).mean()) for size in (1.0, 3.0, 10.0)}
    return evidence(
        *(equals(f"entropy, l = {size:g}", found[size], math.log(n) - size**2 / (2 * n), 1e-3) for size in (1.0, 3.0)),
        figures={"entropy, l = 10": found[10.0], "log n - l^2 / 2n, l = 10": math.log(n) - 0.5},
    )
