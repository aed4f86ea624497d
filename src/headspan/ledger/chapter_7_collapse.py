"""Chapter 7 of the thesis, second part: low rank, sparse spectra, and tokens that become one."""

from __future__ import annotations

import math

import torch
from scipy.stats import chi2  # type: ignore[import-untyped,unused-ignore]

from headspan.distributions import (
    AttentionWeights,
    attention_pattern,
    layers_applied,
    opposite_step,
    opposite_threshold,
    pattern_rank,
    random_layers,
    random_pattern,
    token_course,
)
from headspan.ledger.claim import ClaimsOf
from headspan.ledger.draws import Draws
from headspan.ledger.trial import Evidence, at_least, at_most, equals, near, variance_is

claim = ClaimsOf("003")


@claim(
    "7.2.1a",
    kind="formula",
    status="wrong",
    statement="A random projection to k = log n dimensions keeps lengths with probability 1 - 2 exp(-(e^2 + e^3) k/4).",
    correction="The exponent has e^2 - e^3. With the plus sign the exact chi-squared tail is above the bound. At k = "
    "log n and e = 1/2 the valid bound says nothing until n > 2^32.",
    tolerance="exact tail at most the bound",
    reference="thesis 7.2.1",
)
def projection_tail(draws: Draws) -> Evidence:
    def failure(k: int, e: float) -> float:
        return float(chi2.sf(k * (1 + e), k) + chi2.cdf(k * (1 - e), k))

    def bound(k: float, e: float, sign: int) -> float:
        return 2 * math.exp(-(e**2 + sign * e**3) * k / 4)

    settings = [(k, e) for k in (5, 20, 100, 400) for e in (0.1, 0.3, 0.5, 0.9)]
    return Evidence(
        printed=(at_most("failure at k = 100, e = 1/2", failure(100, 0.5), bound(100, 0.5, 1)),),
        truth=(
            at_most("failure at k = 100, e = 1/2", failure(100, 0.5), bound(100, 0.5, -1)),
            at_most("worst of all settings", max(failure(k, e) / bound(k, e, -1) for k, e in settings), 1.0),
            equals("valid cap on failure at k = log 2^32, e = 1/2", bound(32 * math.log(2), 0.5, -1), 1.0, 1e-12),
        ),
        figures={"valid probability at n = 1024, k = log n": 1 - bound(math.log(1024), 0.5, -1)},
    )


@claim(
    "7.2.1b",
    kind="text",
    status="holds",
    statement="For each w there is a matrix of low rank whose product with w is within e of P w.",
    correction="Trivially so, by the rank-one matrix P w w^T / |w|^2, hence it says nothing about P. The random "
    "projection P R^T R with k = 5 log n / (e^2 - e^3) misses e |P w|: its error goes with |P|_F |w|.",
    tolerance="rank one 1e-12; the projection misses e = 1/2",
    reference="thesis 7.2.1",
)
def one_vector_approximation(draws: Draws) -> Evidence:
    n, e = 1024, 0.5
    P, w = random_pattern(n, 64, draws.generator), draws.normal(n)
    k = math.ceil(5 * math.log(n) / (e**2 - e**3))
    R = draws.normal(k, n, sd=1 / math.sqrt(k))
    exact = P @ w
    projected = P @ (R.T @ (R @ w))
    rank_one = torch.outer(exact, w) / w.square().sum()
    return Evidence(
        truth=(
            at_most("relative error of rank one", (rank_one @ w - exact).norm() / exact.norm(), 1e-12),
            at_least("relative error of the projection", (projected - exact).norm() / exact.norm(), e),
        ),
        figures={"k": float(k)},
    )


@claim(
    "7.2.1c",
    kind="text",
    status="wrong",
    statement="Hence attention matrices have a rank of the order of log n.",
    correction="The argument never uses softmax (P = I satisfies it too). Random attention of width 64 has full "
    "numerical rank, and a tenth of the directions for 90 % of its energy.",
    tolerance="numerical rank n; growth of log n within 20 % as printed",
    reference="thesis 7.2.1",
)
def rank_of_attention(draws: Draws) -> Evidence:
    (weights,) = random_layers(64, 1, draws.generator)
    small, large = (pattern_rank(attention_pattern(draws.normal(n, 64), weights.W_Q, weights.W_K)) for n in (256, 1024))
    growth = float(large.numerical) / float(small.numerical)
    return Evidence(
        printed=(near("growth of the rank from n = 256 to 1024", growth, large.log_n / small.log_n, 0.2),),
        truth=(
            equals("numerical rank, n = 256", small.numerical, 256, 0),
            equals("numerical rank, n = 1024", large.numerical, 1024, 0),
            at_least("directions with 90 % of the energy, n = 1024", large.rank90, 10 * large.log_n),
        ),
        figures={"directions with 99 %, n = 1024": float(large.rank99), "log n": large.log_n},
    )


learned_spectra = claim.without_check(
    "7.2.2a",
    because="needs the weights of Mistral-7B; whether n is 1024 or 4096 is not said",
    kind="text",
    status="observational",
    statement="Trained W_Q and W_K have sum s^2 of n/20 to n/10 and a largest s of 3 to 4, W_V 0.9 n to 1.2 n and 2 to "
    "3; the top tenth is above that of random matrices.",
    reference="thesis 7.2.2",
)


@claim(
    "7.2.2b",
    kind="text",
    status="wrong",
    statement="So a random vector shrinks to about a tenth of its length.",
    correction="Its squared length does; the length shrinks by sqrt(c), to 0.22 to 0.32.",
    tolerance="2 %",
    reference="thesis 7.2.2",
)
def shrinking(draws: Draws) -> Evidence:
    n, share = 128, 0.1
    W = draws.normal(n, n)
    W = W * math.sqrt(share * n) / torch.linalg.matrix_norm(W)
    length = (draws.sphere(20_000, n) @ W).square().sum(-1).mean().sqrt()
    return Evidence(
        printed=(near("length of W x for |W|_F^2 = n/10", length, share, 0.02),),
        truth=(near("length of W x for |W|_F^2 = n/10", length, math.sqrt(share), 0.02),),
    )


@claim(
    "7.2.2c",
    kind="text",
    status="wrong",
    statement="Tr(W_Q^T W_K) within N(0, 1) is what random alignment gives.",
    correction="Under random rotations its variance is |W_Q|_F^2 |W_K|_F^2 / n^2, 0.0025 to 0.01 here: a trace of the "
    "order of 1 would be 10 to 20 standard deviations.",
    tolerance="4 standard errors",
    reference="thesis 7.2.2",
)
def trace_by_chance(draws: Draws) -> Evidence:
    n, share, count = 16, 0.1, 20_000
    spectra = [draws.uniform(n) + 0.1 for _ in range(2)]
    first, second = (torch.diag(s * math.sqrt(share * n) / s.norm()) for s in spectra)
    turned = draws.haar(n, count) @ second @ draws.haar(n, count)
    traces = torch.einsum("ij,sij->s", first, turned)
    return Evidence(
        printed=(variance_is("variance of the trace", traces, 1.0),),
        truth=(variance_is("variance of the trace", traces, share * share),),
    )


@claim(
    "7.2.2d",
    kind="text",
    status="wrong",
    statement="Vectors orthogonal to the leading components are scaled up.",
    correction="Vectors aligned with them are.",
    tolerance="exact",
    reference="thesis 7.2.2",
)
def who_is_scaled_up(draws: Draws) -> Evidence:
    W = torch.diag(torch.tensor([4.0, 0.2, 0.2], dtype=torch.float64))
    aligned, orthogonal = W[0].norm(), W[1].norm()
    return Evidence(
        printed=(at_least("length of an orthogonal vector", orthogonal, 1.0),),
        truth=(
            at_least("length of an aligned vector", aligned, 1.0),
            at_most("length of an orthogonal vector", orthogonal, 1.0),
        ),
    )


@claim(
    "7.2.3a",
    kind="text",
    status="asymptotic",
    statement="Without skips, layers of random weights make all tokens one.",
    correction="Confirmed for Xavier weights, and doubly fast: each layer multiplies the digits that are lost.",
    tolerance="mean cosine above 0.999 by layer 3",
    reference="thesis 7.2.3",
)
def collapse(draws: Draws) -> Evidence:
    runs = [token_course(draws.normal(1, 64, 64), random_layers(64, 4, draws.generator)) for _ in range(5)]
    worst = min(runs, key=lambda run: float(run.cosine[3]))
    return Evidence(
        truth=(
            at_least("mean cosine after 3 layers, worst of 5 runs", worst.cosine[3], 0.999),
            at_most("residual after 4 layers", worst.residual[4], 1e-3),
        ),
        figures={f"residual after {k}": float(worst.residual[k]) for k in (1, 2, 3)},
    )


@claim(
    "7.2.3b",
    kind="text",
    status="wrong",
    statement="... and so do any weights with operator norms up to 2.",
    correction="Two tokens x and -x in one dimension with all weights 2 follow x' = 2 x tanh(4 x^2): from |x| above "
    "sqrt(atanh(1/2) / 4) = 0.3706 their gap doubles with every layer.",
    tolerance="recursion to 1e-4 of the gap",
    reference="thesis 7.2.3",
)
def counterexample(draws: Draws) -> Evidence:
    two = torch.full((1, 1), 2.0, dtype=torch.float64)
    start = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    states, _ = layers_applied(start, [AttentionWeights(two, two, two)] * 4, scale=1.0)
    gaps = [float((state[0] - state[1]).abs()) for state in states[1:]]
    x, below, above = (torch.tensor(v, dtype=torch.float64) for v in (1.0, 0.37, 0.371))
    recursion = []
    for step in range(60):
        x, below, above = opposite_step(x), opposite_step(below), opposite_step(above)
        recursion += [2 * float(x)] if step < 4 else []
    return Evidence(
        printed=(at_most("gap of two tokens after 4 layers", gaps[3], 1e-3),),
        truth=(
            *(near(f"gap after {k + 1}", gap, recursion[k], 1e-4) for k, gap in enumerate(gaps)),
            equals("threshold", opposite_threshold(), 0.3706, 5e-5),
            at_most("from 0.37, after 60 layers", below, 1e-9),
            at_least("from 0.371, after 60 layers", above, 1e9),
        ),
    )


@claim(
    "7.2.3c",
    kind="text",
    status="approximate",
    statement="With a skip of weight 1 - beta the same is to be expected.",
    correction="Slower: with LayerNorm and Xavier weights tokens become one within 60 layers at beta = 1/2 and hardly "
    "move at beta = 0.1.",
    tolerance="mean cosine after 60 layers above 0.99 and below 0.5",
    reference="thesis 7.2.3",
)
def skips(draws: Draws) -> Evidence:
    X, layers = draws.normal(2, 32, 64), random_layers(64, 60, draws.generator)
    half, tenth = (token_course(X, layers, beta=beta, norm=True).cosine for beta in (0.5, 0.1))
    return Evidence(
        truth=(
            at_least("beta = 1/2, 60 layers", half[60], 0.99),
            at_most("beta = 1/10, 60 layers", tenth[60], 0.5),
            at_most("beta = 1/10 less beta = 1/2, 10 layers", tenth[10] - half[10], 0.0),
        ),
        figures={"beta = 1/2, 10 layers": float(half[10])},
    )
