"""Answers of the studies that train further models, over all runs they were made on, each with its interval.

An effect is a mean over runs with Student's 95 % interval; an interval that holds 0 is said to show no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from headspan.finding import Finding
from headspan.statistics import mean_interval

LENS = "lab"
AS_IT_IS, AT_RANDOM = "as it is", "as far at random"
LEARNED = 0.9


def study_findings(name: str, studies: Sequence[xr.Dataset]) -> list[Finding]:
    """What one study says over the runs it was made on."""
    return ANSWERS[name](studies) if studies else []


def _spread(values: Sequence[float]) -> str:
    mean, low, high = mean_interval(values)
    known = sum(value == value for value in values)
    if low != low:
        return f"{mean:+.1f} (one run, no interval)"
    return f"{mean:+.1f} (95 % interval {low:+.1f} to {high:+.1f}, {known} runs)"


def _unlike_zero(values: Sequence[float]) -> bool:
    _, low, high = mean_interval(values)
    return bool(low > 0 or high < 0)


def _plateau(studies: Sequence[xr.Dataset]) -> list[Finding]:
    waits = np.array([one["learned_at"].values for one in studies], dtype=float)
    starts = [str(start) for start in studies[0]["start"].values]
    still = waits[:, starts.index(AS_IT_IS)]
    if not np.isfinite(still).any():
        tried = int(studies[0]["after"][-1])
        text = f"From the plateau, training does not learn within {tried} steps as it is."
        return [Finding(LENS, text, value=float(tried), weight=0.3)]
    moved = [place for place, start in enumerate(starts) if start not in (AS_IT_IS, AT_RANDOM)]
    change = (waits[:, moved].mean(axis=1) - still).tolist()
    random = (waits[:, starts.index(AT_RANDOM)] - still).tolist()
    missed = int(np.isnan(waits[:, moved]).sum())
    late = f" In {missed} restarts it was not learned in time." if missed else ""
    mean = mean_interval(change)[0]
    sooner = _unlike_zero(change) and mean < 0
    verdict = "is a way out" if sooner else "is not the way out"
    text = (
        f"From the plateau, OOD accuracy passes one half {np.nanmean(still):.0f} steps later as it is; moved by "
        f"{float(studies[0]['distance']):g} along the most negative curvature, either way, the wait changes by "
        f"{_spread(change)} steps, moved as far at random by {_spread(random)}: that direction {verdict}.{late}"
    )
    evidence = "Claim: before the transition the model sits at a bad saddle."
    return [Finding(LENS, text, value=mean, expected=0.0, evidence=evidence, weight=0.5)]


def _sparsity(studies: Sequence[xr.Dataset]) -> list[Finding]:
    names = [str(name) for name in studies[0]["variant"].values]
    rows = {name: [float(one["positions"].sel(variant=name)) for one in studies] for name in names}
    null, d = float(np.mean([float(one["positions_null"]) for one in studies])), studies[0].attrs["d_model"]

    def effect(part: str, against: str) -> list[float]:
        pairs = [(name, name.replace(part, against)) for name in rows if part in name and against not in name]
        return [float(v) for v in np.mean([np.subtract(rows[one], rows[two]) for one, two in pairs], axis=0)]

    causes = {
        "AdamW instead of SGD": effect("adamw", "sgd"),
        "norm gains instead of none": effect(", gains", ", no gains"),
    }
    seen = [name for name, values in causes.items() if _unlike_zero(values) and np.mean(values) < 0]
    answer = f"{' and '.join(seen)} makes them sparser" if seen else "no cause of sparsity is seen"
    means = ", ".join(f"{name} {np.mean(values):.1f}" for name, values in rows.items())
    effects = "; ".join(f"{name} {_spread(values)}" for name, values in causes.items())
    text = (
        f"Learned position directions live on so many of {d} coordinates: {means}; random directions on {null:.1f}. "
        f"{effects}: {answer} within {studies[0].attrs['steps']} steps."
    )
    value = float(np.mean(rows["adamw, gains"]))
    return [Finding(LENS, text, value=value, expected=null, evidence="Few coordinates: sparse.", weight=0.4)]


def _lengths(studies: Sequence[xr.Dataset]) -> list[Finding]:
    table = studies[0]["accuracy"].copy(data=np.mean([one["accuracy"].values for one in studies], axis=0))
    pieces = []
    for scheme in table["positions"].values:
        row = table.sel(positions=scheme)
        known = [f"{float(v):.2f} at {int(n)}" for n, v in zip(row["length"].values, row.values, strict=True) if v == v]
        pieces.append(f"{scheme} {', '.join(known)}" + (" and undefined beyond" if len(known) < row.size else ""))
    best = table.sel(length=studies[0].attrs["trained_length"]).values
    learned = [str(name) for name, value in zip(table["positions"].values, best, strict=True) if value > LEARNED]
    runs = f"{len(studies)} run{'s' if len(studies) > 1 else ''}"
    text = (
        f"OOD accuracy by position scheme and sequence length ({runs} of {studies[0].attrs['steps']} steps): "
        f"{'; '.join(pieces)}. Copying was learned with {' and '.join(learned) or 'none of them'}."
    )
    return [Finding(LENS, text, value=float(np.nanmax(table.values[:, -1])), weight=0.4)]


ANSWERS: Mapping[str, Callable[[Sequence[xr.Dataset]], list[Finding]]] = {
    "plateau": _plateau,
    "sparsity": _sparsity,
    "lengths": _lengths,
}
