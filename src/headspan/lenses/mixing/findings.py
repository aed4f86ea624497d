"""What a model's attention does to the differences between tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr
from scipy.special import stdtr  # type: ignore[import-untyped,unused-ignore]

from headspan.finding import Finding
from headspan.lenses.mixing.schema import SKIPS
from headspan.result import Result

LENS = "mixing"
FIGURE = "Mean cosine by depth"
LEVEL = 0.05


def findings(result: Result) -> list[Finding]:
    """What attention alone does, what skips and temperature change, and how the running model compares."""
    found = result.dataset()
    at = float(min(found["inverse_temperature"].values, key=lambda beta: abs(beta - 1.0)))
    own = found.sel(inverse_temperature=at)
    return [*_alone(own, result), *_temperature(found, at), *_running(result)]


def _words(cosine: float, null: float, sd: float) -> str:
    return f"{cosine:.2f} (random weights: {null:.2f} ± {sd:.2f})"


def _end(own: xr.Dataset, skip: str) -> tuple[float, float, float]:
    last = own.sel(skip=skip).isel(depth=-1)
    cosine, null, sd = (float(last[name]) for name in ("cosine", "cosine_null", "cosine_null_sd"))
    return cosine, null, sd


def _alone(own: xr.Dataset, result: Result) -> Iterator[Finding]:
    first, depth = float(own["cosine"].isel(depth=0, skip=0)), own.sizes["depth"] - 1
    alone, skips = (_end(own, skip) for skip in SKIPS)
    if not np.isfinite([*alone, *skips]).all():
        return
    draws = int(result.attrs["draws"])
    p = _chance(*alone, draws)
    # A token whose embedding is zero has no direction before the first layer.
    start = f"from {first:.2f} " if np.isfinite(first) else ""
    yield Finding(
        LENS,
        f"Attention alone takes the mean cosine of two tokens {start}to {_words(*alone)} in {depth} layers; "
        f"with skip connections it ends at {_words(*skips)}.",
        value=alone[0],
        expected=alone[1],
        p=p,
        evidence=f"p by Student's law from {draws} draws of random weights, which are Gaussian with the rms of every "
        f"head's learned matrices. Norms, positions and masks of the model, no MLPs; tokens from "
        f"{result.attrs['source']}.",
        reference="Dong, Cordonnier and Loukas (2021), Attention is not all you need",
        weight=0.6 if p is not None and p < LEVEL else 0.3,
        figure=FIGURE,
    )


def _chance(value: float, null: float, sd: float, draws: int) -> float | None:
    """Two-sided p of one more draw: (x - mean) / (s sqrt(1 + 1/n)) follows Student's law with n - 1 degrees."""
    if draws < 2 or not sd > 0:
        return None
    return float(2 * stdtr(draws - 1, -abs(value - null) / (sd * (1 + 1 / draws) ** 0.5)))


def _temperature(found: xr.Dataset, at: float) -> Iterator[Finding]:
    """Whether flatter or sharper attention mixes more."""
    ends = found["cosine"].sel(skip=SKIPS[0]).isel(depth=-1)
    betas = [float(beta) for beta in ends["inverse_temperature"].values if float(beta) != at]
    if not betas or not np.isfinite(ends.values).all():
        return
    told = ", ".join(f"{float(ends.sel(inverse_temperature=beta)):.2f} at {beta:g} times the logits" for beta in betas)
    own = float(ends.sel(inverse_temperature=at))
    yield Finding(
        LENS,
        f"Without skip connections the mean cosine ends at {own:.2f}, and at {told}.",
        value=own,
        evidence="The same layers with all logits multiplied.",
        weight=0.3,
        figure=FIGURE,
    )


def _running(result: Result) -> Iterator[Finding]:
    """What is left of the differences in the whole model."""
    if "run" not in result:
        return
    node = result.dataset("run")
    # The last depth stands behind the final norm, which removes what all tokens share.
    last = node.isel(depth=-2)
    cosine, twin = float(last["cosine"]), float(last["cosine_null"])
    rank, twin_rank = float(last["effective_rank"]), float(last["effective_rank_null"])
    if not np.isfinite([cosine, twin, rank, twin_rank]).all():
        return
    yield Finding(
        LENS,
        f"In the whole running model, tokens that enter the last layer have a mean cosine of {cosine:.2f} (untrained "
        f"twin: {twin:.2f}) and an effective rank of {rank:.1f} (untrained twin: {twin_rank:.1f}).",
        value=cosine,
        expected=twin,
        evidence="The stream with MLPs, skips and biases; one draw of untrained weights on the same tokens.",
        weight=0.4,
        figure="The whole model",
    )
