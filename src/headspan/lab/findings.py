"""What a training run says about the note on emerging subspaces: a verdict on each claim, with this run's numbers.

The claims are observations about trained models (document S4 of the ledger); a run confirms them, contradicts them, or
cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import xarray as xr

from headspan.finding import Finding
from headspan.lab.geometry import part_energy
from headspan.lab.study import final_sizes

LENS = "lab"
NOTE = "Emergence of (nearly) orthogonal subspaces (2025), note on copying in two-layer transformers"
Verdict = Literal["holds", "does not hold", "cannot tell"]
LARGE_RATIO, FEWEST_MEDIUM, MOST_MEDIUM = 1.2, 0.3, 0.7
CLEAR = 0.15
"""Difference of energy from chance that counts as one."""


def findings(result: xr.DataTree) -> list[Finding]:
    """The transition, then a verdict on every claim that the run can be asked about."""
    track = result.to_dataset()
    found = [*_learned(result), *_spectrum(track), *_bridge(track), *_top(track), *_order(result)]
    return [*found, *_sharpness(track), *_ablations(result), *_offset(result), *_landscape(result), *_swaps(result)]


def _node(result: xr.DataTree, name: str) -> xr.Dataset | None:
    return result.children[name].to_dataset(inherit=False) if name in result.children else None


def _claim(claim: str, verdict: Verdict, numbers: str, value: float, chance: float | None, weight: float) -> Finding:
    evidence = f"Claim: {claim}. Verdict on this run: {verdict}."
    return Finding(LENS, numbers, value=value, expected=chance, evidence=evidence, reference=NOTE, weight=weight)


def _learned(result: xr.DataTree) -> Iterator[Finding]:
    track, node = result.to_dataset(), _node(result, "transition")
    ood, last = float(track["ood_accuracy"][-1]), int(track["step"][-1])
    guess = float(track["accuracy_chance"])
    if node is None or not np.isfinite(float(node["transition_step"])):
        text = f"The model does not learn to copy within {last} steps: OOD accuracy ends at {ood:.3f}."
        yield _claim("copying is learned in a sharp transition", "cannot tell", text, ood, guess, 0.9)
        return
    step, low, high = (float(node[f"transition_{name}"]) for name in ("step", "low", "high"))
    rise = 4.4 * float(node["transition_width"])
    text = (
        f"OOD accuracy rises to {ood:.3f} in a transition at step {step:.0f} (95 % interval {low:.0f} to {high:.0f}); "
        f"from a tenth to nine tenths takes {rise:.0f} of {last} steps."
    )
    sharp: Verdict = "holds" if rise < 0.5 * step else "does not hold"
    yield _claim("copying is learned in a sharp transition", sharp, text, ood, guess, 0.9)


def _spectrum(track: xr.Dataset) -> Iterator[Finding]:
    claim = "the embedding has one very large singular value, some 35 of 64 medium ones, and small ones"
    d, values = int(track.attrs["d_model"]), track["embedding_singular_value"].values[-1]
    gap, chance = float(track["gap"][-1]), float(track["gap_chance"][-1])
    sizes = final_sizes(track)
    if sizes is None or not np.isfinite(float(track["medium_size"][-1])):
        text = (
            f"The embedding's spectrum has no gap beyond chance at the end ({gap:.1f}, random matrices {chance:.1f})."
        )
        yield _claim(claim, "does not hold", text, gap, chance, 0.6)
        return
    first = int(track["step"].values[np.isfinite(track["medium_size"].values)][0])
    large = values[0] / values[1] > LARGE_RATIO and FEWEST_MEDIUM < sizes[1] / d < MOST_MEDIUM
    text = (
        f"At the end the embedding has one singular value of {values[0]:.1f}, {sizes[1]} from {values[1]:.1f} to "
        f"{values[sizes[1]]:.1f}, a gap, and {d - 1 - sizes[1]} below {values[sizes[1] + 1]:.1f}; a gap beyond chance "
        f"is first seen at step {first}."
    )
    yield _claim(claim, "holds" if large else "does not hold", text, gap, chance, 0.7)


def _energies(track: xr.Dataset) -> tuple[np.ndarray, np.ndarray] | None:
    """Energy of the bridge [step, part] at the middle k with the split found last, and the parts' chance values."""
    sizes = final_sizes(track)
    if sizes is None or track.sizes["layer"] < 2:
        return None
    d = int(track.attrs["d_model"])
    energy = part_energy(track["bridge_profile"].isel(k=1).values, *sizes)
    return energy, np.array([sizes[0], sizes[1], d - sum(sizes)]) / d


def _bridge(track: xr.Dataset) -> Iterator[Finding]:
    found = _energies(track)
    if found is None:
        return
    energy, chance = found
    k = int(track["k"][1])
    last = energy[-1]
    text = (
        f"The bridge (top {k} key directions of layer 1) has {last[1]:.2f} of its energy in the medium subspace of the "
        f"embedding, {chance[1]:.2f} by chance, and {last[2]:.2f} in the bottom one, {chance[2]:.2f} by chance; before "
        f"training {energy[0][1]:.2f} and {energy[0][2]:.2f}."
    )
    apart: Verdict = "holds" if last[1] < chance[1] - CLEAR and last[2] > chance[2] + CLEAR else "does not hold"
    claim = "the bridge is nearly orthogonal to the medium subspace and aligned with the bottom one"
    yield _claim(claim, apart, text, float(last[1]), float(chance[1]), 0.85)


def _top(track: xr.Dataset) -> Iterator[Finding]:
    if track.sizes["layer"] < 2:
        return
    curve, chance = track["top_in_bridge"].isel(k=1), float(track["top_in_bridge_chance"][1])
    value = float(curve[-1])
    works = float(track["ood_accuracy"][-1]) > 0.9
    verdict: Verdict = "holds" if value > chance + CLEAR else "does not hold"
    after = "" if value > chance + CLEAR or not works else ", while copying works all the same"
    text = f"{value:.2f} of the embedding's top direction lies in the bridge at the end, {chance:.2f} by chance{after}."
    yield _claim("the bridge is aligned with the top direction", verdict, text, value, chance, 0.6)


def _order(result: xr.DataTree) -> Iterator[Finding]:
    node = _node(result, "transition")
    if node is None or not np.isfinite(float(node["transition_step"])):
        return
    lags = {str(q): float(v) for q, v in zip(node["quantity"].values, node["lag"].values, strict=True)}
    known = {name: value for name, value in lags.items() if np.isfinite(value)}
    if not known:
        return
    ordered = sorted(known.items(), key=lambda pair: pair[1])
    listed = ", ".join(f"{name} {value:+.0f}" for name, value in ordered)
    first = known.get("previous-token score of layer 0", float("nan"))
    induction = known.get("induction score of the last layer", float("nan"))
    verdict: Verdict = "cannot tell"
    if np.isfinite(first) and np.isfinite(induction):
        verdict = "holds" if first < induction else "does not hold"
    text = f"Half-way points against the transition, in steps: {listed}."
    yield _claim("the previous-token head forms first", verdict, text, first if first == first else 0.0, 0.0, 0.5)


def _sharpness(track: xr.Dataset) -> Iterator[Finding]:
    if "hessian_top" not in track:
        return
    known = track[["hessian_top", "hessian_top_error", "sharpness_share"]].dropna("step", subset=["hessian_top"])
    if known.sizes["step"] < 3:
        return
    trained = known.isel(step=slice(1, None))
    first, last = float(trained["hessian_top"][0]), float(trained["hessian_top"][-1])
    shares = trained["sharpness_share"].isel(step=-1)
    order = np.argsort(-shares.values)[:2]
    where = " and ".join(f"{shares['group'].values[i]} ({shares.values[i]:.0%})" for i in order)
    first_shares = trained["sharpness_share"].isel(step=0).values
    start = str(shares["group"].values[int(first_shares.argmax())])
    text = (
        f"The Hessian's largest eigenvalue goes from {first:.2f} at step {int(trained['step'][0])} to {last:.2f} at "
        f"step {int(trained['step'][-1])}; its direction lives in {where} at the end and in {start} at first."
    )
    yield _claim("sharpness increases", "holds" if last > 1.5 * first else "does not hold", text, last, None, 0.65)


def _ablations(result: xr.DataTree) -> Iterator[Finding]:
    node = _node(result, "ablation")
    if node is None:
        return
    effect = node["accuracy"] - node["accuracy_control"].mean("control")
    worst = effect.stack(cell=("space", "site")).sortby(effect.stack(cell=("space", "site")))
    listed = []
    for cell in worst["cell"].values[:4]:
        value = float(node["accuracy"].sel(space=cell[0], site=cell[1]))
        control = float(node["accuracy_control"].sel(space=cell[0], site=cell[1]).mean())
        listed.append(f"{cell[0]} from {cell[1]} {value:.2f} (random {control:.2f})")
    kept = float(node["accuracy"].sel(space="bottom", site="embedding"))
    text = (
        f"OOD accuracy {float(node['accuracy_whole']):.2f} falls most, beyond random subspaces of the same dimension, "
        f"for: {'; '.join(listed)}. Without the bottom subspace in the embedding it stays {kept:.2f}."
    )
    keys, values = (float(node["accuracy"].sel(space=s, site=p)) for s, p in (("bottom", "L1 K"), ("medium", "L1 V")))
    split: Verdict = "holds" if max(keys, values) < 0.5 * float(node["accuracy_whole"]) else "does not hold"
    claim = "the two subspaces have separate jobs: medium holds tokens, bottom holds the previous token for matching"
    yield _claim(claim, split, text, float(worst[0]), 0.0, 0.8)


def _offset(result: xr.DataTree) -> Iterator[Finding]:
    node, track = _node(result, "offset"), result.to_dataset()
    if node is None:
        return
    best = int(track["previous_token"].isel(step=-1, layer=0).values.argmax())
    share, chance = float(node["share"][best]), float(node["share_chance"])
    score = float(track["previous_token"].isel(step=-1, layer=0, head=best))
    shuffled = float(node["shuffled_previous_token"][best])
    verdict: Verdict = "holds" if share > 0.5 and shuffled > 0.8 * score else "does not hold"
    text = (
        f"The offset alone explains {share:.0%} of the variance of layer 0's attention logits ({chance:.2%} by "
        f"chance); with tokens shuffled in queries and keys its previous-token score is {shuffled:.2f} instead of "
        f"{score:.2f}."
    )
    yield _claim("layer 0's attention does not use the token embedding", verdict, text, share, chance, 0.6)


def _landscape(result: xr.DataTree) -> Iterator[Finding]:
    node, path = _node(result, "plateau"), _node(result, "path")
    if node is None:
        return
    saddle = bool(float(node["saddle"]))
    barrier = (
        "" if path is None else f" On the line to the trained model the loss barrier is {float(path['barrier']):.3f}."
    )
    text = (
        f"On the plateau the smallest Hessian eigenvalue is {float(node['curvature']):.3f} ± "
        f"{float(node['error']):.3f} (the largest {float(node['top']):.2f}), the gradient norm "
        f"{float(node['gradient_norm']):.2f}, and the loss falls by at most {float(node['fall']):.3f} along that "
        f"direction: a {'saddle' if saddle else 'minimum, as far as it shows'}.{barrier}"
    )
    claim = "before the transition the model sits at a bad saddle or a local minimum"
    yield _claim(claim, "holds" if saddle else "cannot tell", text, float(node["curvature"]), 0.0, 0.5)


def _swaps(result: xr.DataTree) -> Iterator[Finding]:
    node = _node(result, "swap")
    if node is None:
        return
    rows = {
        str(name): float(value) for name, value in zip(node["mixture"].values, node["accuracy"].values, strict=True)
    }
    layers = [name for name in rows if ", L" in name]
    best = max(layers, key=rows.__getitem__)
    text = (
        f"No layer carries the rule alone: the best swap of one layer across the transition ({best}) reaches OOD "
        f"accuracy {rows[best]:.2f}, against {rows['before']:.2f} before and {rows['after']:.2f} after."
    )
    if rows[best] > 0.5 * rows["after"]:
        text = f"One layer suffices: {best} reaches OOD accuracy {rows[best]:.2f}."
    yield Finding(LENS, text, value=rows[best], expected=rows["before"], weight=0.45)
