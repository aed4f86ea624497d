"""Answers of the studies asked by name, over all runs they were made on, each with its interval.

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
ONSET_Z = 3.0
"""Standard deviations above the null from which a channel counts as formed: p of about .001, asked at many steps."""


def study_findings(name: str, studies: Sequence[xr.Dataset]) -> list[Finding]:
    """What one study says over the runs it was made on."""
    return ANSWERS[name](studies) if studies else []


def _spread(values: Sequence[float], digits: int = 1) -> str:
    mean, low, high = mean_interval(values)
    known = sum(value == value for value in values)
    if low != low:
        return f"{mean:+.{digits}f} (one run, no interval)"
    return f"{mean:+.{digits}f} (95 % interval {low:+.{digits}f} to {high:+.{digits}f}, {known} runs)"


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
    gains = [float(one["gain_correlation"].sel(variant="adamw, gains")) for one in studies]
    text = (
        f"Learned position directions live on so many of {d} coordinates: {means}; random directions on {null:.1f}. "
        f"{effects}: {answer} within {studies[0].attrs['steps']} steps. Rank correlation of gains with the "
        f"coordinates' shares: {_spread(gains, 2)}."
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
    untrained = np.mean([one["accuracy_untrained"].values[0] for one in studies])
    runs = f"{len(studies)} run{'s' if len(studies) > 1 else ''}"
    text = (
        f"OOD accuracy by position scheme and sequence length ({runs} of {studies[0].attrs['steps']} steps): "
        f"{'; '.join(pieces)}; untrained {untrained:.2f}. Copying was learned with "
        f"{' and '.join(learned) or 'none of them'}."
    )
    return [Finding(LENS, text, value=float(np.nanmax(table.values[:, -1])), weight=0.4)]


def _table(studies: Sequence[xr.Dataset], name: str, **where: object) -> list[float]:
    """One number of every study."""
    return [float(one[name].sel(where)) for one in studies]


def _spectrum(studies: Sequence[xr.Dataset]) -> list[Finding]:
    moments = [str(name) for name in studies[0]["moment"].values]
    share = {name: _table(studies, "negative_weight", moment=name) for name in moments}
    listed = ", ".join(f"{name} {mean_interval(values)[0]:.2f}" for name, values in share.items())
    change = [later - sooner for later, sooner in zip(share["end"], share["plateau"], strict=True)]
    special = _unlike_zero(change) and np.mean(change) < 0
    verdict = "has more of it than the end" if special else "does not have more of it than the end"
    text = (
        f"Share of the Hessian's curvature that is negative: {listed} (one half: as much down as up). From the plateau "
        f"to the end it changes by {_spread(change, 2)}: the plateau {verdict}."
    )
    probes, steps = (studies[0].attrs[name] for name in ("probes", "steps"))
    evidence = f"Stochastic Lanczos quadrature, {probes} probes of {steps} steps."
    return [Finding(LENS, text, value=float(np.mean(share["plateau"])), expected=0.0, evidence=evidence, weight=0.4)]


def _channels(studies: Sequence[xr.Dataset]) -> list[Finding]:
    lags = [channel_onset(one, "OK") - float(one.attrs["transition"]) for one in studies]
    ends = {p: [float(one["coupling_z"].sel(pairing=p)[-1]) for one in studies] for p in ("OQ", "OK", "OV")}
    sizes = [float(one["carrying"].sel(pairing="OK")[-1]) for one in studies]
    listed = ", ".join(f"{pairing} {np.mean(values):+.1f}" for pairing, values in ends.items())
    before = _unlike_zero(lags) and mean_interval(lags)[0] < 0
    leads = "leads the transition" if before else "does not lead the transition"
    text = (
        f"Channels from layer 0 to layer 1 at the end, in standard deviations from a random rotation: {listed}. The OK "
        f"channel stands out for good (z > {ONSET_Z:g}) {_spread(lags)} steps from the transition: it {leads}. At the "
        f"end {np.mean(sizes):.0f} channels carry 90 % of it."
    )
    return [Finding(LENS, text, value=float(np.mean(ends["OK"])), expected=0.0, weight=0.5)]


def channel_onset(course: xr.Dataset, pairing: str) -> float:
    """The first kept step from which the coupling stays more than `ONSET_Z` above its null; NaN if there is none."""
    above = course["coupling_z"].sel(pairing=pairing).values > ONSET_Z
    if not above[-1]:
        return float("nan")
    below = np.flatnonzero(~above)
    return float(course["step"].values[0 if not len(below) else below[-1] + 1])


def _carry(studies: Sequence[xr.Dataset]) -> list[Finding]:
    pieces = []
    for depth in studies[0]["depth"].values:
        here = [one.sel(depth=depth).mean("place") for one in studies]
        numbers = [
            np.mean([float(one[name].sel(model=model)) for one in here])
            for name, model in (("decoded", "trained"), ("decoded", "untrained"), ("steered", "trained"))
        ]
        random = np.mean([float(one["steered_random"].sel(model="trained")) for one in here])
        pieces.append(
            f"depth {int(depth)}: decoded {numbers[0]:.2f} (untrained {numbers[1]:.2f}), steered {numbers[2]:.2f} "
            f"(random move {random:.2f})"
        )
    with_pad = "with a scratchpad" if studies[0].attrs["scratchpad"] else "without a scratchpad"
    text = f"The carry in sums {with_pad}, mean over places and {len(studies)} runs: {'; '.join(pieces)}."
    value = float(np.mean([float(one["steered"].sel(model="trained").max()) for one in studies]))
    return [Finding(LENS, text, value=value, expected=0.0, weight=0.4)]


def _adapter(studies: Sequence[xr.Dataset]) -> list[Finding]:
    before, after, shuffled = (np.mean([one["accuracy"].values[place] for one in studies]) for place in range(3))
    pieces = []
    for site in ("L0 O", "L1 K"):
        own = _table(studies, "energy", change="adapter", site=site, space="bridge")
        control = _table(studies, "energy", change="adapter on shuffled tokens", site=site, space="bridge")
        null = float(studies[0]["energy_null"].sel(space="bridge"))
        pieces.append(f"{site} {_spread([v - null for v in own], 2)}, on shuffled tokens "
                      f"{_spread([v - null for v in control], 2)}")  # fmt: skip
    text = (
        f"A rank-{studies[0].attrs['rank']} adapter for sequences of {studies[0].attrs['length']} changes OOD accuracy "
        f"there from {before:.2f} to {after:.2f} (on shuffled tokens {shuffled:.2f}). Share of its change in the "
        f"bridge, beyond that of a random change: {'; '.join(pieces)}."
    )
    return [Finding(LENS, text, value=float(after), expected=float(before), weight=0.4)]


ANSWERS: Mapping[str, Callable[[Sequence[xr.Dataset]], list[Finding]]] = {
    "plateau": _plateau,
    "sparsity": _sparsity,
    "lengths": _lengths,
    "spectrum": _spectrum,
    "channels": _channels,
    "carry": _carry,
    "adapter": _adapter,
}
