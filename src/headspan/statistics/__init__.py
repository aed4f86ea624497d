"""Null distributions, tails, false-discovery rates, intervals, permutations and change points. Knows no model."""

from headspan.statistics.abrupt_changes import change_points
from headspan.statistics.change_points import NONE, ChangePoint, change_point
from headspan.statistics.intervals import (
    bootstrap_mean_interval,
    mean_interval,
    quantile_interval,
    resample_weights,
)
from headspan.statistics.marchenko_pastur import mp_cdf, mp_density, mp_edges, mp_quantile, mp_typical
from headspan.statistics.matched import MatchedTest, matched_draws, matched_test
from headspan.statistics.permutation import (
    DirectionTest,
    direction_test,
    empirical_p_value,
    layer_distance,
    mantel,
    q_values,
    reverse_order_p_values,
    spearman,
    standard_ranks,
)
from headspan.statistics.random_spectra import product_edge, random_product_singular_values, random_singular_values
from headspan.statistics.tails import (
    TW_MEAN,
    TW_SD,
    kl_from_normal,
    log_beta_tail,
    log_betainc,
    prediction_tail,
    tw_center_scale,
    tw_log_upper_tail,
    tw_upper_tail,
    z_score,
)
from headspan.statistics.two_way_fit import TwoWay, two_way

__all__ = [
    "NONE",
    "TW_MEAN",
    "TW_SD",
    "ChangePoint",
    "DirectionTest",
    "MatchedTest",
    "TwoWay",
    "bootstrap_mean_interval",
    "change_point",
    "change_points",
    "direction_test",
    "empirical_p_value",
    "kl_from_normal",
    "layer_distance",
    "log_beta_tail",
    "log_betainc",
    "mantel",
    "matched_draws",
    "matched_test",
    "mean_interval",
    "mp_cdf",
    "mp_density",
    "mp_edges",
    "mp_quantile",
    "mp_typical",
    "prediction_tail",
    "product_edge",
    "q_values",
    "quantile_interval",
    "random_product_singular_values",
    "random_singular_values",
    "resample_weights",
    "reverse_order_p_values",
    "spearman",
    "standard_ranks",
    "tw_center_scale",
    "tw_log_upper_tail",
    "tw_upper_tail",
    "two_way",
    "z_score",
]
