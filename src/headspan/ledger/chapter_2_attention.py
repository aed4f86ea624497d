"""Chapter 2 of the thesis, sections 3 to 5: layer norm, positions, attention, and spectra of random matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import expected_norm, expected_smallest_gap, singular_vector_bound
from headspan.distributions.random_matrices import QUARTER_CIRCLE_MEAN
from headspan.ledger.claim import check
from headspan.ledger.trial import (
    Draws,
    Evidence,
    at_least,
    at_most,
    equals,
    evidence,
    ks_distance,
    mean_is,
    near,
    same,
    variance_is,
)
from headspan.statistics import mp_cdf, mp_edges, mp_typical, random_singular_values


@check("2.3a")
def layer_norm(draws: Draws) -> Evidence:
    x = -torch.log1p(-draws.uniform(1_000_000))
    skewness = (((x - x.mean()) / x.std()) ** 3).mean()
    rows = torch.nn.functional.layer_norm(draws.normal(5, 16) * 3 + 2, (16,), eps=0.0)
    return evidence(
        equals("skewness after standardizing", skewness, 2.0, 0.05),
        same("means of tokens", rows.mean(1), 0.0, 1e-12),
        same("variances of tokens", rows.var(1, correction=0), 1.0, 1e-12),
        printed=[equals("skewness after standardizing", skewness, 0.0, 0.05)],
    )


@check("2.3b")
def sinusoids(draws: Draws) -> Evidence:
    d, n = 128, 64
    w = 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * w
    table = torch.cat([angle.sin(), angle.cos()], 1)
    gap = torch.arange(n)[:, None] - torch.arange(n)
    by_lag = torch.cos(torch.arange(n, dtype=torch.float64)[:, None] * w).sum(1)
    cosine = by_lag / by_lag[0]
    turn = (cosine[1:] > cosine[:-1]).nonzero()[0, 0]
    return evidence(
        same("products less sum of cosines", table @ table.T, by_lag[gap.abs()], 1e-10),
        equals("cosine of neighbors", cosine[1], 0.9702, 5e-5),
        equals("first rise after distance", turn, 11, 0),
        figures={"at distance 5": cosine[5], "at distance 50": cosine[50]},
    )


@check("2.4a")
def scale_of_scores(draws: Draws) -> Evidence:
    d = 64
    q, k = draws.normal(2, 50_000, d)
    lengths = torch.linalg.vector_norm(q, dim=1)
    return evidence(
        mean_is("length", lengths, expected_norm(d)),
        variance_is("products of query and key", (q * k).sum(1), d),
        printed=[equals("root of the mean length", lengths.mean().sqrt(), math.sqrt(d), 0.1)],
    )


@check("2.4b")
def softmax_once(draws: Draws) -> Evidence:
    Q, K = draws.normal(2, 6, 8)
    once = (Q @ K.T / math.sqrt(8)).softmax(-1)
    eye = torch.eye(6, dtype=torch.float64)
    library = torch.nn.functional.scaled_dot_product_attention(Q, K, eye)
    return evidence(
        same("softmax once less attention", once, library, 1e-12),
        printed=[same("softmax twice less attention", once.softmax(-1), library, 1e-3)],
    )


@check("2.4c")
def attention_output(draws: Draws) -> Evidence:
    Q, K, V = draws.normal(3, 6, 8)
    weights = (Q @ K.T / math.sqrt(8)).softmax(-1)
    by_hand = torch.stack([sum((weights[i, j] * V[j] for j in range(6)), torch.zeros(8).double()) for i in range(6)])
    return evidence(
        same("sums of rows", weights.sum(1), 1.0, 1e-12),
        same("outputs", torch.nn.functional.scaled_dot_product_attention(Q, K, V), by_hand, 1e-12),
        at_least("smallest weight", weights.min(), 0.0),
    )


def _singular_values(draws: Draws, m: int, n: int, sigma: float, count: int) -> Tensor:
    values: Tensor = torch.linalg.svdvals(draws.normal(count, m, n, sd=sigma))
    return values


@check("2.5a")
def real_eigenvalues(draws: Draws) -> Evidence:
    n = 50
    A = draws.normal(300, n, n, sd=1 / math.sqrt(n))
    values = torch.linalg.eigvals(A)
    real = (values.imag == 0).sum(-1).double()
    leading = math.sqrt(2 * n / math.pi)
    large = torch.linalg.eigvals(draws.normal(200, 200, sd=1 / math.sqrt(200))).abs().max()
    sizes = values[0].abs().sort(descending=True).values
    squares = torch.linalg.svdvals(A[0]) ** 2
    return evidence(
        # Edelman, Kostlan and Shub (1994): the leading term alone is 8 % low at n = 50.
        mean_is("real eigenvalues", real, leading * (1 - 3 / (8 * n) - 3 / (128 * n**2)) + 0.5),
        at_most("largest |eigenvalue|", large, 1.2),
        printed=[
            equals("|A A^T - A^T A|", (A[0] @ A[0].T - A[0].T @ A[0]).abs().max(), 0.0, 1e-6),
            equals("|s^2 - |lambda||", (squares - sizes).abs().max(), 0.0, 1e-6),
        ],
        figures={"sqrt(2 n / pi)": leading},
    )


@check("2.5b")
def stretch(draws: Draws) -> Evidence:
    n, sigma = 50, 0.3
    v = draws.sphere(n)
    lengths = torch.linalg.vector_norm(draws.normal(4000, n, n, sd=sigma) @ v, dim=1)
    return evidence(
        mean_is("length", lengths, expected_norm(n, sigma)),
        mean_is("squared length", lengths**2, n * sigma**2),
        printed=[near("length", lengths.mean(), n * sigma**2, 0.01)],
    )


@check("2.5c")
def square_law(draws: Draws) -> Evidence:
    n, sigma = 300, 0.7
    s = _singular_values(draws, n, n, sigma, 8)
    return evidence(
        at_most("distance to the law", ks_distance(mp_cdf(s, n, n, sigma)), 0.01),
        printed=[at_most("distance to the law", ks_distance(mp_cdf(s, n, n, sigma / math.sqrt(n))), 0.01)],
        figures={"share outside the printed support": (s**2 > 4 * sigma**2).double().mean()},
    )


@check("2.5d")
def xavier_law(draws: Draws) -> Evidence:
    n = 300
    s = _singular_values(draws, n, n, 1 / math.sqrt(n), 8)
    return evidence(
        at_most("distance to the law", ks_distance(mp_cdf(s, n, n, 1 / math.sqrt(n))), 0.01),
        near("mean singular value", s.mean(), QUARTER_CIRCLE_MEAN, 0.005),
        printed=[at_most("distance to the law", ks_distance(mp_cdf(s, n, n, 1 / n)), 0.01)],
        figures={"largest square": s.max() ** 2},
    )


@check("2.5e")
def symmetric_law(draws: Draws) -> Evidence:
    n = 300
    A = draws.normal(8, n, n, sd=1 / math.sqrt(2 * n))
    values = torch.linalg.eigvalsh(A + A.mT)

    def semicircle(x: Tensor) -> Tensor:
        x = x.clamp(-2, 2)
        return 0.5 + x * (4 - x**2).sqrt() / (4 * math.pi) + (x / 2).asin() / math.pi

    quarter = mp_cdf(values.abs(), n, n, 1 / math.sqrt(n))
    return evidence(
        at_most("eigenvalues to the semicircle", ks_distance(semicircle(values)), 0.01),
        at_most("singular values to the quarter circle", ks_distance(quarter), 0.01),
        printed=[at_most("singular values to the semicircle", ks_distance(semicircle(values.abs())), 0.01)],
    )


@check("2.5f")
def xavier_shapes(draws: Draws) -> Evidence:
    m, n = 400, 1600
    sigma = math.sqrt(2 / (m + n))
    squares = (sigma * random_singular_values(m, n, 10, draws.seed())) ** 2
    low, high = mp_edges(m, n, sigma)
    return evidence(
        near("mean square", squares.mean(), 2 * n / (m + n), 0.01),
        near("largest square", squares.amax(1).mean(), high**2, 0.05),
        near("smallest square", squares.amin(1).mean(), low**2, 0.05),
    )


@check("2.5g")
def rigid_spectrum(draws: Draws) -> Evidence:
    n = 256
    s = random_singular_values(n, n, 20, draws.seed()) / math.sqrt(n)
    rms = (s - mp_typical(n, n, 1 / math.sqrt(n))).square().mean().sqrt()
    return evidence(at_most("rms deviation over spacing", rms / (2 / n), 1.2), figures={"rms": rms})


@check("2.5h")
def smallest_gap(draws: Draws) -> Evidence:
    n = 100
    s = random_singular_values(n, n, 4000, draws.seed())
    gap = (s[:, :-1] - s[:, 1:]).amin(1)
    return evidence(near("c", n * gap.mean(), n * expected_smallest_gap(n), 0.05))


@check("2.5i")
def turning(draws: Draws) -> Evidence:
    A, E = draws.normal(300, 8, 8), draws.normal(300, 8, 8, sd=0.02)
    (U, s, _), (V, _, _) = torch.linalg.svd(A), torch.linalg.svd(A + E)
    sine = (1 - (U[:, :, 0] * V[:, :, 0]).sum(1) ** 2).clamp(min=0).sqrt()
    norms = torch.linalg.matrix_norm(E, ord=2)
    bounds = [singular_vector_bound(float(g), float(e)) for g, e in zip(s[:, 0] - s[:, 1], norms, strict=True)]
    violations = (sine > torch.tensor(bounds, dtype=torch.float64) + 1e-12).sum()
    return evidence(equals("violations", violations, 0, 0), figures={"largest sine": sine.max()})
