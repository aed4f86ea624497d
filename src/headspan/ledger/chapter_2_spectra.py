"""Chapter 2 of the thesis, section 5: spectra of random matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headspan.distributions import expected_norm, expected_smallest_gap, singular_vector_bound
from headspan.distributions.random_matrices import QUARTER_CIRCLE_MEAN
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.kolmogorov import ks_distance
from headspan.ledger.trial import Evidence, at_most, equals, mean_is, near
from headspan.statistics import mp_cdf, mp_edges, mp_typical, random_singular_values

claim = ClaimsOf("003")


def _singular_values(draws: Draws, m: int, n: int, sigma: float, count: int) -> Tensor:
    values: Tensor = torch.linalg.svdvals(draws.normal(count, m, n, sd=sigma))
    return values


@claim(
    "2.5a",
    kind="text",
    status="wrong",
    statement="A random matrix is U L U^T, with |eigenvalues| the squares of its singular values.",
    correction="It is P L P^-1 with mostly complex eigenvalues; about sqrt(2 n / pi) + 1/2 are real. They fill a disc "
    "of radius sigma sqrt n, singular values reach 2 sigma sqrt n.",
    tolerance="real eigenvalues to 4 standard errors of Edelman, Kostlan and Shub's series; largest below 1.2",
    reference="thesis 2.5",
)
def real_eigenvalues(draws: Draws) -> Evidence:
    n = 50
    A = draws.normal(300, n, n, sd=1 / math.sqrt(n))
    values = torch.linalg.eigvals(A)
    real = (values.imag == 0).sum(-1).double()
    leading = math.sqrt(2 * n / math.pi)
    large = torch.linalg.eigvals(draws.normal(200, 200, sd=1 / math.sqrt(200))).abs().max()
    sizes = values[0].abs().sort(descending=True).values
    squares = torch.linalg.svdvals(A[0]) ** 2
    return Evidence(
        printed=(
            equals("|A A^T - A^T A|", (A[0] @ A[0].T - A[0].T @ A[0]).abs().max(), 0.0, 1e-6),
            equals("|s^2 - |lambda||", (squares - sizes).abs().max(), 0.0, 1e-6),
        ),
        # Edelman, Kostlan and Shub (1994): the leading term alone is 8 % low at n = 50.
        truth=(
            mean_is("real eigenvalues", real, leading * (1 - 3 / (8 * n) - 3 / (128 * n**2)) + 0.5),
            at_most("largest |eigenvalue|", large, 1.2),
        ),
        figures={"sqrt(2 n / pi)": leading},
    )


@claim(
    "2.5b",
    kind="formula",
    status="wrong",
    statement="A random matrix stretches a unit vector to the length n sigma^2 on average.",
    correction="That is the mean of the squared length. The mean length is sigma sqrt2 Gamma((n+1)/2) / Gamma(n/2), "
    "about sigma sqrt n; both agree only at sigma^2 = 1/n.",
    tolerance="4 standard errors; printed form to 1 %",
    reference="thesis 2.5",
)
def stretch(draws: Draws) -> Evidence:
    n, sigma = 50, 0.3
    v = draws.sphere(n)
    lengths = torch.linalg.vector_norm(draws.normal(4000, n, n, sd=sigma) @ v, dim=1)
    return Evidence(
        printed=(near("length", lengths.mean(), n * sigma**2, 0.01),),
        truth=(
            mean_is("length", lengths, expected_norm(n, sigma)),
            mean_is("squared length", lengths**2, n * sigma**2),
        ),
    )


@claim(
    "2.5c",
    kind="formula",
    status="wrong",
    statement="Squared singular values of a square random matrix have the Marchenko-Pastur density on [0, 4 sigma^2].",
    correction="On [0, 4 n sigma^2]: sqrt(4 n s^2 x - x^2) / (2 pi n s^2 x). The printed law is that of A^T A / n.",
    tolerance="Kolmogorov-Smirnov distance below 0.01 at n = 300, 8 draws",
    reference="thesis 2.5",
)
def square_law(draws: Draws) -> Evidence:
    n, sigma = 300, 0.7
    s = _singular_values(draws, n, n, sigma, 8)
    return Evidence(
        printed=(at_most("distance to the law", ks_distance(mp_cdf(s, n, n, sigma / math.sqrt(n))), 0.01),),
        truth=(at_most("distance to the law", ks_distance(mp_cdf(s, n, n, sigma)), 0.01),),
        figures={"share outside the printed support": float((s**2 > 4 * sigma**2).double().mean())},
    )


@claim(
    "2.5d",
    kind="formula",
    status="wrong",
    statement="At Xavier scale the density is n sqrt(4 x / n - x^2) / (2 pi x) on [0, 4/n].",
    correction="sqrt(4 x - x^2) / (2 pi x) on [0, 4]; singular values follow the quarter circle, with mean 8 / (3 pi).",
    tolerance="Kolmogorov-Smirnov distance below 0.01",
    reference="thesis 2.5",
)
def xavier_law(draws: Draws) -> Evidence:
    n = 300
    s = _singular_values(draws, n, n, 1 / math.sqrt(n), 8)
    return Evidence(
        printed=(at_most("distance to the law", ks_distance(mp_cdf(s, n, n, 1 / n)), 0.01),),
        truth=(
            at_most("distance to the law", ks_distance(mp_cdf(s, n, n, 1 / math.sqrt(n))), 0.01),
            near("mean singular value", s.mean(), QUARTER_CIRCLE_MEAN, 0.005),
        ),
        figures={"largest square": float(s.max() ** 2)},
    )


@claim(
    "2.5e",
    kind="text",
    status="wrong",
    statement="The singular values of a symmetric random matrix follow the semicircle.",
    correction="Its eigenvalues do; singular values are their sizes and follow the quarter circle, as without "
    "symmetry.",
    tolerance="Kolmogorov-Smirnov distance below 0.01",
    reference="thesis 2.5",
)
def symmetric_law(draws: Draws) -> Evidence:
    n = 300
    A = draws.normal(8, n, n, sd=1 / math.sqrt(2 * n))
    values = torch.linalg.eigvalsh(A + A.mT)

    def semicircle(x: Tensor) -> Tensor:
        x = x.clamp(-2, 2)
        return 0.5 + x * (4 - x**2).sqrt() / (4 * math.pi) + (x / 2).asin() / math.pi

    quarter = mp_cdf(values.abs(), n, n, 1 / math.sqrt(n))
    return Evidence(
        printed=(at_most("singular values to the semicircle", ks_distance(semicircle(values.abs())), 0.01),),
        truth=(
            at_most("eigenvalues to the semicircle", ks_distance(semicircle(values)), 0.01),
            at_most("singular values to the quarter circle", ks_distance(quarter), 0.01),
        ),
    )


@claim(
    "2.5f",
    kind="text",
    status="approximate",
    statement="Xavier's variance 2 / (n + m) cancels the effect of the shape.",
    correction="Only for n = m. Squared singular values have mean 2 max(n, m) / (n + m) and edges "
    "2 (sqrt n ± sqrt m)^2 / (n + m).",
    tolerance="mean 1 %, edges 5 %",
    reference="thesis 2.5",
)
def xavier_shapes(draws: Draws) -> Evidence:
    m, n = 400, 1600
    sigma = math.sqrt(2 / (m + n))
    squares = (sigma * random_singular_values(m, n, 10, draws.seed())) ** 2
    low, high = mp_edges(m, n, sigma)
    return Evidence(
        truth=(
            near("mean square", squares.mean(), 2 * n / (m + n), 0.01),
            near("largest square", squares.amax(1).mean(), high**2, 0.05),
            near("smallest square", squares.amin(1).mean(), low**2, 0.05),
        )
    )


@claim(
    "2.5g",
    kind="text",
    status="asymptotic",
    statement="A spectrum samples its law at regular quantiles, with little jitter.",
    correction="The root mean square deviation from the quantiles is below one mean spacing, 2 / n.",
    tolerance="below 1.2 spacings at n = 256",
    reference="thesis 2.5, figure 2.4",
)
def rigid_spectrum(draws: Draws) -> Evidence:
    n = 256
    s = random_singular_values(n, n, 20, draws.seed()) / math.sqrt(n)
    rms = (s - mp_typical(n, n, 1 / math.sqrt(n))).square().mean().sqrt()
    return Evidence(truth=(at_most("rms deviation over spacing", rms / (2 / n), 1.2),), figures={"rms": float(rms)})


@claim(
    "2.5h",
    kind="formula",
    status="asymptotic",
    statement="The smallest gap between singular values is about c sigma / n.",
    correction="c = sqrt(pi), by P(min > e) ~ exp(-n^2 e^2 / (4 sigma^2)); the gap is s_(i-1) - s_i in descending "
    "order.",
    tolerance="5 % at n = 100",
    reference="thesis 2.5",
)
def smallest_gap(draws: Draws) -> Evidence:
    n = 100
    s = random_singular_values(n, n, 4000, draws.seed())
    gap = (s[:, :-1] - s[:, 1:]).amin(1)
    return Evidence(truth=(near("c", n * gap.mean(), n * expected_smallest_gap(n), 0.05),))


@claim(
    "2.5i",
    kind="text",
    status="holds",
    statement="The gap bounds how far a singular vector turns when the matrix is changed.",
    correction="Wedin: the sine is at most sqrt2 |E| / (gap - |E|).",
    tolerance="no violation in 300 trials",
    reference="thesis 2.5; Wedin (1972)",
)
def turning(draws: Draws) -> Evidence:
    A, E = draws.normal(300, 8, 8), draws.normal(300, 8, 8, sd=0.02)
    (U, s, _), (V, _, _) = torch.linalg.svd(A), torch.linalg.svd(A + E)
    sine = (1 - (U[:, :, 0] * V[:, :, 0]).sum(1) ** 2).clamp(min=0).sqrt()
    norms = torch.linalg.matrix_norm(E, ord=2)
    bounds = [singular_vector_bound(float(g), float(e)) for g, e in zip(s[:, 0] - s[:, 1], norms, strict=True)]
    violations = (sine > torch.tensor(bounds, dtype=torch.float64) + 1e-12).sum()
    return Evidence(truth=(equals("violations", violations, 0, 0),), figures={"largest sine": float(sine.max())})
