r"""Singular values of A^T R B for a random rotation R: how strong the strongest direction common to two matrices is.

A [d, p] and B [d, q] keep their singular values s and t; R is uniform (Haar). The singular values of A^T R B are those
of diag(s) X diag(t), with X the p x q corner of a Haar matrix. For one pair of spectra they are drawn.

Of the largest one, over |s| |t|, the law is wanted for every pair of many spectra. Chevet's inequality bounds its mean
by c / sqrt(d), c = s_1/|s| + t_1/|t|, and s_1 t_1 / (|s| |t| sqrt(d)) is the size of its spread. Their ratios to the
true mean and standard deviation change little and smoothly with the spectra:

1. Draw the largest value for a grid of pairs, from the flattest to the steepest spectra of both sides.
2. Fit log(mean / bound), log(sd / size) and the skewness by second-degree polynomials in the logarithms of s_1/|s| and
   of sum s^4 / |s|^4, symmetric in the two sides.
3. Tails are those of a gamma law with these three moments. True tails fall faster, as exp(-x^(3/2)) or exp(-x^2).

On GPT-2's circuits the fitted mean is off by 1 to 2 % (the standard deviation being 6 % of it) and the fitted standard
deviation by some 7 %. Rates of p-values below a level, over that level, are in the tests.

Reference: Chevet (1978), Séries de variables aléatoires gaussiennes à valeurs dans E ⊗ F; Muirhead (1982), Aspects of
multivariate statistical theory (corners of Haar matrices).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from headspan.subspaces.rank import promote
from headspan.threads import one_thread

GRID, DRAWS, POOL = 10, 64, 16
"""Spectra of a side in the grid of pairs, values drawn for each pair, and of how many times as many corners."""
WIDE, MOST_DRAWS = 16, 256
"""Corners with fewer rows are cheap, and their law is drawn more often: DRAWS WIDE / p times, MOST_DRAWS at most."""
AT_ONCE = 64
"""Corners that are made of normal draws at a time."""
SKEWNESS = (0.3, 2.0)
"""Between that of a largest singular value of many equal ones, and a little above that of |x| for a normal x."""
Array = Float[np.ndarray, "..."]


@lru_cache(maxsize=1)
def _corner_pool(count: int, p: int, q: int, d: int, seed: int) -> Float[Tensor, "count p q"]:
    """Corners that are drawn from and not changed; pairings of one model ask for the same."""
    return haar_corners(count, p, q, d, seed)


@one_thread()
def haar_corners(count: int, p: int, q: int, d: int, seed: int) -> Float[Tensor, "count p q"]:
    """Corners of random rotations of R^d; entries have mean 0 and variance 1/d.

    With G [p, d] normal and L L^T = G G^T, the rows of L^-1 G are a uniform frame. Of the d - q columns outside the
    corner only their Gram matrix is needed, a Wishart matrix (Bartlett's decomposition).
    """
    generator = np.random.default_rng(seed)
    if p + q > d:
        frame: Tensor = torch.linalg.qr(torch.from_numpy(generator.standard_normal((count, d, q)))).Q
        return frame[:, :p]
    corners: Tensor = torch.from_numpy(generator.standard_normal((count, p, q)))
    triangles = torch.from_numpy(generator.standard_normal((count, p, p))).tril_(-1)
    chi = torch.from_numpy(generator.chisquare(d - q - np.arange(p), (count, p))).sqrt()
    triangles.diagonal(dim1=1, dim2=2).copy_(chi)
    # Some at a time and in place: all of them take hundreds of megabytes for heads of 128 dimensions.
    for start in range(0, count, AT_ONCE):
        G, T = (each[start : start + AT_ONCE] for each in (corners, triangles))
        L = torch.linalg.cholesky(G @ G.mT + T @ T.mT)
        G.copy_(torch.linalg.solve_triangular(L, G, upper=False))
    return corners


@one_thread()
def rotated_singular_values(
    s: Float[Tensor, " p"], t: Float[Tensor, " q"], d: int, draws: int, seed: int
) -> Float[Tensor, "draws k"]:
    """Singular values of A^T R B under random rotations, descending, for spectra s of A and t of B; float64.

    As many as the smaller matrix has columns; beyond d of them are zero.
    """
    a, b = (each.double().cpu().sort(descending=True).values[:d] for each in (s, t))
    values = torch.linalg.svdvals(a[:, None] * haar_corners(draws, len(a), len(b), d, seed) * b)
    return torch.nn.functional.pad(values, (0, min(len(s), len(t)) - values.shape[1]))


@dataclass(frozen=True)
class LargestValue:
    """Mean, standard deviation and skewness of the largest singular value over |s| |t|, for pairs [n, m] of spectra."""

    mean: Array
    sd: Array
    skewness: Array

    def p_values(self, found: Array) -> Array:
        """P(largest >= found), in [0, 1], about uniform under the null; NaN stays NaN."""
        shape = 4 / self.skewness**2
        z = (found - self.mean) / self.sd
        p: Array = special.gammaincc(shape, np.maximum(shape + z * np.sqrt(shape), 0))
        return p


def largest_value_null(s: Float[Tensor, "n p"], t: Float[Tensor, "m q"], d: int, seed: int = 0) -> LargestValue:
    """The law of the largest singular value of A^T R B over |s| |t|, for every pair of spectra.

    Parameters
    ----------
    s, t
        Singular values of n matrices [d, p] and of m matrices [d, q]. Of more than d, the smallest are zero: a
        head as wide as a centered stream has one such. A matrix of zeros has NaN.
    d
        Dimension of the space that is rotated.
    seed
        Of the corners that are drawn.

    Returns
    -------
    LargestValue
        The mean is about (1/sqrt(p) + 1/sqrt(q)) / sqrt(d) for flat spectra.
    """
    sides = [_shapes(promote(values, "spectra").double().cpu().numpy(), d) for values in (s, t)]
    known = [np.flatnonzero(~np.isnan(side.leading)) for side in sides]
    empty = np.full((len(s), len(t)), np.nan)
    if not all(map(len, known)):
        return LargestValue(empty, empty, empty)
    rows, columns = (_spread(side.leading, which) for side, which in zip(sides, known, strict=True))
    drawn = _drawn(sides[0].shares[rows], sides[1].shares[columns], d, seed) * d**0.5
    mean, n = drawn.mean(-1), drawn.shape[-1]
    bound, size = _scales(sides[0].leading, sides[1].leading)
    at, features = np.ix_(rows, columns), _features(*sides)
    # The mean logarithm of a sample's standard deviation lies below that of the law.
    log_sd = np.log(drawn.std(-1, ddof=1) / size[at]) + 0.5 / (n - 1)
    center = np.exp(_fit(features, features[at], np.log(mean / bound[at]))) * bound
    spread = np.exp(_fit(features, features[at], log_sd)) * size
    # Divided by a sample's own standard deviation, its third moment would be too small.
    third = ((drawn - mean[..., None]) ** 3).sum(-1) * n / ((n - 1) * (n - 2))
    skewness = _fit(features, features[at], third / spread[at] ** 3)
    # What the fit misses of the mean is one more uncertainty of a single value.
    missed = float(np.square(center[at] - mean).mean())
    return LargestValue(center / d**0.5, np.sqrt((spread**2 + missed) / d), np.clip(skewness, *SKEWNESS))


@dataclass(frozen=True)
class _Shapes:
    """Spectra at norm 1, descending: the values (d at most), the largest, and sum s^4, of each."""

    shares: Array
    leading: Array
    fourth: Array


def _shapes(values: Array, d: int) -> _Shapes:
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    shares = -np.sort(-np.divide(values, norms, out=np.full(values.shape, np.nan), where=norms > 0), axis=1)
    return _Shapes(shares[:, :d], shares[:, 0], (shares**4).sum(1))


def _spread(leading: Array, known: np.ndarray) -> np.ndarray:
    """Members from the flattest to the steepest, evenly by rank."""
    order = known[np.argsort(leading[known], kind="stable")]
    places = np.unique(np.linspace(0, len(order) - 1, GRID).round().astype(int))
    return np.asarray(order[places])


@one_thread()
def _drawn(s: Array, t: Array, d: int, seed: int) -> Array:
    """Largest values for every pair of these spectra: [pairs of s, of t, draw]."""
    draws = min(MOST_DRAWS, max(DRAWS, DRAWS * WIDE // s.shape[1]))
    corners = _corner_pool(POOL * draws, s.shape[1], t.shape[1], d, seed)
    generator = np.random.default_rng(seed)
    found = np.empty((len(s), len(t), draws))
    for i, j in np.ndindex(len(s), len(t)):
        chosen = corners[generator.choice(len(corners), draws, replace=False)]
        core = torch.from_numpy(s[i])[:, None] * chosen * torch.from_numpy(t[j])
        found[i, j] = torch.linalg.eigvalsh(core @ core.mT)[:, -1].clamp(min=0).sqrt().numpy()
    return found


def _scales(s: Array, t: Array) -> tuple[Array, Array]:
    return np.add.outer(s, t), np.multiply.outer(s, t)


def _features(s: _Shapes, t: _Shapes) -> Array:
    """[n, m, 8]: second-degree polynomials, symmetric in the sides."""
    a, b, f, g = (np.log(each) for each in (s.leading, t.leading, s.fourth, t.fourth))
    leading, fourth = np.add.outer(a, b), np.add.outer(f, g)
    gaps = np.subtract.outer(a, b) ** 2, np.subtract.outer(f, g) ** 2
    one = np.ones_like(leading)
    return np.stack([one, leading, fourth, *gaps, leading**2, fourth**2, leading * fourth], axis=-1)


def _fit(features: Array, sampled: Array, found: Array) -> Array:
    """Least squares on the sampled pairs, at all pairs. Directions in which samples do not differ are left out."""
    flat = sampled.reshape(-1, sampled.shape[-1])
    center = flat.mean(0)
    slope = np.linalg.lstsq(flat - center, found.ravel() - found.mean(), rcond=1e-4)[0]
    fitted: Array = (features - center) @ slope + found.mean()
    return fitted
