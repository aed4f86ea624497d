"""The joint Gaussian of a sequence, in its three forms, and Gaussians of token embeddings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headspan.distributions import (
    JointGaussian,
    SampledJoint,
    SeparableJoint,
    bigram_joint,
    entropy,
    mixture_moments,
    mutual_information,
    pairwise_information,
    token_entropies,
    token_moments,
)
from headspan.errors import ArgumentError, ShapeError
from tests.unit.distributions.moments import covariances, normal, numbers, stream

A = numbers(0.7, 0.2, 0.1, 0.0, 0.5, 0.5, 0.2, 0.2, 0.6).reshape(3, 3)


def kronecker(T: torch.Tensor, S: torch.Tensor) -> torch.Tensor:
    return T[:, :, None, None] * S


def test_blocks_are_the_covariances_between_positions() -> None:
    x = normal(40, 3, 2, seed=1)
    joint = JointGaussian.from_samples(x)
    expected = np.cov(x.reshape(40, 6).numpy().T)
    np.testing.assert_allclose(joint.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(joint.row(0)[2], expected[:2, 4:], atol=1e-12)
    np.testing.assert_allclose(joint.marginals()[1], expected[2:4, 2:4], atol=1e-12)


@pytest.mark.parametrize("samples", [40, 4])
def test_samples_and_blocks_give_the_same_law_under_maps_and_attention(samples: int) -> None:
    x, L = normal(samples, 3, 2, seed=2), normal(2, 2, seed=3)
    for first, second in ((JointGaussian.from_samples(x), SampledJoint.from_samples(x)),):
        for change in (
            lambda j: j,
            lambda j: j.image(L),
            lambda j: j.after_attention(A),
            lambda j: j.after_attention(A).image(L[:1]),
        ):
            one, two = change(first), change(second)
            torch.testing.assert_close(one.mean, two.mean)
            torch.testing.assert_close(one.marginals(), two.marginals())
            torch.testing.assert_close(one.row(1), two.row(1))
            torch.testing.assert_close(token_entropies(one), token_entropies(two))
            torch.testing.assert_close(pairwise_information(one), pairwise_information(two), atol=1e-8, rtol=1e-6)


def test_the_separable_form_is_its_blocks() -> None:
    T, S, mean, L = covariances(3, seed=4), covariances(2, seed=5), normal(3, 2, seed=6), normal(2, 2, seed=7)
    small, large = SeparableJoint(mean, T, S), JointGaussian(mean, kronecker(T, S))
    torch.testing.assert_close(pairwise_information(small), pairwise_information(large))
    torch.testing.assert_close(torch.tensor(small.joint_entropy()).double(), entropy(large.dense()))
    moved = small.after_attention(A).image(L), large.after_attention(A).image(L)
    torch.testing.assert_close(moved[0].row(2), moved[1].row(2))
    torch.testing.assert_close(moved[0].mean, moved[1].mean)


def test_attention_gives_one_gaussian_with_the_moments_of_the_sum() -> None:
    x = normal(50, 3, 2, seed=8)
    found = JointGaussian.from_samples(x).after_attention(A)
    expected = JointGaussian.from_samples(torch.einsum("ij,sjd->sid", A, x))
    torch.testing.assert_close(found.blocks, expected.blocks)
    torch.testing.assert_close(found.mean, expected.mean)


def test_a_mixture_has_more_spread_than_attention() -> None:
    joint = JointGaussian.from_samples(normal(60, 3, 2, seed=9) + numbers(0, 3, -3)[:, None])
    mean, S = mixture_moments(joint, A)
    torch.testing.assert_close(mean, joint.after_attention(A).mean)
    choice = torch.multinomial(A[0], 200_000, replacement=True, generator=stream(1))
    roots = torch.linalg.cholesky(joint.marginals())
    draws = joint.mean[choice] + (roots[choice] @ normal(200_000, 2, 1, seed=10)).squeeze(-1)
    np.testing.assert_allclose(np.cov(draws.numpy().T), S[0], atol=0.1)
    assert (entropy(S) > token_entropies(joint.after_attention(A)) - 1e-9).all()


def test_joint_entropy_grows_by_the_determinants_of_map_and_weights() -> None:
    joint = JointGaussian(normal(3, 2), covariances(6, seed=11).reshape(3, 2, 3, 2).transpose(1, 2).contiguous())
    L = normal(2, 2, seed=12)
    change = float(entropy(joint.after_attention(A).image(L).dense()) - entropy(joint.dense()))
    assert change == pytest.approx(2 * math.log(abs(float(torch.det(A)))) + 3 * math.log(abs(float(torch.det(L)))))


def test_pairwise_information_is_that_of_every_pair() -> None:
    joint = JointGaussian.from_samples(normal(60, 4, 3, seed=13))
    found = pairwise_information(joint)
    S = joint.marginals()
    assert float(found[3, 1]) == pytest.approx(float(mutual_information(S[1], S[3], joint.row(1)[3])))
    assert torch.isinf(found.diagonal()).all()


def test_a_long_wide_sequence_needs_no_full_matrix() -> None:
    """n d = 60,000: the full covariance would be 29 GB; the entropies come out nevertheless."""
    n, d = 600, 100
    T = torch.full((n, n), 0.2, dtype=torch.float64).fill_diagonal_(1.0)
    joint = SeparableJoint(torch.zeros(n, d, dtype=torch.float64), T, covariances(d, seed=14))
    rho = 0.2
    expected = -0.5 * d * math.log(1 - rho**2)
    assert float(mutual_information(joint.marginals()[0], joint.marginals()[1], joint.row(0)[1])) == pytest.approx(
        expected
    )
    assert math.isfinite(joint.joint_entropy())


def test_token_moments_are_those_of_repeated_rows() -> None:
    V, counts = normal(5, 3, seed=15), torch.tensor([4, 3, 2, 1, 0])
    mean, S = token_moments(V, counts / 10.0)
    rows = V.repeat_interleave(counts, dim=0)
    np.testing.assert_allclose(S, np.cov(rows.numpy().T, ddof=0), atol=1e-12)
    torch.testing.assert_close(mean, rows.mean(0))
    kept, top = token_moments(V, counts / 10.0, top=2, noise=0.5)
    torch.testing.assert_close(kept, (4 * V[0] + 3 * V[1]) / 7)
    assert torch.linalg.eigvalsh(top).tolist()[:2] == pytest.approx([0.5, 0.5])


def test_a_bigram_sequence_has_the_moments_of_its_chain() -> None:
    V, start = normal(4, 2, seed=16), numbers(0.4, 0.3, 0.2, 0.1)
    P = normal(4, 4, seed=17).softmax(-1)
    joint = bigram_joint(V, start, P, 3, noise=0.1)
    # All 64 sequences with their probabilities.
    a, b, c = torch.meshgrid(*[torch.arange(4)] * 3, indexing="ij")
    weight = (start[a] * P[a, b] * P[b, c]).flatten()
    x = torch.stack([V[i.flatten()] for i in (a, b, c)], 1).flatten(1)
    mean = weight @ x
    expected = (x * weight[:, None]).T @ x - torch.outer(mean, mean)
    np.testing.assert_allclose(joint.dense(), expected + 0.1 * torch.eye(6), atol=1e-12)
    torch.testing.assert_close(joint.mean.flatten(), mean)


ZERO = torch.zeros(2, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: JointGaussian(ZERO, normal(2, 2, 2, 3)), ShapeError, r"need shape \(2, 2, 2, 2\)"),
        (lambda: JointGaussian(ZERO, normal(2, 2, 2, 2)), ArgumentError, "needs to be symmetric"),
        (lambda: SeparableJoint(ZERO, covariances(3), covariances(2)), ShapeError, "T needs the side 2, found 3"),
        (lambda: SampledJoint(ZERO, normal(5, 2, 3)), ShapeError, r"a factor needs shape \[k, 2, 2\]"),
        (lambda: SampledJoint.from_samples(normal(1, 2, 2)), ShapeError, "at least 2 sequences"),
        (
            lambda: SampledJoint.from_samples(normal(9, 2, 2)).after_attention(normal(3, 3)),
            ShapeError,
            "attention needs 2 columns",
        ),
        (lambda: SampledJoint.from_samples(normal(9, 2, 2)).image(normal(3, 3)), ShapeError, "a map needs 2 columns"),
        (lambda: mixture_moments(SampledJoint.from_samples(normal(9, 2, 2)), ZERO), ArgumentError, "add up to 1"),
        (
            lambda: token_moments(normal(3, 2), numbers(1, 0)),
            ShapeError,
            "3 embeddings need as many probabilities, found 2",
        ),
        (lambda: token_moments(normal(2, 2), numbers(1, 0), top=3), ArgumentError, "between 1 and 2 tokens"),
        (lambda: token_moments(normal(2, 2), numbers(1, 0), noise=-1.0), ArgumentError, "at least 0"),
        (
            lambda: bigram_joint(normal(2, 2), numbers(1, 0), torch.eye(2).double(), 0),
            ArgumentError,
            "at least one token",
        ),
    ],
)
def test_what_is_no_joint_gaussian_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
