"""Chapter 5 of the thesis, third part: divergence of softmax distributions along great circles."""

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
    small_radius_kl,
    softmax_entropy,
    softmax_path,
    sphere_alignment,
)
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, near, same

claim = ClaimsOf("003")
RIGHT = math.pi / 2
TIMES = torch.linspace(0, 1, 41, dtype=torch.float64)


def _paths(draws: Draws, n: int, radius: float, pairs: int = 200, angle: float = RIGHT) -> SoftmaxPath:
    v, w = random_pairs(n, radius, angle, pairs, draws.generator)
    return softmax_path(v, w, TIMES)


def _residual(path: SoftmaxPath, values: Tensor) -> float:
    """The median over pairs of the largest deviation from a cosine, over the range of the curve."""
    return float(cosine_fit(values, TIMES, path.angle).residual.median())


@claim(
    "5.16-5.17",
    kind="formula",
    status="approximate",
    statement="Along SLERP between orthogonal vectors the cross-entropy is exactly a cosine a cos(pi t/2 + b) + c.",
    correction="It is LSE(x(t)) - cos(pi t/2) <softmax w, v> - sin(pi t/2) <softmax w, w>, and LSE is no sinusoid. The "
    "median deviation over the range is 0.04/n for l -> 0, 0.12/n at l = 1 and 0.11 l/n up to l = sqrt n.",
    tolerance="decomposition 1e-12; median below 0.2 max(1, l) / n for l <= sqrt n, n >= 10",
    reference="thesis 5.16 and 5.17",
)
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
    return Evidence(
        truth=(
            same("decomposition", entropy, torch.logsumexp(slerp(v, w, TIMES), -1) - sinusoid, 1e-12),
            *(
                at_most(f"median deviation, n = {n}, l = {size:g}", value, 0.2 * max(1.0, size) / n)
                for (n, size), value in medians.items()
            ),
        ),
        figures={name: _residual(path, path.kl) for name, path in loose.items()},
    )


@claim(
    "5.17*",
    kind="added",
    status="holds",
    statement="Averaged over random pairs the divergence is exactly a cosine, which explains figure 5.1.",
    correction="E KL = c (1 - cos((1 - t) theta)) for every n, l and theta, with c = E <softmax w, w>, about "
    "l^2 (n - 1) / n^2 for l << sqrt n: the points of the path are spread as w is, so the normalisers cancel.",
    tolerance="4 standard errors, pooled over the path",
    reference="headspan, docs; compare thesis figure 5.1",
)
def averaged_law(draws: Draws) -> Evidence:
    trials = []
    for n, radius, angle in ((10, 1.0, RIGHT), (10, 30.0, 1.0), (100, 10.0, 2.5), (3, 3.0, 2.0)):
        v, w = random_pairs(n, radius, angle, 3000, draws.generator)
        aligned = (torch.softmax(w, -1) * w).sum(-1, keepdim=True)
        left = softmax_path(v, w, TIMES[::5]).kl - aligned * mean_kl_law(1.0, angle, TIMES[::5])
        trials.append(mean_is(f"KL less the law, n = {n}, l = {radius:g}", left.mean(-1), 0.0))
    path = _paths(draws, 10, 30.0, 3000)
    average = cosine_fit(path.kl.mean(0), TIMES, torch.tensor(RIGHT))
    return Evidence(
        truth=(*trials, at_most("deviation of the average, n = 10, l = 30", average.residual, 0.02)),
        figures={"median deviation of single curves": _residual(path, path.kl)},
    )


@claim(
    "5.17b",
    kind="text",
    status="not reproduced",
    statement="For l > 1 the curve of the divergence turns into that of a Dirac measure.",
    correction="The averaged KL has the same shape at every l: 1 - cos(pi/4) = 29 % of it is left half-way. Single "
    "curves leave the cosine only for l above sqrt n. What saturates, at log 2, is the Jensen-Shannon divergence.",
    tolerance="R^2 of a cosine above 0.97; the share left half-way within 5 %",
    reference="thesis 5.2.4",
)
def no_dirac(draws: Draws) -> Evidence:
    path = _paths(draws, 10, 100.0, 3000)
    average = path.kl.mean(0)
    left = average[20] / average[0]
    fit = cosine_fit(path.jsd, TIMES, path.angle)
    middling = _paths(draws, 100, 5.0)
    return Evidence(
        printed=(at_most("share of KL left half-way, l = 100", left, 0.05),),
        truth=(
            near("share of KL left half-way, l = 100", left, 1 - math.cos(math.pi / 4), 0.05),
            at_least("R^2 of the average", cosine_fit(average, TIMES, torch.tensor(RIGHT)).r2, 0.97),
            at_most("median deviation, n = 100, l = 5", _residual(middling, middling.kl), 0.01),
            at_least("Jensen-Shannon divergence at the start", path.jsd[:, 0].median(), 0.69),
        ),
        figures={"median deviation of the Jensen-Shannon divergence": float(fit.residual.median())},
    )


@claim(
    "5.17c",
    kind="formula",
    status="approximate",
    statement="Constants a, b and c of the cosine exist; they are not given.",
    correction="KL is about (l^2 / n)(1 - sin(pi t/2)): a = c = l^2 / n and b = pi/2.",
    tolerance="3/n of the value, l <= 2",
    reference="thesis 5.17",
)
def constants(draws: Draws) -> Evidence:
    trials = []
    for n, radius, count in ((100, 1.0, 20_000), (100, 2.0, 20_000), (1000, 1.0, 3000)):
        scale, _ = sphere_alignment(n, radius, count, draws.generator)
        trials.append(near(f"amplitude, n = {n}, l = {radius:g}", scale, radius**2 / n, 3 / n))
        sharper = small_radius_kl(n, radius, RIGHT, TIMES[:1])
        trials.append(near(f"amplitude by l^2 (n - 1) / n^2, n = {n}, l = {radius:g}", scale, sharper, 3 / n))
    path = _paths(draws, 100, 1.0, 2000)
    formula = (1 - (RIGHT * TIMES).sin()) / 100
    return Evidence(
        truth=(*trials, same("average curve, n = 100, l = 1", path.kl.mean(0), formula, 0.03 * 0.01)),
    )


@claim(
    "5.18-5.19",
    kind="typo",
    status="wrong",
    statement="KL from softmax(v) is the cross-entropy less H(softmax(w)).",
    correction="H(softmax(v)) is to be subtracted, so that the divergence is 0 at t = 0.",
    tolerance="1e-12",
    reference="thesis 5.18 and 5.19",
)
def which_entropy(draws: Draws) -> Evidence:
    v, w = (side[0] * 2 for side in draws.pairs_at(0.0, 1, 6))
    start = -(torch.softmax(v, -1) * torch.log_softmax(v, -1)).sum()
    return Evidence(
        printed=(equals("value at t = 0", start - softmax_entropy(w), 0.0, 1e-12),),
        truth=(equals("value at t = 0", start - softmax_entropy(v), 0.0, 1e-12),),
    )


@claim(
    "5.2.4J",
    kind="text",
    status="wrong",
    statement="The Jensen-Shannon divergence is a cosine as well, being a sum of two KL divergences.",
    correction="The mixture moves with t, so it is one only nearly, and for l << sqrt n only.",
    tolerance="median deviation below 0.005 at n = 100, l <= 2",
    reference="thesis 5.2.4",
)
def jensen_shannon(draws: Draws) -> Evidence:
    paths = {radius: _paths(draws, 100, radius) for radius in (1.0, 2.0, 10.0, 30.0)}
    found = {radius: _residual(path, path.jsd) for radius, path in paths.items()}
    average = _paths(draws, 50, 20.0, 1000).jsd.mean(0)
    return Evidence(
        printed=(at_most("median deviation from a cosine, l = 30", found[30.0], 1e-6),),
        truth=(
            at_most("median deviation, l = 1", found[1.0], 0.005),
            at_most("median deviation, l = 2", found[2.0], 0.005),
            at_least("deviation of the average, n = 50, l = 20", _of_average(average), 0.03),
        ),
        figures={"median deviation, l = 10": found[10.0]},
    )


def _of_average(curve: Tensor) -> float:
    return float(cosine_fit(curve, TIMES, torch.tensor(RIGHT)).residual)


@claim(
    "5.2.4H",
    kind="text",
    status="asymptotic",
    statement="Softmax of random points of the sphere has an entropy of about log n.",
    correction="log n - l^2 / (2 n) for l << sqrt n.",
    tolerance="1e-3 for l <= 3, n = 100",
    reference="thesis 5.2.4",
)
def entropy_on_sphere(draws: Draws) -> Evidence:
    n = 100
    found = {size: float(softmax_entropy(draws.sphere(10_000, n, radius=size)).mean()) for size in (1.0, 3.0, 10.0)}
    return Evidence(
        truth=tuple(
            equals(f"entropy, l = {size:g}", found[size], math.log(n) - size**2 / (2 * n), 1e-3) for size in (1.0, 3.0)
        ),
        figures={"entropy, l = 10": found[10.0], "log n - l^2 / 2n, l = 10": math.log(n) - 0.5},
    )
