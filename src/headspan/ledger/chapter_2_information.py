"""Chapter 2 of the thesis, section 2: entropy, divergence and mutual information of Gaussians."""

from __future__ import annotations

import math

import torch
from scipy import linalg
from torch import Tensor
from torch.distributions import MultivariateNormal

from headspan.distributions import (
    canonical_correlations,
    cross_entropy,
    entropy,
    information_estimate,
    jensen_shannon,
    kl_divergence,
    moment_matched_jsd,
    mutual_information,
    sample_moments,
)
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, mean_is, near

claim = ClaimsOf("003")
COUNT = 200_000


def _pair(draws: Draws, d: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return draws.normal(d), draws.covariance(d), draws.normal(d), draws.covariance(d)


def _printed_cross_entropy(mu1: Tensor, S1: Tensor, mu2: Tensor, S2: Tensor) -> Tensor:
    gap = mu1 - mu2
    rest = torch.linalg.solve(S2, S1).trace() + gap @ torch.linalg.solve(S2, gap)
    printed: Tensor = 0.5 * (len(gap) * math.log(2 * math.pi * math.e) + torch.logdet(S2) + rest)
    return printed


def _log_density(mu: Tensor, S: Tensor, x: Tensor) -> Tensor:
    """By torch's own law, so that nothing of ours judges itself."""
    density: Tensor = MultivariateNormal(mu, S).log_prob(x)  # type: ignore[no-untyped-call]
    return density


def _surprise(draws: Draws, pair: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """-log q at draws of p."""
    return -_log_density(pair[2], pair[3], draws.gaussian(*pair[:2], COUNT))


@claim(
    "2.2a",
    kind="formula",
    status="holds",
    statement="The entropy of N(mu, Sigma) is 1/2 log((2 pi e)^d |Sigma|).",
    tolerance="4 standard errors",
    reference="thesis 2.2",
)
def gaussian_entropy(draws: Draws) -> Evidence:
    mu, S = draws.normal(4), draws.covariance(4)
    return Evidence(truth=(mean_is("entropy", _surprise(draws, (mu, S, mu, S)), entropy(S)),))


@claim(
    "2.2c",
    kind="formula",
    status="wrong",
    statement="Cross-entropy of two Gaussians, with the normaliser (2 pi e)^d |S2|.",
    correction="The normaliser is (2 pi)^d |S2|: the e belongs to the entropy. As printed it is d/2 nats too large.",
    tolerance="4 standard errors; the excess is d/2 to 1e-12",
    reference="thesis 2.2",
)
def gaussian_cross_entropy(draws: Draws) -> Evidence:
    pair = _pair(draws, 4)
    surprise, printed, right = _surprise(draws, pair), _printed_cross_entropy(*pair), cross_entropy(*pair)
    return Evidence(
        printed=(mean_is("cross-entropy", surprise, printed),),
        truth=(mean_is("cross-entropy", surprise, right), equals("excess", printed - right, 2.0, 1e-12)),
    )


@claim(
    "2.2d",
    kind="formula",
    status="wrong",
    statement="KL(p || q) = H(p, q) - H(p), which is 0 for q = p.",
    correction="The identity is right, but with 2.2c as printed KL(p || p) is d/2. Use 1/2 [tr(S2^-1 S1) + squared "
    "Mahalanobis distance - d + log |S2| / |S1|].",
    tolerance="4 standard errors; KL(p || p) to 1e-12",
    reference="thesis 2.2",
)
def gaussian_kl(draws: Draws) -> Evidence:
    mu1, S1, mu2, S2 = _pair(draws, 4)
    x = draws.gaussian(mu1, S1, COUNT)
    gain = _log_density(mu1, S1, x) - _log_density(mu2, S2, x)
    own = _printed_cross_entropy(mu1, S1, mu1, S1) - entropy(S1)
    return Evidence(
        printed=(equals("KL(p || p)", own, 0.0, 1e-12),),
        truth=(
            mean_is("KL", gain, kl_divergence(mu1, S1, mu2, S2)),
            equals("KL(p || p)", kl_divergence(mu1, S1, mu1, S1), 0.0, 1e-12),
        ),
    )


@claim(
    "2.2e",
    kind="text",
    status="wrong",
    statement="The first term of the cross-entropy is H(q), the third is the Mahalanobis distance.",
    correction="The first is H(q) - d/2, the third half the squared distance.",
    tolerance="1e-12",
    reference="thesis 2.2",
)
def terms_of_cross_entropy(draws: Draws) -> Evidence:
    d = 4
    mu1, S1, mu2, S2 = _pair(draws, d)
    gap = mu1 - mu2
    squared = float(gap @ torch.linalg.solve(S2, gap))
    trace = 0.5 * float(torch.linalg.solve(S2, S1).trace())
    first = 0.5 * (d * math.log(2 * math.pi) + float(torch.logdet(S2)))
    third = float(cross_entropy(mu1, S1, mu2, S2)) - first - trace
    return Evidence(
        printed=(equals("first", first, entropy(S2), 1e-9), equals("third", third, math.sqrt(squared), 1e-9)),
        truth=(equals("first", first, entropy(S2) - d / 2, 1e-12), equals("third", third, squared / 2, 1e-12)),
    )


@claim(
    "2.2f",
    kind="text",
    status="wrong",
    statement="tr(S2^-1 S1) adds up how well the columns of both covariances align, |a_i| cos / |b_i|.",
    correction="It is the sum of the generalised eigenvalues of (S1, S2). The columns may be read so only if S2 is "
    "diagonal; otherwise the dual basis is needed.",
    tolerance="1e-10",
    reference="thesis 2.2",
)
def trace_term(draws: Draws) -> Evidence:
    S1, S2 = draws.covariance(4), draws.covariance(4)
    flat = torch.diag(S2.diagonal())

    def literal(T: Tensor) -> float:
        return float(((S1 * T).sum(0) / T.square().sum(0)).sum())

    def trace(T: Tensor) -> Tensor:
        found: Tensor = torch.linalg.solve(T, S1).trace()
        return found

    return Evidence(
        printed=(equals("trace", trace(S2), literal(S2), 1e-6),),
        truth=(
            equals("trace", trace(S2), float(linalg.eigh(S1.numpy(), S2.numpy(), eigvals_only=True).sum()), 1e-10),
            equals("diagonal S2: trace", trace(flat), literal(flat), 1e-10),
        ),
    )


@claim(
    "2.2g",
    kind="formula",
    status="approximate",
    statement="The Jensen-Shannon divergence of two Gaussians, with m their mean.",
    correction="m is a mixture and there is no closed form. The Gaussian of its moments overestimates by KL(m || that "
    "Gaussian), and can pass log 2; so does the Gaussian of averaged parameters.",
    tolerance="quadrature to 5e-5 of 0.6327; 4 standard errors",
    reference="thesis 2.2",
)
def gaussian_jsd(draws: Draws) -> Evidence:
    one, zero, four = torch.eye(1, dtype=torch.float64), torch.zeros(1).double(), torch.full((1,), 4.0).double()
    exact, matched = jensen_shannon(zero, one, four, one), float(moment_matched_jsd(zero, one, four, one))
    x = torch.cat([draws.normal(COUNT), draws.normal(COUNT) + 4])
    log_m = torch.logaddexp(-0.5 * x**2, -0.5 * (x - 4) ** 2) - math.log(2) - 0.5 * math.log(2 * math.pi)
    log_g = -0.5 * (x - 2) ** 2 / 5 - 0.5 * math.log(2 * math.pi * 5)
    pair = _pair(draws, 3)
    drawn = jensen_shannon(*pair, samples=20_000, seed=draws.seed())
    again = jensen_shannon(*pair, samples=20_000, seed=draws.seed())
    error = math.hypot(float(drawn.standard_error), float(again.standard_error))
    # Both halves of the sample come from one component each, so their mean is stratified: errors are a little too wide.
    return Evidence(
        truth=(
            equals("gap 4: divergence", exact.value, 0.6327, 5e-5),
            at_most("gap 4: divergence", exact.value, math.log(2)),
            mean_is("moment-matched less divergence", log_m - log_g, matched - float(exact.value)),
            equals("two seeds", drawn.value, again.value, 4 * error),
        ),
        figures={"moment-matched": matched, "averaged parameters": 2.0, "log 2": math.log(2)},
    )


@claim(
    "2.2h",
    kind="formula",
    status="holds",
    statement="The root of the Jensen-Shannon divergence is a metric.",
    correction="The divergence itself is not.",
    tolerance="no violation at 1e-9 among 900 triples",
    reference="thesis 2.2",
)
def root_is_a_metric(draws: Draws) -> Evidence:
    mean, sd = 2 * draws.normal(900, 3, 1), 0.2 + 2 * draws.uniform(900, 3, 1)

    def divergence(i: int, j: int) -> Tensor:
        return jensen_shannon(mean[:, i], sd[:, i, :, None] ** 2, mean[:, j], sd[:, j, :, None] ** 2).value

    first, second, whole = divergence(0, 1), divergence(1, 2), divergence(0, 2)
    detour = first.sqrt() + second.sqrt()
    return Evidence(
        truth=(
            equals("violations by the root", (whole.sqrt() > detour + 1e-9).sum(), 0, 0),
            at_least("violations by the divergence", (whole > first + second + 1e-9).sum(), 1),
        )
    )


@claim(
    "2.2i",
    kind="formula",
    status="holds",
    statement="The mutual information of Gaussians is 1/2 log(|S_X| |S_Y| / |S|).",
    correction="S is the covariance of both together.",
    tolerance="4 standard errors",
    reference="thesis 2.2",
)
def gaussian_information(draws: Draws) -> Evidence:
    S, zero = draws.covariance(4), torch.zeros(4, dtype=torch.float64)
    z = draws.gaussian(zero, S, COUNT)
    parts = [_log_density(zero[:2], S[i : i + 2, i : i + 2], z[:, i : i + 2]) for i in (0, 2)]
    gain = _log_density(zero, S, z) - parts[0] - parts[1]
    formula = 0.5 * (torch.logdet(S[:2, :2]) + torch.logdet(S[2:, 2:]) - torch.logdet(S))
    found = mutual_information(S[:2, :2], S[2:, 2:], S[:2, 2:])
    return Evidence(truth=(mean_is("information", gain, found), equals("formula", formula, found, 1e-12)))


@claim(
    "2.2j",
    kind="formula",
    status="wrong",
    statement="X^T X / (n - 1) and the like may be put in for the covariances.",
    correction="Data must be centred, samples in rows. Even then the plug-in information is too high, by about "
    "d_x d_y / (2 n) for independent vectors.",
    tolerance="bias within 10 % of d_x d_y / (2 n)",
    reference="thesis 2.2",
)
def plug_in(draws: Draws) -> Evidence:
    n, p, q = 1000, 5, 6
    x = draws.normal(200, n, p + q)
    plain = information_estimate(x[..., :p], x[..., p:], correct=False)
    corrected = information_estimate(x[..., :p], x[..., p:])
    raw = x[0] + 1.5
    S = raw.T @ raw / (n - 1)
    uncentred = mutual_information(S[:p, :p], S[p:, p:], S[:p, p:])
    S = sample_moments(raw)[1]
    return Evidence(
        printed=(equals("uncentred information", uncentred, 0.0, 0.1),),
        truth=(
            near("mean plug-in of independent vectors", plain.mean(), p * q / (2 * n), 0.1),
            mean_is("corrected", corrected, 0.0),
            equals("centred", mutual_information(S[:p, :p], S[p:, p:], S[:p, p:]), 0.0, 0.1),
        ),
    )


@claim(
    "2.2k",
    kind="formula",
    status="holds",
    statement="H(X, Y) = H(X) + H(Y) - I, and I = 0 exactly for independent Gaussians.",
    tolerance="1e-12",
    reference="thesis 2.2",
)
def joint_entropy(draws: Draws) -> Evidence:
    S = draws.covariance(5)
    rho = canonical_correlations(S[:2, :2], S[2:, 2:], S[:2, 2:])
    information = -0.5 * torch.log1p(-(rho**2)).sum()
    none = mutual_information(S[:2, :2], S[2:, 2:], torch.zeros(2, 3, dtype=torch.float64))
    return Evidence(
        truth=(
            equals("joint entropy", entropy(S), entropy(S[:2, :2]) + entropy(S[2:, 2:]) - information, 1e-12),
            equals("information of independent vectors", none, 0.0, 1e-12),
        )
    )
