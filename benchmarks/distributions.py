"""Gaussians: information of 10,000 pairs against a loop over torch.distributions, and laws of a million points.

One thread, float64; processor time, which a busy machine distorts less, the best of several in turns. The loop builds
each pair of distributions from its moments and asks for their divergence, on some of the pairs; its time is scaled to
all. For mutual information, the loop asks for the divergence of the joint law of both vectors (128 dimensions) from the
product of their own laws.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from headspan.distributions import JointGaussian, pairwise_information, pairwise_kl_divergence
from headspan.distributions import kl_divergence as ours
from headspan.distributions import mutual_information as information
from headspan.statistics import mp_cdf, mp_edges, mp_quantile

PAIRS, DIM, LOOPED = 10_000, 64, 100


def main() -> None:
    """Print every figure with its target."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    _divergences(generator)
    _informations(generator)
    _laws(generator)


def _covariances(count: int, d: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(count, d, 2 * d, generator=generator, dtype=torch.float64)
    return x @ x.mT / (2 * d)


def _normals(mu: Tensor, S: Tensor) -> list[MultivariateNormal]:
    return [MultivariateNormal(m, s) for m, s in zip(mu, S, strict=True)]


def _loop(mu: Tensor, S: Tensor, nu: Tensor, T: Tensor) -> Callable[[], object]:
    return lambda: [kl_divergence(p, q) for p, q in zip(_normals(mu, S), _normals(nu, T), strict=True)]


def _best(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, action in enumerate((ours, theirs)):
            start = time.process_time()
            action()
            best[k] = min(best[k], time.process_time() - start)
    return best[0], best[1]


def _say(what: str, pairs: int, work: Callable[[], object], loop: Callable[[], object]) -> None:
    seconds, looped = _best(work, loop, 4)
    per_pair = seconds / pairs
    gain = looped / LOOPED / per_pair
    print(f"{what}: {1e6 * per_pair:.1f} µs a pair, {gain:.1f} times faster than the loop (target >= 20)")


def _divergences(generator: torch.Generator) -> None:
    mu, nu = torch.randn(2, PAIRS, DIM, generator=generator, dtype=torch.float64)
    S, T = _covariances(PAIRS, DIM, generator), _covariances(PAIRS, DIM, generator)
    loop = _loop(mu[:LOOPED], S[:LOOPED], nu[:LOOPED], T[:LOOPED])
    _say(f"KL, {PAIRS} unrelated pairs", PAIRS, lambda: ours(mu, S, nu, T), loop)
    side = round(PAIRS**0.5)
    _say(f"KL, all {PAIRS} pairs of {side}", PAIRS, lambda: pairwise_kl_divergence(mu[:side], S[:side]), loop)


def _informations(generator: torch.Generator) -> None:
    S = _covariances(LOOPED, 2 * DIM, generator)
    product = S.clone()
    product[:, :DIM, DIM:] = product[:, DIM:, :DIM] = 0
    zero = torch.zeros(LOOPED, 2 * DIM, dtype=torch.float64)
    loop = _loop(zero, S, zero, product)
    many = [x.repeat(PAIRS // LOOPED, 1, 1) for x in (S[:, :DIM, :DIM], S[:, DIM:, DIM:], S[:, :DIM, DIM:])]
    _say(f"MI, {PAIRS} unrelated pairs", PAIRS, lambda: information(*many), loop)
    n = 40
    joint = JointGaussian.from_samples(torch.randn(2 * n * DIM, n, DIM, generator=generator, dtype=torch.float64))
    _say(f"MI, all pairs of {n} positions", n * (n - 1) // 2, lambda: pairwise_information(joint), loop)


def _laws(generator: torch.Generator) -> None:
    shares = torch.rand(10**6, generator=generator, dtype=torch.float64)
    array = shares.numpy()
    for m, n in ((64, 768), (768, 768)):
        low, high = mp_edges(m, n)
        points = low + (high - low) * shares
        for name, law, x in (("CDF", mp_cdf, points), ("quantiles", mp_quantile, shares)):
            ours_, theirs = _best(lambda law=law, x=x, m=m, n=n: law(x, m, n), lambda: np.sqrt(array), 15)
            print(
                f"Marchenko-Pastur {name} of 10^6 points, {m} x {n}: {1e3 * ours_:.1f} ms, "
                f"np.sqrt {1e3 * theirs:.2f} ms: {ours_ / theirs:.1f} times (target <= 10)"
            )


if __name__ == "__main__":
    main()
