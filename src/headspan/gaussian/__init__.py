"""Gaussians: information, sequences, scores x^T C y, random weights. Pure torch, batched, in nats; knows no model."""

from headspan.gaussian.bilinear import (
    ScoreMoments,
    mixture_score_moments,
    score_covariance,
    score_moments,
    self_score_moments,
)
from headspan.gaussian.canonical import canonical_correlations, mutual_information, total_correlation
from headspan.gaussian.discrete import discrete_entropy, discrete_jsd, discrete_kl
from headspan.gaussian.estimates import (
    entropy_estimate,
    information_estimate,
    log_determinant_bias,
    sample_moments,
    shrunk_covariance,
)
from headspan.gaussian.information import (
    cross_entropy,
    entropy,
    entropy_change,
    kl_divergence,
    mapped,
    pairwise_kl_divergence,
)
from headspan.gaussian.jensen_shannon import JensenShannon, jensen_shannon, moment_matched_jsd
from headspan.gaussian.joint import (
    JointGaussian,
    SampledJoint,
    SeparableJoint,
    mixture_moments,
    pairwise_information,
    token_entropies,
)
from headspan.gaussian.random_matrices import (
    aligned_trace_variance,
    best_alignment,
    expected_largest_square,
    expected_norm,
    expected_smallest_gap,
    singular_vector_bound,
)
from headspan.gaussian.spheres import (
    CosineViolations,
    cosine_bound_violations,
    random_form_covariance,
    score_bound,
    sphere_score_moments,
    symmetric_score_bound,
)
from headspan.gaussian.tokens import bigram_joint, token_moments

__all__ = [
    "CosineViolations",
    "JensenShannon",
    "JointGaussian",
    "SampledJoint",
    "ScoreMoments",
    "SeparableJoint",
    "aligned_trace_variance",
    "best_alignment",
    "bigram_joint",
    "canonical_correlations",
    "cosine_bound_violations",
    "cross_entropy",
    "discrete_entropy",
    "discrete_jsd",
    "discrete_kl",
    "entropy",
    "entropy_change",
    "entropy_estimate",
    "expected_largest_square",
    "expected_norm",
    "expected_smallest_gap",
    "information_estimate",
    "jensen_shannon",
    "kl_divergence",
    "log_determinant_bias",
    "mapped",
    "mixture_moments",
    "mixture_score_moments",
    "moment_matched_jsd",
    "mutual_information",
    "pairwise_information",
    "pairwise_kl_divergence",
    "random_form_covariance",
    "sample_moments",
    "score_bound",
    "score_covariance",
    "score_moments",
    "self_score_moments",
    "shrunk_covariance",
    "singular_vector_bound",
    "sphere_score_moments",
    "symmetric_score_bound",
    "token_entropies",
    "token_moments",
    "total_correlation",
]
