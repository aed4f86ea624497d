"""Subspaces of R^d: bases, angles, distances, kernels and what the null gives for each. Pure torch; knows no model."""

from headspan.subspaces.angles import (
    NullAngles,
    null_space_angles,
    pairwise_principal_angles,
    principal_angles,
    principal_cosines,
    principal_sines,
    shared_null_dimension,
)
from headspan.subspaces.bases import orthonormal_basis, random_subspaces
from headspan.subspaces.distances import (
    binet_cauchy_distance,
    chordal_distance,
    fubini_study_distance,
    grassmann_distance,
    procrustes_distance,
    projection_distance,
    spectral_distance,
)
from headspan.subspaces.factored import Factored
from headspan.subspaces.kernels import projection_kernel, projection_kernel_table, projection_kernels
from headspan.subspaces.lattice import complement, intersection, null_space, project, subspace_sum
from headspan.subspaces.nulls import (
    kernel_null_mean,
    kernel_null_variance,
    log_lower_tail,
    log_upper_tail,
    lower_tail,
    upper_tail,
)
from headspan.subspaces.overlap import squared_overlap_table, squared_overlaps
from headspan.subspaces.random_angles import AngleNull, angle_null, random_principal_angles
from headspan.subspaces.rank import default_tolerance, noise_floor, numerical_rank, spectrum_rank, unit_roundoff
from headspan.subspaces.spectra import product_singular_values, singular_values, spectrum_ks, symmetric_eigenvalues
from headspan.subspaces.subspace import Subspace, concatenate

__all__ = [
    "AngleNull",
    "Factored",
    "NullAngles",
    "Subspace",
    "angle_null",
    "binet_cauchy_distance",
    "chordal_distance",
    "complement",
    "concatenate",
    "default_tolerance",
    "fubini_study_distance",
    "grassmann_distance",
    "intersection",
    "kernel_null_mean",
    "kernel_null_variance",
    "log_lower_tail",
    "log_upper_tail",
    "lower_tail",
    "noise_floor",
    "null_space",
    "null_space_angles",
    "numerical_rank",
    "orthonormal_basis",
    "pairwise_principal_angles",
    "principal_angles",
    "principal_cosines",
    "principal_sines",
    "procrustes_distance",
    "product_singular_values",
    "project",
    "projection_distance",
    "projection_kernel",
    "projection_kernel_table",
    "projection_kernels",
    "random_principal_angles",
    "random_subspaces",
    "shared_null_dimension",
    "singular_values",
    "spectral_distance",
    "spectrum_ks",
    "spectrum_rank",
    "squared_overlap_table",
    "squared_overlaps",
    "subspace_sum",
    "symmetric_eigenvalues",
    "unit_roundoff",
    "upper_tail",
]
