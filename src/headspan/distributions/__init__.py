"""Statistics of Gaussians, softmax, bilinear scores and mixtures, as they occur in attention. Knows no model.

Tensors in, tensors out; batch axes lead; float64 unless said otherwise; entropies and divergences in nats.

Gaussian information
    `information` (entropy, cross-entropy, KL divergence, linear images), `jensen_shannon` (with error and bounds),
    `canonical` (canonical correlations, mutual information, total correlation), `estimates` (the same from samples).
Discrete distributions
    `discrete`: entropy, KL and Jensen-Shannon divergence, from probabilities or from logits.
Sequences
    `joint` (the joint Gaussian of a sequence under maps and attention), `tokens` (moments of token embeddings).
Scores and random weights
    `scores` (x^T C y: moments and bounds), `random_matrices` (norms, gaps and alignment).
Softmax of Gaussian logits
    `lognormal` (exponentials, ratios, the normalizer), `entropy_of_softmax` (mean entropy over variance and length).
Spheres
    `paths`: great circles, divergence of softmax along them, its cosine fit and its law.
Layers
    `rectified` (moments after ReLU and LayerNorm), `attention` (patterns, layers in a row, ranks),
    `token_course` (how alike tokens become, depth by depth).
Studies
    `studies`: records of arrays that a figure draws.
"""

# Names stand by theme, several to a line.
# isort: off
# fmt: off
from headspan.distributions.information import (
    cross_entropy, entropy, entropy_change, kl_divergence, linear_image, pairwise_kl_divergence,
)
from headspan.distributions.divergences import JensenShannon, jensen_shannon, moment_matched_jsd
from headspan.distributions.canonical import canonical_correlations, mutual_information, total_correlation
from headspan.distributions.estimates import (
    entropy_estimate, information_estimate, log_determinant_bias, sample_moments, shrunk_covariance,
)
from headspan.distributions.divergences import (
    discrete_entropy, discrete_jsd, discrete_kl, jsd_of_softmax, kl_of_softmax,
)
from headspan.distributions.joint import (
    JointGaussian, SampledJoint, SeparableJoint, mixture_moments, pairwise_information, token_entropies,
)
from headspan.distributions.tokens import bigram_joint, token_moments
from headspan.distributions.scores import (
    CosineViolations, ScoreMoments, cosine_bound_violations, mixture_score_moments, random_form_covariance,
    score_bound, score_covariance, score_moments, self_score_moments, sphere_score_moments, symmetric_score_bound,
)
from headspan.distributions.random_matrices import (
    aligned_trace_variance, best_alignment, expected_largest_square, expected_norm, expected_smallest_gap,
    singular_vector_bound,
)
from headspan.distributions.lognormal import (
    exp_departure, fenton_wilkinson, fenton_wilkinson_distance, log_ratio_moments, log_sphere_exponential,
    lognormal_mean, lognormal_variance, sphere_ratio_mean, sphere_ratio_variance,
)
from headspan.distributions.entropy_of_softmax import (
    expected_collision, expected_entropy, flat_entropy, predicted_entropy, sampled_entropy, softmax_entropy,
)
from headspan.distributions.paths import (
    CosineFit, SoftmaxPath, angle_between, cosine_fit, mean_kl_law, random_pairs, slerp, slerp_velocity,
    slerp_weights, small_radius_kl, softmax_path, sphere_alignment,
)
from headspan.distributions.rectified import (
    layer_norm, layer_norm_moments, rectified_covariance, rectified_mean, rectified_variance,
)
from headspan.distributions.attention import (
    AttentionWeights, DataDependence, PatternRank, attention_layer, attention_pattern, data_dependence, energy_rank,
    layer_states, opposite_step, opposite_threshold, pattern_rank, random_layers, random_pattern,
)
from headspan.distributions.token_course import (
    MixingSweep, TokenCourse, information_by_distance, mean_cosine, mean_distance, mixing_sweep, sampled_information,
    token_course, token_rank, token_residual,
)
from headspan.distributions.studies import EntropyStudy, PathStudy, entropy_study, path_study

__all__ = [  # noqa: RUF022
    "cross_entropy", "entropy", "entropy_change", "kl_divergence", "linear_image", "pairwise_kl_divergence",
    "JensenShannon", "jensen_shannon", "moment_matched_jsd",
    "canonical_correlations", "mutual_information", "total_correlation",
    "entropy_estimate", "information_estimate", "log_determinant_bias", "sample_moments", "shrunk_covariance",
    "discrete_entropy", "discrete_jsd", "discrete_kl", "jsd_of_softmax", "kl_of_softmax",
    "JointGaussian", "SampledJoint", "SeparableJoint", "mixture_moments", "pairwise_information", "token_entropies",
    "bigram_joint", "token_moments",
    "CosineViolations", "ScoreMoments", "cosine_bound_violations", "mixture_score_moments", "random_form_covariance",
    "score_bound", "score_covariance", "score_moments", "self_score_moments", "sphere_score_moments",
    "symmetric_score_bound",
    "aligned_trace_variance", "best_alignment", "expected_largest_square", "expected_norm", "expected_smallest_gap",
    "singular_vector_bound",
    "exp_departure", "fenton_wilkinson", "fenton_wilkinson_distance", "log_ratio_moments", "log_sphere_exponential",
    "lognormal_mean", "lognormal_variance", "sphere_ratio_mean", "sphere_ratio_variance",
    "expected_collision", "expected_entropy", "flat_entropy", "predicted_entropy", "sampled_entropy",
    "softmax_entropy",
    "CosineFit", "SoftmaxPath", "angle_between", "cosine_fit", "mean_kl_law", "random_pairs", "slerp",
    "slerp_velocity", "slerp_weights", "small_radius_kl", "softmax_path", "sphere_alignment",
    "layer_norm", "layer_norm_moments", "rectified_covariance", "rectified_mean", "rectified_variance",
    "AttentionWeights", "DataDependence", "PatternRank", "attention_layer", "attention_pattern", "data_dependence",
    "energy_rank", "layer_states", "opposite_step", "opposite_threshold", "pattern_rank", "random_layers",
    "random_pattern",
    "MixingSweep", "TokenCourse", "information_by_distance", "mean_cosine", "mean_distance", "mixing_sweep",
    "sampled_information", "token_course", "token_rank", "token_residual",
    "EntropyStudy", "PathStudy", "entropy_study", "path_study",
]
