"""A power law fitted to the tail of a spectrum, labelled with how well it fits. Off unless asked for.

The density of eigenvalues of W^T W is taken as x^-alpha from some x_min on (Clauset, Shalizi and Newman 2009; Martin
and Mahoney 2021 read alpha as a measure of training). A straight line can be laid through almost any tail, so beside
alpha stand the distance of the fit from the data, how many values it rests on, a comparison with a log-normal tail, and
the alpha that the same fit gives for random matrices of the same shape.
"""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import xarray as xr

from headspan.errors import HeadspanError
from headspan.lenses.spectra.law import law_of

DRAWS = 4
FIELDS = ("power_law_alpha", "power_law_xmin", "power_law_ks", "power_law_values", "power_law_over_lognormal")


def require_powerlaw() -> None:
    """Refuse before any work is done if the package is not there."""
    if importlib.util.find_spec("powerlaw") is None:
        raise HeadspanError("power-law fits need the package powerlaw: pip install 'headspan[powerlaw]'")


def power_law_variables(node: xr.Dataset, seed: int) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Fits of every matrix of a node, NaN where nothing can be fitted.

    alpha > 1, x_min, the Kolmogorov-Smirnov distance in [0, 1], how many values lie beyond x_min, and the
    log-likelihood ratio against a log-normal tail (above 0 for the power law); `_chance` from draws of random matrices.
    """
    values = node["singular_value"].values
    axes = tuple(str(axis) for axis in node["singular_value"].dims[:-1])
    fits = np.array([_fit(row) for row in values.reshape(-1, values.shape[-1])])
    law = law_of(int(node["rows"]), int(node["columns"]), None, seed)
    random = np.array([_fit(row) for row in law.drawn[:DRAWS]])
    out = {name: (axes, fits[:, place].reshape(values.shape[:-1])) for place, name in enumerate(FIELDS)}
    return out | {f"{name}_chance": ((), random[:, place].mean()) for place, name in enumerate(FIELDS)}


def _fit(values: np.ndarray) -> tuple[float, ...]:
    import powerlaw

    squares = values[values > 0] ** 2
    if len(squares) < 10:
        return (float("nan"),) * len(FIELDS)
    # The package writes its progress to the terminal and warns where a log-normal cannot be fitted.
    with warnings.catch_warnings(), redirect_stdout(StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        fit = powerlaw.Fit(squares, verbose=False)
        ratio = fit.distribution_compare("power_law", "lognormal")[0]
    return float(fit.alpha), float(fit.xmin), float(fit.D), float((squares >= fit.xmin).sum()), float(ratio)
