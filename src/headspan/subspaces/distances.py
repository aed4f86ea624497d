"""Distances between subspaces, all from their principal angles.

Every function takes angles theta [..., k] in radians, as `principal_angles` returns them. NaN places (beyond the
smaller rank) do not count; if all are NaN the distance is NaN. For subspaces of unequal dimensions the min(p, q) angles
are used and nothing is added for the surplus: a line inside a plane has distance 0 from it. For equal dimensions each
is a metric on the Grassmannian. Products of cosines go through log1p(-sin^2), so that two nearly equal subspaces keep
their digits.

References
----------
Ye and Lim (2016), Schubert varieties and distances between subspaces of different dimension, Table 2;
Edelman, Arias and Smith (1998), The geometry of algorithms with orthogonality constraints, section 4.3.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError
from headspan.subspaces.rank import epsilon, promote


def _checked(theta: Tensor) -> Tensor:
    theta = promote(theta, "angles")
    slack = 4 * epsilon(theta)
    if bool(((theta < 0) | (theta > math.pi / 2 + slack)).any()):
        raise ArgumentError(
            f"principal angles need to be in [0, pi/2] radians, found {float(theta.nan_to_num().min()):.4g} to "
            f"{float(theta.nan_to_num().max()):.4g}; degrees must be converted"
        )
    return theta


def _total(values: Tensor) -> Tensor:
    """Sum over the angles that exist; NaN where none does."""
    return torch.where(values.isnan().all(-1), torch.nan, values.nansum(-1))


def _largest(theta: Tensor) -> Tensor:
    if theta.shape[-1] == 0:
        return theta.new_full(theta.shape[:-1], torch.nan)
    largest = torch.where(theta.isnan(), -1.0, theta).amax(-1)
    return torch.where(largest < 0, torch.nan, largest)


def _log_cosine_product(theta: Tensor) -> Tensor:
    """log prod cos(theta_i) = sum log1p(-sin^2) / 2, -Inf where an angle is pi/2."""
    return _total(0.5 * torch.log1p(-(torch.sin(theta) ** 2)))


def grassmann_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The geodesic distance (sum theta_i^2)^(1/2).

    Returns
    -------
    Tensor
        [...], in [0, sqrt(k) pi/2]. For the null see `random_angles.angle_null`; 13.82 for 128 dimensions in R^768.
    """
    return _total(_checked(theta) ** 2).sqrt()


def chordal_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The chordal distance (sum sin^2 theta_i)^(1/2).

    Equal to ||U U^T - V V^T||_F / sqrt(2) for equal dimensions, and to sqrt(k - projection kernel).

    Returns
    -------
    Tensor
        [...], in [0, sqrt(k)]; under the null its square averages k - pq/d.
    """
    return _total(torch.sin(_checked(theta)) ** 2).sqrt()


def projection_distance(theta: Float[Tensor, "*batch k"], norm: Literal["fro", "2"] = "fro") -> Float[Tensor, "*batch"]:
    """The norm of the difference of the two projectors, ||U U^T - V V^T||, for equal dimensions.

    Two conventions are in use and both are offered: the Frobenius norm (2 sum sin^2 theta_i)^(1/2), which is sqrt(2)
    times the chordal distance, the projection F-norm of Edelman, Arias and Smith (1998); and the 2-norm,
    sin(theta_max), called projection or gap distance by Ye and Lim. For unequal dimensions the formulas in
    the angles are used, which leave out the surplus |p - q| of the first and would be 1 for the second.

    Returns
    -------
    Tensor
        [...], in [0, sqrt(2k)] for "fro", under the null the square averages 2(k - pq/d); in [0, 1] for "2",
        close to 1 under the null.
    """
    if norm == "fro":
        return math.sqrt(2) * chordal_distance(theta)
    if norm == "2":
        return torch.sin(_largest(_checked(theta)))
    raise ArgumentError(f"norm needs to be 'fro' or '2', found {norm!r}")


def fubini_study_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The angle between the subspaces' volume forms, acos(prod cos theta_i).

    Returns
    -------
    Tensor
        [...], in [0, pi/2]; under the null pi/2 up to about (p/d)^(p/2), so it says little for many dimensions.
    """
    log_product = _log_cosine_product(_checked(theta))
    return torch.atan2((-torch.expm1(2 * log_product)).sqrt(), log_product.exp())


def binet_cauchy_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The sine of the same angle, (1 - prod cos^2 theta_i)^(1/2).

    Returns
    -------
    Tensor
        [...], in [0, 1]; under the null 1 up to about (p/d)^p.
    """
    return (-torch.expm1(2 * _log_cosine_product(_checked(theta)))).sqrt()


def spectral_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The smallest 2-norm ||U A - V B|| over rotations A, B: 2 sin(theta_max / 2).

    Returns
    -------
    Tensor
        [...], in [0, sqrt(2)], close to sqrt(2) under the null.
    """
    return 2 * torch.sin(_largest(_checked(theta)) / 2)


def procrustes_distance(theta: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """The smallest Frobenius norm ||U A - V B||_F over rotations A, B: 2 (sum sin^2(theta_i / 2))^(1/2).

    Returns
    -------
    Tensor
        [...], in [0, sqrt(2k)]; close to sqrt(2k) under the null when p, q are small beside d.
    """
    return 2 * _total(torch.sin(_checked(theta) / 2) ** 2).sqrt()
