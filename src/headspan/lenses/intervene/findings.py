"""What interventions say: whether attention sharpens and flattens as theory has it, and what the model loses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headspan.finding import Finding
from headspan.lenses.intervene.schema import UNMODIFIED
from headspan.result import Result

LENS = "intervene"


def findings(result: Result) -> list[Finding]:
    """Entropy against alpha, where upscaled attention goes, averaging of heads, and damage by the other settings."""
    data = result.dataset()
    return [*_entropy(data), *_destination(data), *_averaging(data), *_damage(data)]


def _scaled(data: xr.Dataset) -> xr.Dataset:
    """Settings that scale all heads, by ascending alpha; a grid may hold alpha 1 beside the unmodified model."""
    alpha, first = np.unique(data["alpha"].values, return_index=True)
    return data.isel(setting=first[np.isfinite(alpha)])


def _entropy(data: xr.Dataset) -> Iterator[Finding]:
    scaled = _scaled(data)
    if scaled.sizes["setting"] < 3:
        return
    entropy = scaled["relative_entropy"].mean("head").values
    falls = bool((np.diff(entropy) < 0).all())
    low, high = float(scaled["alpha"].values[0]), float(scaled["alpha"].values[-1])
    yield Finding(
        LENS,
        f"Attention flattens and sharpens with the spectra of W_Q and W_K: relative entropy {entropy[0]:.2f} at alpha "
        f"{low:g}, {entropy[-1]:.2f} at {high:g}, {'falling throughout' if falls else 'not falling at every step'}.",
        value=float(entropy[-1]),
        expected=1.0,
        evidence="Mean over heads and queries; logits are multiplied by alpha^2. Null: uniform attention.",
        figure="Against alpha",
        weight=0.4,
    )


def _destination(data: xr.Dataset) -> Iterator[Finding]:
    scaled = _scaled(data)
    alpha = scaled["alpha"].values
    if not len(alpha) or alpha[-1] <= 1 or UNMODIFIED not in scaled["setting"].values:
        return
    before, after = scaled.sel(setting=UNMODIFIED), scaled.isel(setting=-1)
    own, largest = (
        tuple(float(each[name].mean()) for each in (before, after)) for name in ("self_mass", "argmax_mass")
    )
    verdict = "not to" if own[1] - own[0] < 0.5 * (largest[1] - largest[0]) else "and so largely to"
    yield Finding(
        LENS,
        f"Scaled up to alpha {float(alpha[-1]):g}, attention goes to each row's largest entry ({largest[0]:.2f} to "
        f"{largest[1]:.2f}), {verdict} the token itself ({own[0]:.2f} to {own[1]:.2f}).",
        value=own[1],
        expected=float(data["self_mass_null"]),
        evidence="Mean mass over layers, heads and queries. Null: uniform attention.",
        figure="Against alpha",
        weight=0.4,
    )


def _averaging(data: xr.Dataset) -> Iterator[Finding]:
    plain = data.sel(setting=UNMODIFIED)
    single, mean = float(plain["relative_entropy"].mean()), float(plain["averaged_relative_entropy"].mean())
    yield Finding(
        LENS,
        f"The mean over heads looks more uniform than heads are: relative entropy {mean:.2f} against {single:.2f}.",
        value=mean,
        expected=1.0,
        evidence="Unmodified model, mean over layers. Entropy is concave, so this can go one way only.",
        weight=0.25,
    )


def _damage(data: xr.Dataset) -> Iterator[Finding]:
    plain = float(data["perplexity"].sel(setting=UNMODIFIED))
    rest = data.isel(setting=np.flatnonzero(~np.isfinite(data["alpha"].values)))
    for name in rest["setting"].values:
        here = rest.sel(setting=name)
        perplexity = float(here["perplexity"])
        losing = f"; perplexity {plain:.3g} to {perplexity:.3g}" if np.isfinite(perplexity) else ""
        yield Finding(
            LENS,
            f"With {name}, attention differs from before by {float(here['jsd'].mean()):.3f} nats of Jensen-Shannon "
            f"divergence (at most 0.693){losing}.",
            value=float(here["jsd"].mean()),
            expected=0.0,
            evidence=f"Mean over layers, heads and queries of {data.attrs['n_tokens']} tokens.",
            weight=0.2,
        )
