"""What a training run says about the note on emerging subspaces: a verdict on each claim, with this run's numbers.

The claims are observations about models that copy (document S4 of the ledger); a run of copying confirms them,
contradicts them, or cannot tell. On another task the same numbers answer another question, whether the geometry of
copying appears there too, and are worded so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from headspan.finding import Finding, percent
from headspan.lab.geometry import part_energy
from headspan.lab.study import final_sizes

LENS = "lab"
NOTE = "Emergence of (nearly) orthogonal subspaces (2025), note on copying in two-layer transformers"
VERDICTS = {True: "holds", False: "does not hold", None: "cannot tell"}
ELSEWHERE = {True: "appears", False: "does not appear", None: "cannot be told"}
RULES = {"copying": "to copy", "addition": "to add", "text": "to copy from the text alone"}
LARGE_RATIO, FEWEST_MEDIUM, MOST_MEDIUM = 1.2, 0.3, 0.7
SMALL_BARRIER = 0.02
RESTARTS = ("as it is", "along the most negative curvature", "the other way along it", "as far at random")
CLEAR = 0.15
"""Difference of energy from its null value that counts as one."""


def findings(result: xr.DataTree) -> list[Finding]:
    """The transition, then a verdict on every claim that the run can be asked about."""
    track = result.to_dataset()
    nodes = {name: node.to_dataset(inherit=False) for name, node in result.children.items()}
    found = [*_learning(track, nodes.get("transition")), *_spectrum(track)]
    found += [*_bridge(track), *_top(track), *_sharpness(track)]
    found += [one for name, told in TOLD.items() if name in nodes for one in told(nodes[name], track, nodes)]
    task = _task(track)
    return found if task == "copying" else [_of_another_task(one, task) for one in found]


def _task(track: xr.Dataset) -> str:
    return str(track.attrs.get("task", "copying"))


def _claim(
    claim: str, holds: bool | None, numbers: str, value: float, null: float | None, weight: float
) -> Iterator[Finding]:
    evidence = f"Claim: {claim}. Verdict on this run: {VERDICTS[holds]}."
    yield Finding(LENS, numbers, value=value, expected=null, evidence=evidence, reference=NOTE, weight=weight)


def _of_another_task(finding: Finding, task: str) -> Finding:
    """The note speaks of copying: on another task its claims are no claims, but what to compare with."""
    evidence = finding.evidence
    for holds, verdict in VERDICTS.items():
        evidence = evidence.replace(f"Verdict on this run: {verdict}.", f"On the task {task} it {ELSEWHERE[holds]}.")
    return replace(finding, evidence=evidence.replace("Claim: ", "Of copying the note says: "))


def _learning(track: xr.Dataset, node: xr.Dataset | None) -> Iterator[Finding]:
    claim = "the task is learned in a sharp transition"
    ood, last = float(track["ood_accuracy"][-1]), int(track["step"][-1])
    text = f"The model does not learn {RULES[_task(track)]} within {last} steps: OOD accuracy ends at {ood:.3f}."
    sharp = None
    if node is not None and np.isfinite(float(node["transition_step"])):
        step, low, high, width = (float(node[f"transition_{name}"]) for name in ("step", "low", "high", "width"))
        text = (
            f"OOD accuracy rises to {ood:.3f} in a transition at step {step:.0f} (95 % interval {low:.0f} to "
            f"{high:.0f}); from a tenth to nine tenths takes {4.4 * width:.0f} of {last} steps."
        )
        sharp = 4.4 * width < 0.5 * step
    return _claim(claim, sharp, text, ood, float(track["accuracy_null"]), 0.9)


def _spectrum(track: xr.Dataset) -> Iterator[Finding]:
    claim = "the embedding has one very large singular value, some 35 of 64 medium ones, and small ones"
    d, values = int(track.attrs["d_model"]), track["embedding_singular_value"].values[-1]
    gap, null = float(track["gap"][-1]), float(track["gap_null"][-1])
    sizes = final_sizes(track)
    if sizes is None or not np.isfinite(float(track["medium_size"][-1])):
        text = f"The embedding's spectrum has no significant gap at the end: {gap:.1f} (random matrices: {null:.1f})."
        return _claim(claim, False, text, gap, null, 0.6)
    first = int(track["step"].values[np.isfinite(track["medium_size"].values)][0])
    large = bool(values[0] / values[1] > LARGE_RATIO and FEWEST_MEDIUM < sizes[1] / d < MOST_MEDIUM)
    text = (
        f"At the end the embedding has one singular value of {values[0]:.1f}, {sizes[1]} from {values[1]:.1f} to "
        f"{values[sizes[1]]:.1f}, a gap, and {d - 1 - sizes[1]} below {values[sizes[1] + 1]:.1f}; the gap is first "
        f"significant at step {first}."
    )
    return _claim(claim, large, text, gap, null, 0.7)


def _bridge(track: xr.Dataset) -> Iterator[Finding]:
    """Energy of the bridge at the middle k in the parts of the split found last."""
    sizes = final_sizes(track)
    if sizes is None or track.sizes["layer"] < 2:
        return
    k, d = int(track["k"][1]), int(track.attrs["d_model"])
    energy = part_energy(track["bridge_profile"].isel(k=1).values, *sizes)
    null, last = np.array([sizes[0], sizes[1], d - sum(sizes)]) / d, energy[-1]
    text = (
        f"The bridge (top {k} key directions of layer 1) has {last[1]:.2f} of its energy in the medium subspace of the "
        f"embedding (expected {null[1]:.2f}) and {last[2]:.2f} in the bottom one (expected {null[2]:.2f}); before "
        f"training {energy[0][1]:.2f} and {energy[0][2]:.2f}."
    )
    apart = bool(last[1] < null[1] - CLEAR and last[2] > null[2] + CLEAR)
    claim = "the bridge is nearly orthogonal to the medium subspace and aligned with the bottom one"
    yield from _claim(claim, apart, text, float(last[1]), float(null[1]), 0.85)


def _top(track: xr.Dataset) -> Iterator[Finding]:
    if track.sizes["layer"] < 2:
        return
    value, null = float(track["top_in_bridge"].isel(k=1)[-1]), float(track["top_in_bridge_null"][1])
    aligned = value > null + CLEAR
    works = float(track["ood_accuracy"][-1]) > 0.9
    after = ", while the task is learned all the same" if works and not aligned else ""
    text = f"{value:.2f} of the embedding's top direction is in the bridge at the end (expected {null:.2f}){after}."
    yield from _claim("the bridge is aligned with the top direction", aligned, text, value, null, 0.6)


def _sharpness(track: xr.Dataset) -> Iterator[Finding]:
    if "hessian_top" not in track:
        return
    known = track[["hessian_top", "hessian_top_error", "sharpness_share"]].dropna("step", subset=["hessian_top"])
    if known.sizes["step"] < 3:
        return
    trained = known.isel(step=slice(1, None))
    first, last = float(trained["hessian_top"][0]), float(trained["hessian_top"][-1])
    groups, shares = trained["group"].values, trained["sharpness_share"].values
    where = " and ".join(f"{groups[i]} ({percent(shares[-1][i])})" for i in np.argsort(-shares[-1])[:2])
    text = (
        f"The Hessian's largest eigenvalue goes from {first:.2f} at step {int(trained['step'][0])} to {last:.2f} at "
        f"step {int(trained['step'][-1])}; its direction is in {where} at the end and in "
        f"{groups[int(shares[0].argmax())]} at first."
    )
    yield from _claim("sharpness increases", last > 1.5 * first, text, last, None, 0.65)


def _order(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    lags = {str(q): float(v) for q, v in zip(node["quantity"].values, node["lag"].values, strict=True)}
    known = {name: value for name, value in lags.items() if np.isfinite(value)}
    if not np.isfinite(float(node["transition_step"])) or not known:
        return
    listed = ", ".join(f"{name} {value:+.0f}" for name, value in sorted(known.items(), key=lambda pair: pair[1]))
    first = known.get("previous-token score of layer 0")
    induction = known.get("induction score of the last layer")
    before = None if first is None or induction is None else first < induction
    text = f"Half-way points relative to the transition, in steps: {listed}."
    yield from _claim("the previous-token head forms first", before, text, first or 0.0, 0.0, 0.5)


def _ablations(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    accuracy, control = node["accuracy"], node["accuracy_control"].mean("control")
    effect = (accuracy - control).stack(cell=("space", "site"))
    worst, whole = effect.sortby(effect), float(node["accuracy_whole"])
    listed = "; ".join(
        f"{space} from {site} {float(accuracy.sel(space=space, site=site)):.2f} "
        f"(random {float(control.sel(space=space, site=site)):.2f})"
        for space, site in worst["cell"].values[:4]
    )
    kept, keys, values = (
        float(accuracy.sel(space=space, site=site))
        for space, site in (("bottom", "embedding"), ("bottom", "L1 K"), ("medium", "L1 V"))
    )
    text = (
        f"OOD accuracy {whole:.2f} falls most, beyond random subspaces of the same dimension, for: {listed}. Without "
        f"the bottom subspace in the embedding it stays {kept:.2f}."
    )
    claim = "the two subspaces have separate jobs: medium holds tokens, bottom holds the previous token for matching"
    return _claim(claim, max(keys, values) < 0.5 * whole, text, float(worst[0]), 0.0, 0.8)


def _offset(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    scores = track["previous_token"].isel(step=-1, layer=0).values
    best = int(scores.argmax())
    share, null = float(node["share"][best]), float(node["share_null"])
    score, shuffled = float(scores[best]), float(node["shuffled_previous_token"][best])
    text = (
        f"The offset alone explains {percent(share)} of the variance of layer 0's attention logits (expected "
        f"{percent(null, 2)}); "
        f"with tokens shuffled in queries and keys its previous-token score is {shuffled:.2f} instead of {score:.2f}."
    )
    claim = "layer 0's attention does not use the token embedding"
    return _claim(claim, share > 0.5 and shuffled > 0.8 * score, text, share, null, 0.6)


def _plateau(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    saddle, barrier = bool(float(node["saddle"])), ""
    if "path" in nodes:
        barrier = f" On the line to the trained model the loss barrier is {float(nodes['path']['barrier']):.3f} nats."
    text = (
        f"On the plateau the smallest Hessian eigenvalue is {float(node['curvature']):.3f} ± "
        f"{float(node['error']):.3f} (the largest {float(node['top']):.2f}), the gradient norm "
        f"{float(node['gradient_norm']):.2f}, and the loss falls by at most {float(node['fall']):.3f} nats along that "
        f"direction: a {'saddle' if saddle else 'minimum, as far as it shows'}.{barrier}"
    )
    claim = "before the transition the model sits at a bad saddle or a local minimum"
    return _claim(claim, saddle or None, text, float(node["curvature"]), 0.0, 0.5)


def _swap_rows(node: xr.Dataset) -> dict[str, float]:
    return dict(zip(map(str, node["mixture"].values), map(float, node["accuracy"].values), strict=True))


def _swaps(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    rows = _swap_rows(node)
    best = max((name for name in rows if ", L" in name), key=rows.__getitem__)
    text = (
        f"No layer carries the rule alone: the best swap of one layer across the transition ({best}) reaches OOD "
        f"accuracy {rows[best]:.2f}, against {rows['before']:.2f} before and {rows['after']:.2f} after."
    )
    if rows[best] > 0.5 * rows["after"]:
        text = f"One layer suffices: {best} reaches OOD accuracy {rows[best]:.2f}."
    yield Finding(LENS, text, value=rows[best], expected=rows["before"], weight=0.45)


def _verdict(node: xr.Dataset, track: xr.Dataset, nodes: Mapping[str, xr.Dataset]) -> Iterator[Finding]:
    """Curvature, the straight way, exchanged parts and restarts in one sentence."""
    if not {"plateau", "swap"} <= nodes.keys():
        return
    plateau, barrier = nodes["plateau"], float(node["barrier"])
    rows = _swap_rows(nodes["swap"])
    best = max(value for name, value in rows.items() if ", L" in name)
    kind = "a saddle" if float(plateau["saddle"]) else "a minimum, as far as it shows"
    way = "no straight way leads" if barrier > SMALL_BARRIER else "a straight way leads"
    alone = "one layer carries the rule" if best > 0.5 * rows["after"] else "no layer carries the rule alone"
    restarts = ""
    if "study_plateau" in nodes:
        waits = dict(zip(RESTARTS, map(float, nodes["study_plateau"]["learned_at"].values), strict=True))
        moved = np.nanmean([waits[name] for name in RESTARTS[1:3]]) - waits[RESTARTS[0]]
        restarts = f" Moved along its most negative curvature, training learns {moved:+.0f} steps later."
    text = (
        f"Verdict on the plateau: {kind} (smallest eigenvalue {float(plateau['curvature']):.2f}, at most "
        f"{float(plateau['fall']):.3f} nats along it); {way} to the trained model (barrier {barrier:.2f} nats); "
        f"{alone} (best swap {best:.2f} of {rows['after']:.2f}).{restarts}"
    )
    yield Finding(LENS, text, value=float(plateau["curvature"]), expected=0.0, reference=NOTE, weight=0.55)


TOLD: Mapping[str, Callable[[xr.Dataset, xr.Dataset, Mapping[str, xr.Dataset]], Iterator[Finding]]] = {
    "transition": _order,
    "ablation": _ablations,
    "offset": _offset,
    "plateau": _plateau,
    "path": _verdict,
    "swap": _swaps,
}
"""What each experiment says, from its own node, the record, and all nodes."""
