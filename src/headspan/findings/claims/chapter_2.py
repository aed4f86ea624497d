"""Chapter 2 of the thesis: moments, entropies and divergences of Gaussians."""

from __future__ import annotations

import math

import torch

from headspan.findings.claims.claim import ClaimsOf
from headspan.findings.claims.draws import Draws
from headspan.findings.claims.trial import Evidence, equals, mean_is, same

claim = ClaimsOf("003")


@claim(
    "2.1g",
    kind="formula",
    status="holds",
    statement="Under an affine map A the mean becomes A mu and the covariance A Sigma A^T.",
    correction="A has the shape m x d; the printed shape is n x m.",
    tolerance="1e-12",
    reference="thesis 2.1",
)
def affine_map(draws: Draws) -> Evidence:
    x, a = draws.normal(50, 4), draws.normal(3, 4)
    return Evidence(
        truth=(
            same("mean", (x @ a.T).mean(0), a @ x.mean(0), 1e-12),
            same("covariance", torch.cov((x @ a.T).T), a @ torch.cov(x.T) @ a.T, 1e-12),
        )
    )


@claim(
    "2.2c",
    kind="formula",
    status="wrong",
    statement="Cross-entropy of two Gaussians, with the normaliser (2 pi e)^d |S2|.",
    correction="The normaliser is (2 pi)^d |S2|: the e belongs to the entropy. As printed it is d/2 nats too large.",
    tolerance="4 standard errors; the excess is d/2 to 1e-12",
    reference="thesis 2.2",
)
def cross_entropy(draws: Draws) -> Evidence:
    d = 4
    mu_p, mu_q, s_p, s_q = draws.normal(d), draws.normal(d), draws.covariance(d), draws.covariance(d)
    shift = mu_p - mu_q
    traces = torch.linalg.solve(s_q, s_p).trace() + shift @ torch.linalg.solve(s_q, shift)
    corrected = 0.5 * (d * math.log(2 * math.pi) + torch.logdet(s_q) + traces)
    printed = 0.5 * (d * math.log(2 * math.pi * math.e) + torch.logdet(s_q) + traces)
    offset = draws.gaussian(mu_p, s_p, 200_000) - mu_q
    mahalanobis = (offset * torch.linalg.solve(s_q, offset.T).T).sum(1)
    surprise = 0.5 * (mahalanobis + d * math.log(2 * math.pi) + torch.logdet(s_q))
    return Evidence(
        printed=(mean_is("cross-entropy", surprise, printed),),
        truth=(mean_is("cross-entropy", surprise, corrected), equals("excess", printed - corrected, d / 2, 1e-12)),
    )
