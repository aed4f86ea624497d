"""Chapter 7 of the thesis: Gaussian tokens after attention, low rank, sparse spectra, and tokens that become one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from scipy.stats import chi2  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

from headspan.distributions import (
    AttentionWeights,
    JointGaussian,
    attention_pattern,
    data_dependence,
    expected_entropy,
    layer_norm,
    layer_states,
    mixture_moments,
    mutual_information,
    opposite_step,
    opposite_threshold,
    pattern_rank,
    random_layers,
    random_pattern,
    softmax_entropy,
    token_course,
)
from headspan.ledger.claim import check
from headspan.ledger.trial import Draws, Evidence, at_least, at_most, equals, evidence, mean_is, near, same, variance_is
from headspan.subspaces import complement, orthonormal_basis, singular_values

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint

N, D = 3, 2


def _sequence(draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Mean [n d] and covariance of a sequence of N tokens of width D, and a stochastic matrix of weights [n, n]."""
    return 2 * draws.normal(N * D), draws.covariance(N * D), torch.softmax(draws.normal(N, N), -1)


def _mixed(weights: Tensor) -> Tensor:
    return torch.kron(weights, torch.eye(D, dtype=torch.float64))


def _block(covariance: Tensor, i: int, j: int) -> Tensor:
    return covariance[i * D : (i + 1) * D, j * D : (j + 1) * D]


def _information(covariance: Tensor) -> Tensor:
    """Mutual information of the first two tokens."""
    return mutual_information(_block(covariance, 0, 0), _block(covariance, 1, 1), _block(covariance, 0, 1))


def _joint(mean: Tensor, covariance: Tensor) -> JointGaussian:
    return JointGaussian(mean.reshape(N, D), covariance.reshape(N, D, N, D).transpose(1, 2))


@check("7.1a")
def attention_covariance(draws: Draws) -> Evidence:
    mean, covariance, weights = _sequence(draws)
    whole = _joint(mean, covariance).after_attention(weights).dense()
    summed = torch.zeros(D, D, dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            summed += weights[0, i] * weights[1, j] * _block(covariance, i, j)
    sampled = torch.cov((draws.gaussian(mean, covariance, 400_000) @ _mixed(weights).T).T)
    off = torch.linalg.matrix_norm(sampled - whole) / torch.linalg.matrix_norm(whole)
    return evidence(
        same("block of tokens 1 and 2", _block(whole, 0, 1), summed, 1e-12),
        same("all blocks", whole, _mixed(weights) @ covariance @ _mixed(weights).T, 1e-12),
        at_most("relative error of the sampled covariance", off, 0.01),
    )


@check("7.1b")
def not_a_mixture(draws: Draws) -> Evidence:
    mean, covariance, weights = _sequence(draws)
    combined = _joint(mean, covariance).after_attention(weights).marginals()[0]
    mixture = mixture_moments(_joint(mean, covariance), weights)[1][0]
    x = draws.gaussian(mean, covariance, 400_000).reshape(-1, N, D)
    sampled = torch.cov(torch.einsum("i,sid->sd", weights[0], x).T)
    chosen = torch.multinomial(weights[0], len(x), replacement=True, generator=draws.generator)
    picked = torch.cov(x[torch.arange(len(x)), chosen].T)

    def off(other: Tensor, found: Tensor = sampled) -> Tensor:
        share: Tensor = torch.linalg.matrix_norm(found - other) / torch.linalg.matrix_norm(found)
        return share

    return evidence(
        at_most("relative error of the combination's covariance", off(combined), 0.01),
        at_most("of the mixture's, where one token is picked", off(mixture, picked), 0.015),
        printed=[at_most("relative error of the mixture's covariance", off(mixture), 0.01)],
        figures={"trace of the combination": combined.trace(), "trace of the mixture": mixture.trace()},
    )


@check("7.1c")
def weights_follow_tokens(draws: Draws) -> Evidence:
    mean = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 1.0]], dtype=torch.float64)
    eye, covariance = torch.eye(D, dtype=torch.float64), torch.eye(N * D, dtype=torch.float64)
    found = {
        size: data_dependence(mean, covariance, size * eye, 100_000, draws.generator).difference
        for size in (0.0, 0.01, 0.1, 1.0)
    }
    return evidence(
        at_most("difference at logits of 0", found[0.0], 0.02),
        at_least("difference at a tenth of the logits", found[0.1], 0.1),
        at_least("difference at full logits", found[1.0], 0.1),
        figures={"difference at a hundredth": found[0.01]},
    )


@check("7.1.2a")
def information_after(draws: Draws) -> Evidence:
    mean, covariance, weights = _sequence(draws)
    after = _mixed(weights) @ covariance @ _mixed(weights).T
    shift = 0.5 * (torch.logdet(after) - torch.logdet(covariance))
    both = after[: 2 * D, : 2 * D]
    x = draws.gaussian(mean, covariance, 200_000) @ _mixed(weights).T - _mixed(weights) @ mean

    def surprise(samples: Tensor, part: Tensor) -> Tensor:
        size = (samples * torch.linalg.solve(part, samples.T).T).sum(-1)
        nats: Tensor = 0.5 * (size + torch.logdet(2 * math.pi * part))
        return nats

    one, two = surprise(x[:, :D], _block(after, 0, 0)), surprise(x[:, D : 2 * D], _block(after, 1, 1))
    return evidence(
        mean_is("mutual information", one + two - surprise(x[:, : 2 * D], both), _information(after)),
        equals("shift of the joint entropy", shift, D * torch.linalg.slogdet(weights).logabsdet, 1e-10),
    )


@check("7.1.2b")
def information_diverges(draws: Draws) -> Evidence:
    covariance = draws.covariance(2 * D)
    found = []
    for eps in (1e-1, 1e-2, 1e-3, 1e-4):
        weights = torch.tensor([[0.5 + eps, 0.5 - eps], [0.5 - eps, 0.5 + eps]], dtype=torch.float64)
        found.append(float(_information(_mixed(weights) @ covariance @ _mixed(weights).T)))
    before = float(_information(covariance))
    step = D * math.log(10)
    return evidence(
        at_least("information at eps = 1e-4 less that before", found[3] - before, 1.0),
        near("step to eps = 1e-3", found[2] - found[1], step, 0.01),
        near("step to eps = 1e-4", found[3] - found[2], step, 0.01),
        figures={"before": before, "eps = 1e-1": found[0]},
    )


@check("7.1.3")
def logits_after_norm(draws: Draws) -> Evidence:
    n = d = 64
    x = layer_norm(draws.normal(200, n, d))
    queries, keys = x @ draws.normal(200, d, d, sd=1 / math.sqrt(d)), x @ draws.normal(200, d, d, sd=1 / math.sqrt(d))
    logits = queries @ keys.mT / math.sqrt(d)
    deficit = math.log(n) - float(softmax_entropy(logits).mean())
    expected = math.log(n) - float(expected_entropy(torch.tensor(1.0), torch.tensor(n)))
    return evidence(
        near("variance of logits", logits.square().mean(), 1.0, 0.03),
        near("missing entropy", deficit, expected, 0.05),
        printed=[near("variance of logits", logits.square().mean(), 1 / n, 0.03)],
    )


@check("7.2.1a")
def projection_tail(draws: Draws) -> Evidence:
    def failure(k: int, e: float) -> float:
        return float(chi2.sf(k * (1 + e), k) + chi2.cdf(k * (1 - e), k))

    def bound(k: float, e: float, sign: int) -> float:
        return 2 * math.exp(-(e**2 + sign * e**3) * k / 4)

    settings = [(k, e) for k in (5, 20, 100, 400) for e in (0.1, 0.3, 0.5, 0.9)]
    return evidence(
        at_most("failure at k = 100, e = 1/2", failure(100, 0.5), bound(100, 0.5, -1)),
        at_most("worst of all settings", max(failure(k, e) / bound(k, e, -1) for k, e in settings), 1.0),
        equals("valid cap on failure at k = log 2^32, e = 1/2", bound(32 * math.log(2), 0.5, -1), 1.0, 1e-12),
        printed=[at_most("failure at k = 100, e = 1/2", failure(100, 0.5), bound(100, 0.5, 1))],
        figures={"valid probability at n = 1024, k = log n": 1 - bound(math.log(1024), 0.5, -1)},
    )


@check("7.2.1b")
def one_vector_approximation(draws: Draws) -> Evidence:
    n, e = 1024, 0.5
    P, w = random_pattern(n, 64, draws.generator), draws.normal(n)
    k = math.ceil(5 * math.log(n) / (e**2 - e**3))
    R = draws.normal(k, n, sd=1 / math.sqrt(k))
    exact = P @ w
    projected = P @ (R.T @ (R @ w))
    rank_one = torch.outer(exact, w) / w.square().sum()
    return evidence(
        at_most("relative error of rank one", (rank_one @ w - exact).norm() / exact.norm(), 1e-12),
        at_least("relative error of the projection", (projected - exact).norm() / exact.norm(), e),
        figures={"k": k},
    )


@check("7.2.1c")
def rank_of_attention(draws: Draws) -> Evidence:
    (weights,) = random_layers(64, 1, draws.generator)
    small, large = (pattern_rank(attention_pattern(draws.normal(n, 64), weights.W_Q, weights.W_K)) for n in (256, 1024))
    growth = float(large.numerical) / float(small.numerical)
    return evidence(
        equals("numerical rank, n = 256", small.numerical, 256, 0),
        equals("numerical rank, n = 1024", large.numerical, 1024, 0),
        at_least("directions with 90 % of the energy, n = 1024", large.rank90, 10 * large.log_n),
        printed=[near("growth of the rank from n = 256 to 1024", growth, large.log_n / small.log_n, 0.2)],
        figures={"directions with 99 %, n = 1024": large.rank99, "log n": large.log_n},
    )


@check("7.2.2b")
def shrinking(draws: Draws) -> Evidence:
    n, share = 128, 0.1
    W = draws.normal(n, n)
    W = W * math.sqrt(share * n) / torch.linalg.matrix_norm(W)
    length = (draws.sphere(20_000, n) @ W).square().sum(-1).mean().sqrt()
    return evidence(
        near("length of W x for |W|_F^2 = n/10", length, math.sqrt(share), 0.02),
        printed=[near("length of W x for |W|_F^2 = n/10", length, share, 0.02)],
    )


@check("7.2.2c")
def trace_under_rotations(draws: Draws) -> Evidence:
    n, share, count = 16, 0.1, 20_000
    spectra = [draws.uniform(n) + 0.1 for _ in range(2)]
    first, second = (torch.diag(s * math.sqrt(share * n) / s.norm()) for s in spectra)
    turned = draws.haar(n, count) @ second @ draws.haar(n, count)
    traces = torch.einsum("ij,sij->s", first, turned)
    return evidence(
        variance_is("variance of the trace", traces, share * share),
        printed=[variance_is("variance of the trace", traces, 1.0)],
    )


@check("7.2.2d")
def who_is_scaled_up(draws: Draws, checkpoint: Checkpoint | None = None) -> Evidence:
    W = _sparse_matrix(draws) if checkpoint is None else checkpoint.heads(layers=[0]).W_Q[0].double()
    W = W.transpose(0, 1).flatten(1)
    s, n = singular_values(W), len(W)
    k = len(s) // 10
    leading = orthonormal_basis(torch.linalg.svd(W).U[:, :k])
    spaces = {"aligned": leading.basis, "orthogonal": complement(leading).basis}
    typical = torch.linalg.vector_norm(draws.sphere(4000, n) @ W, dim=-1).square().mean().sqrt()

    def length(basis: Tensor) -> Tensor:
        scaled = torch.linalg.vector_norm(draws.sphere(4000, basis.shape[1]) @ basis.T @ W, dim=-1)
        ratio: Tensor = scaled.square().mean().sqrt() / typical
        return ratio

    found = {name: length(basis) for name, basis in spaces.items()}
    rest = (s[k:].square().sum() / (n - k)).sqrt()
    return evidence(
        at_least("length of a vector in the leading tenth, over that of a random one", found["aligned"], 1.5),
        at_most("length of a vector orthogonal to it", found["orthogonal"], 0.95),
        near("its length itself, from the singular values", found["orthogonal"] * typical, rest, 0.03),
        printed=[at_least("length of a vector orthogonal to the leading tenth", found["orthogonal"], 1.05)],
    )


def _sparse_matrix(draws: Draws, n: int = 128) -> Tensor:
    """A matrix [head, n, k] whose singular values fall like those of trained ones, on bases in general position."""
    values = torch.arange(1, n + 1).double() ** -0.7
    W: Tensor = draws.haar(n) @ torch.diag(values) @ draws.haar(n)
    return W.reshape(n, 8, n // 8).transpose(0, 1)


@check("7.2.3a")
def collapse(draws: Draws) -> Evidence:
    runs = [token_course(draws.normal(1, 64, 64), random_layers(64, 4, draws.generator)) for _ in range(5)]
    worst = min(runs, key=lambda run: float(run.cosine[3]))
    return evidence(
        at_least("mean cosine after 3 layers, worst of 5 runs", worst.cosine[3], 0.999),
        at_most("residual after 4 layers", worst.residual[4], 1e-3),
        figures={f"residual after {k}": float(worst.residual[k]) for k in (1, 2, 3)},
    )


@check("7.2.3b")
def counterexample(draws: Draws) -> Evidence:
    two = torch.full((1, 1), 2.0, dtype=torch.float64)
    start = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    states, _ = layer_states(start, [AttentionWeights(two, two, two)] * 4, scale=1.0)
    gaps = [float((state[0] - state[1]).abs()) for state in states[1:]]
    x, below, above = (torch.tensor(v, dtype=torch.float64) for v in (1.0, 0.37, 0.371))
    recursion = []
    for step in range(60):
        x, below, above = opposite_step(x), opposite_step(below), opposite_step(above)
        recursion += [2 * float(x)] if step < 4 else []
    return evidence(
        *(near(f"gap after {k + 1}", gap, recursion[k], 1e-4) for k, gap in enumerate(gaps)),
        equals("threshold", opposite_threshold(), 0.3706, 5e-5),
        at_most("from 0.37, after 60 layers", below, 1e-9),
        at_least("from 0.371, after 60 layers", above, 1e9),
        printed=[at_most("gap of two tokens after 4 layers", gaps[3], 1e-3)],
    )


@check("7.2.3c")
def skips(draws: Draws) -> Evidence:
    X, layers = draws.normal(2, 32, 64), random_layers(64, 60, draws.generator)
    half, tenth = (token_course(X, layers, beta=beta, norm=True).cosine for beta in (0.5, 0.1))
    return evidence(
        at_least("beta = 1/2, 60 layers", half[60], 0.99),
        at_most("beta = 1/10, 60 layers", tenth[60], 0.5),
        at_most("beta = 1/10 less beta = 1/2, 10 layers", tenth[10] - half[10], 0.0),
        figures={"beta = 1/2, 10 layers": half[10]},
    )
