r"""What is left of the differences between tokens, depth by depth.

For tokens X [n, d] with mean token m:

    cosine     mean of <x_i, x_j> / (|x_i| |x_j|) over i != j
    residual   |X - 1 m^T|_F / |X|_F
    distance   mean of |x_i - x_j| over i != j
    rank       exp of the entropy of s_i^2 / sum s^2, s the singular values of X (Roy and Vetterli 2007)

and, over many sampled sequences, the Gaussian mutual information of two tokens, -1/2 sum log(1 - rho^2) over the
canonical correlations rho of the samples. Where tokens have become copies of one another it is infinite.

`mixing_sweep` measures the first two under random layers, over operator norms, ranks of W_QK and shares of attention.
Every setting sees the same sequences and the same draws of weights (the generator is seeded anew), so that differences
between settings come from the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.attention import AttentionWeights, layer_states, random_layers
from headspan.distributions.estimates import information_estimate, log_determinant_bias
from headspan.errors import ArgumentError, ShapeError
from headspan.subspaces import orthonormal_basis
from headspan.subspaces.rank import require_finite


def _two_tokens(X: Tensor) -> Tensor:
    require_finite(X, "tokens")
    if X.shape[-2] < 2:
        raise ShapeError(f"a comparison of tokens needs at least 2 of them, found {X.shape[-2]}")
    return X.double()


def mean_cosine(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Mean cosine of pairs of different tokens; in [-1 / (n - 1), 1], 0 under the null, NaN if a token is 0."""
    X = _two_tokens(X)
    n, size = X.shape[-2], X.norm(dim=-1, keepdim=True)
    unit = X / torch.where(size > 0, size, torch.nan)
    return (unit.sum(-2).square().sum(-1) - n) / (n * (n - 1))


def token_residual(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """|X - mean| / |X|, Frobenius; in [0, 1], sqrt(1 - 1 / n) for independent centered tokens, NaN if all are 0."""
    X = _two_tokens(X)
    whole = X.square().sum((-2, -1))
    rest = (X - X.mean(-2, keepdim=True)).square().sum((-2, -1))
    return (rest / torch.where(whole > 0, whole, torch.nan)).sqrt()


def mean_distance(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Mean Euclidean distance of pairs of different tokens; >= 0, about sqrt(2 d) sigma under the null."""
    X = _two_tokens(X)
    n = X.shape[-2]
    first, second = torch.triu_indices(n, n, 1)
    distance: Tensor = (X[..., first, :] - X[..., second, :]).norm(dim=-1).mean(-1)
    return distance


def token_rank(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Effective rank of the tokens; in [1, min(n, d)], 1 where all are multiples of one, NaN if all are 0."""
    require_finite(X, "tokens")
    # Energies, not singular values, are wanted, so that a Gram matrix loses no digits of them.
    X = X.double() if X.shape[-2] <= X.shape[-1] else X.double().mT
    energy = torch.linalg.eigvalsh(X @ X.mT).clamp(min=0)
    whole = energy.sum(-1, keepdim=True)
    rank: Tensor = torch.special.entr(energy / torch.where(whole > 0, whole, torch.nan)).sum(-1).exp()
    return rank


def sampled_information(x: Float[Tensor, "samples p"], y: Float[Tensor, "samples q"]) -> float:
    """Gaussian mutual information of two vectors from paired samples, in nats, through canonical correlations.

    Taken from bases of the samples, not from their covariance as in `information_estimate`: squaring would cost half
    the digits, and tokens about to collapse have none to spare. Directions the samples do not have are not counted.

    Returns
    -------
    float
        0 on average for independent vectors (the plug-in value, less its bias under Gaussian samples); inf where one
        fixes a direction of the other.
    """
    samples, p, q = len(x), x.shape[-1], y.shape[-1]
    if len(y) != samples or samples <= p + q:
        raise ShapeError(
            f"information between {p} and {q} coordinates needs more than {p + q} samples, found {samples}, {len(y)}"
        )
    # Bases of the true rank: after LayerNorm one coordinate follows from the others, and must not count as shared.
    first, second = (orthonormal_basis(side.double() - side.double().mean(0)) for side in (x, y))
    rho = torch.linalg.svdvals(first.basis.mT @ second.basis).clamp(max=1)
    ranks = int(first.rank), int(second.rank)
    single = sum(log_determinant_bias(rank, samples) for rank in ranks)
    bias = 0.5 * (single - log_determinant_bias(sum(ranks), samples))
    return float(-0.5 * torch.log1p(-rho.square()).sum()) - bias


def information_by_distance(X: Float[Tensor, "samples n d"]) -> Float[Tensor, " n-1"]:
    """Gaussian mutual information of two tokens against their distance 1 .. n - 1 in the sequence, means over pairs.

    Parameters
    ----------
    X
        Sampled sequences, many more than 2 d of them.

    Returns
    -------
    Tensor
        Nats, corrected for bias; 0 under the null, inf where tokens determine one another.
    """
    n = X.shape[-2]
    _two_tokens(X)
    means = [
        sum(sampled_information(X[:, i], X[:, i + gap]) for i in range(n - gap)) / (n - gap) for gap in range(1, n)
    ]
    return torch.tensor(means, dtype=torch.float64)


COMPONENTS = 16
PER_SAMPLE = 20
"""Samples wanted for every component of both sides."""
SKETCHED = 128
"""Samples and dimensions up to which axes are always exact."""


def leading_components(
    reads: Float[Tensor, "sequence position d"], exact: bool = True
) -> Float[Tensor, "sequence position k"]:
    """The reads on their first principal axes: 16, or as many as the number of samples supports.

    Where they need not be exact, the axes of large reads are those of a sketch, improved by two passes over the reads
    (Halko, Martinsson and Tropp 2011).
    """
    flat = reads.double().flatten(0, 1)
    k = max(1, min(COMPONENTS, len(flat) // (2 * PER_SAMPLE), flat.shape[1]))
    centered = flat - flat.mean(0)
    if exact or min(centered.shape) <= SKETCHED:
        vectors: Tensor = torch.linalg.eigh(centered.mT @ centered)[1][:, -k:]
        return (centered @ vectors).reshape(*reads.shape[:2], k)
    sketch = torch.randn(flat.shape[1], 4 * k, generator=torch.Generator().manual_seed(0), dtype=flat.dtype).to(flat)
    for _ in range(2):
        sketch = torch.linalg.qr(centered.mT @ (centered @ sketch))[0]
    U, S, _ = torch.linalg.svd(centered @ sketch, full_matrices=False)
    found: Tensor = (U * S)[:, :k].reshape(*reads.shape[:2], k)
    return found


def information_at(
    components: Float[Tensor, "sequence position k"], distance: int, related: bool = True
) -> Float[Tensor, ""]:
    """Nats between tokens so far apart, corrected for bias.

    The null, had with `related=False`, is that of tokens of different sequences, which have only their places in
    common. The leading components are linear maps of the tokens and can only lose information: a lower bound.
    """
    x, y = components[:, distance:], components[:, : components.shape[1] - distance]
    if not related:
        y = y.roll(1, dims=0)
    return information_estimate(x.flatten(0, 1), y.flatten(0, 1))


@dataclass(frozen=True)
class TokenCourse:
    """Means over sequences at every depth: [depth + 1] each, but `attention_entropy` [depth], a share of its maximum.

    `information`, of neighboring tokens, is NaN where the sequences given were too few to estimate it.
    """

    cosine: Tensor
    residual: Tensor
    distance: Tensor
    rank: Tensor
    information: Tensor
    attention_entropy: Tensor


def token_course(
    X: Float[Tensor, "samples n d"],
    layers: Sequence[AttentionWeights],
    beta: float = 1.0,
    norm: bool = False,
    scale: float | None = None,
    causal: bool = False,
) -> TokenCourse:
    """Follow sampled sequences through attention layers (see `mixing`) and measure at every depth how alike tokens are.

    Parameters
    ----------
    X
        Sequences; one is enough, more than 2 d give the mutual information of neighbors too.
    layers
        Random (`random_layers`) or a model's own.
    beta, norm, scale, causal
        Share of attention beside the skip; LayerNorm after each layer; divisor of logits; later tokens hidden.
    """
    samples, n, d = X.shape
    states, patterns = layer_states(_two_tokens(X), layers, beta, norm, scale, causal)
    enough = samples > 2 * d
    information = [
        sum(sampled_information(Z[:, i], Z[:, i + 1]) for i in range(n - 1)) / (n - 1) if enough else torch.nan
        for Z in states
    ]
    return TokenCourse(
        cosine=torch.stack([mean_cosine(Z).mean() for Z in states]),
        residual=torch.stack([token_residual(Z).mean() for Z in states]),
        distance=torch.stack([mean_distance(Z).mean() for Z in states]),
        rank=torch.stack([token_rank(Z).mean() for Z in states]),
        information=torch.tensor(information, dtype=torch.float64),
        attention_entropy=torch.tensor([float(_flatness(A, causal)) for A in patterns], dtype=torch.float64),
    )


def _flatness(A: Tensor, causal: bool) -> Tensor:
    """Mean entropy of rows over its maximum; the first row of a causal pattern, which has no choice, is left out."""
    n = A.shape[-1]
    keys = torch.arange(1, n + 1) if causal else torch.full((n,), n)
    rows: Tensor = torch.special.entr(A).sum(-1)[..., keys > 1] / keys[keys > 1].log()
    return rows.mean()


@dataclass(frozen=True)
class MixingSweep:
    """`cosine` and `residual` [norm, rank, beta, depth + 1], means over sequences."""

    norms: tuple[float, ...]
    ranks: tuple[int, ...]
    betas: tuple[float, ...]
    cosine: Tensor
    residual: Tensor


def mixing_sweep(
    X: Float[Tensor, "samples n d"],
    norms: Sequence[float],
    ranks: Sequence[int],
    betas: Sequence[float],
    depth: int,
    seed: int,
    norm: bool = False,
) -> MixingSweep:
    """Mean cosine and residual of tokens by depth, for every operator norm (of all three weights), rank and beta."""
    if depth < 1 or not (len(norms) and len(ranks) and len(betas)):
        raise ArgumentError(
            f"a sweep needs a depth of at least 1 and one value of each setting, found a depth of {depth}"
        )
    shape = (len(norms), len(ranks), len(betas), depth + 1)
    cosine, residual = torch.full(shape, torch.nan).double(), torch.full(shape, torch.nan).double()
    for i, size in enumerate(norms):
        for j, rank in enumerate(ranks):
            generator = torch.Generator().manual_seed(seed)
            layers = random_layers(X.shape[-1], depth, generator, rank, (size, size, size))
            for k, beta in enumerate(betas):
                states, _ = layer_states(X, layers, beta, norm)
                for at, Z in enumerate(states):
                    cosine[i, j, k, at], residual[i, j, k, at] = mean_cosine(Z).mean(), token_residual(Z).mean()
    return MixingSweep(tuple(norms), tuple(ranks), tuple(betas), cosine, residual)
