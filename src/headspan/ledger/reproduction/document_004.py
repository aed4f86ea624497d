"""Document 004, subspaces while a small transformer learns to copy: its plot and its questions, from a run of the lab.

The run is the one that a given model belongs to (`--model RUN/model`). Without one a run of the preset `smoke` is
trained for the page, in less than a minute. The runs whose numbers the ledger keeps stand beside it in a table.
Thresholds are those of the claims ledger.
"""

from __future__ import annotations

import numpy as np

from headspan.errors import UnsupportedModel
from headspan.finding import percent
from headspan.lab.experiment_figures import channel_curves
from headspan.ledger.lab_numbers import TENTH_TO_NINE_TENTHS
from headspan.ledger.reproduction.exhibit import AtHand, Exhibits, Outcome, Shown, graded
from headspan.ledger.reproduction.lab_run import lab_run

EXHIBITS = Exhibits("004")
FORMED = 3.0
"""Standard deviations from a random rotation at which a channel counts as formed."""


@EXHIBITS.add(
    "Plot: singular values",
    sentence="The token table has one very large singular value, about 35 medium ones, and small ones behind a gap.",
    rule="Holds if the gap is significant against random matrices of the shape (p at most 0.001) and the first value "
    "is at least 1.2 times the second; in part if one of the two.",
    command="headspan claims --document 004 --model lab=RUN/model",
    claims=("S4.1",),
)
def singular_values(at_hand: AtHand) -> Shown:
    """Gap and first value at the end, beside those before training."""
    run = lab_run(at_hand)
    numbers, first = run.numbers, run.track.isel(step=0)
    values = first["embedding_singular_value"].values
    medium = numbers["medium_share"] * int(run.track.attrs["d_model"])
    where = f"after {medium:.0f} medium values" if medium == medium else "nowhere"
    number = (
        f"The gap is {where} (p = {numbers['gap_p_value']:.2g}; before training p = "
        f"{float(first['gap_p_value']):.2g}), the first value {numbers['top_ratio']:.2f} times the second (before "
        f"training {values[0] / values[1]:.2f})."
    )
    facts = [numbers["gap_p_value"] <= 0.001, numbers["top_ratio"] >= 1.2]
    table = run.beside_kept(("gap_p_value", "medium_share", "top_ratio"))
    return Shown(graded(facts), number, run.name, run.drawn("Singular values of the embedding"), table)


@EXHIBITS.add(
    "Plot: the bridge",
    sentence="What layer 1's keys are read by (the bridge) is nearly orthogonal to the medium subspace of the token "
    "table and aligned with its top and bottom.",
    rule="Energy of the bridge in a part less the part's share of dimensions. Holds if it is at most -0.15 in medium "
    "and at least 0.15 in bottom, and the top direction lies in the bridge by 0.15 more than a random one; in part if "
    "some of the three.",
    command="headspan claims --document 004 --model lab=RUN/model",
    claims=("S4.1", "S4.2"),
)
def bridge(at_hand: AtHand) -> Shown:
    """Energy of the bridge in the parts of the spectrum."""
    run = lab_run(at_hand)
    last = run.track.isel(step=-1)
    energy, null = last["bridge_energy"].isel(k=1), last["bridge_energy_null"]
    if not bool(energy.notnull().all()):
        raise UnsupportedModel(f"{run.name}: the spectrum of its token table has no gap, so that there are no parts")
    told = [
        f"{part} {float(energy.sel(part=part)):.2f} ({float(null.sel(part=part)):.2f})" for part in energy.part.values
    ]
    inside = f"{float(last['top_in_bridge'][1]):.2f} ({float(last['top_in_bridge_null'][1]):.2f})"
    number = f"Energy of the bridge, in brackets expected: {', '.join(told)}. The top direction lies in it by {inside}."
    numbers = run.numbers
    columns = ("medium_excess", "bottom_excess", "top_in_bridge_excess")
    facts = [numbers[columns[0]] <= -0.15, numbers[columns[1]] >= 0.15, numbers[columns[2]] >= 0.15]
    return Shown(graded(facts), number, run.name, run.drawn("Subspace overlaps"), run.beside_kept(columns))


@EXHIBITS.add(
    "Sharp transition",
    sentence="Copying on other data than the model was trained on is learned in a sharp transition.",
    rule="Holds if OOD accuracy reaches 0.9 and rises from a tenth to nine tenths of its height within half of the "
    "time before; in part if it reaches 0.9 slowly.",
    command="headspan train copying --preset default -o RUN --report",
    claims=("S4.3",),
)
def sharp_transition(at_hand: AtHand) -> Shown:
    """Accuracy at the end and the length of its rise."""
    run = lab_run(at_hand)
    numbers, guess = run.numbers, float(run.track["ood_accuracy"][0])
    learned, sharp = numbers["ood_accuracy"] >= 0.9, numbers["rise_share"] <= 0.5
    number = f"OOD accuracy {numbers['ood_accuracy']:.2f} (before training {guess:.2f})"
    if numbers["transition_step"] == numbers["transition_step"]:
        number += (
            f"; transition at step {numbers['transition_step']:.0f}, its rise takes {percent(numbers['rise_share'])} "
            "of the time before it"
        )
    outcome: Outcome = "holds" if learned and sharp else "holds in part" if learned else "does not hold"
    columns = ("ood_accuracy", "transition_step", "rise_share")
    return Shown(outcome, f"{number}.", run.name, run.drawn("Learning curves"), run.beside_kept(columns))


@EXHIBITS.add(
    "Two functions",
    sentence="The two subspaces do different work: one binds the previous position, the other matches tokens.",
    rule="OOD accuracy without a subspace, as a share of the whole. Holds if at most half is left without bottom in "
    "the keys of layer 1 and without medium in its values, in both less than without any random subspace of the same "
    "dimension, and at least 0.8 without bottom in the embedding; in part if some of the three.",
    command="headspan train copying --preset default -o RUN --report",
    claims=("S4.5",),
)
def functions(at_hand: AtHand) -> Shown:
    """Three removals beside random subspaces of the same dimension."""
    run = lab_run(at_hand)
    node, numbers = run.node("ablation"), run.numbers
    columns = ("keys_without_bottom", "values_without_medium", "embedding_without_bottom")
    places = (("bottom", "L1 K"), ("medium", "L1 V"), ("bottom", "embedding"))
    controls = [node["accuracy_control"].sel(space=space, site=site) for space, site in places]
    accuracy = [float(node["accuracy"].sel(space=space, site=site)) for space, site in places]
    told = [
        f"{space} out of {site} {value:.2f} (random {float(control.mean()):.2f})"
        for (space, site), value, control in zip(places, accuracy, controls, strict=True)
    ]
    facts = [
        numbers[columns[0]] <= 0.5 and accuracy[0] < float(controls[0].min()),
        numbers[columns[1]] <= 0.5 and accuracy[1] < float(controls[1].min()),
        numbers[columns[2]] >= 0.8,
    ]
    number = f"OOD accuracy {float(node['accuracy_whole']):.2f} with everything, without {', '.join(told)}."
    drawn = run.drawn("Ablations beside random controls")
    return Shown(graded(facts), number, run.name, drawn, run.beside_kept(columns))


@EXHIBITS.add(
    "Reason 1: layer 0 without tokens",
    sentence="The attention of layer 0 looks at the previous position and does not use the token embedding.",
    rule="Holds if the offset explains at least half of the variance of its logits and its previous-token score keeps "
    "0.8 of its size with tokens shuffled; in part if only the first. (Even attention has no score to lose.)",
    command="headspan claims --document 004 --model lab=RUN/model",
    claims=("S4.4",),
)
def without_tokens(at_hand: AtHand) -> Shown:
    """Variance due to the offset, and the score with shuffled tokens."""
    run = lab_run(at_hand)
    node, numbers = run.node("offset"), run.numbers
    number = (
        f"Offsets explain {percent(numbers['offset_share'])} of the variance of its logits (expected "
        f"{percent(float(node['share_null']), 2)}); with tokens shuffled {percent(numbers['shuffled_share'])} of its "
        "previous-token score is left."
    )
    offset, kept = numbers["offset_share"] >= 0.5, numbers["shuffled_share"] >= 0.8
    outcome: Outcome = "does not hold" if not offset else "holds" if kept else "holds in part"
    table = run.beside_kept(("offset_share", "shuffled_share"))
    return Shown(outcome, number, run.name, run.drawn("Learning curves"), table)


@EXHIBITS.add(
    "Question: how do the subspaces evolve?",
    sentence="The two subspaces appear together with the transition.",
    rule="Own change points of the kernel of layer 0's O with layer 1's K and of the bridge's energy in the bottom "
    "subspace, less that of OOD accuracy. Holds if both are within the rise of the accuracy (a tenth to nine tenths); "
    "in part if one.",
    command="headspan train copying --preset default -o RUN --report",
    claims=("S4.3",),
)
def evolution(at_hand: AtHand) -> Shown:
    """Lags of geometry against accuracy."""
    run = lab_run(at_hand)
    node = run.node("transition")
    lags = {str(name): float(value) for name, value in zip(node.quantity.values, node["lag"].values, strict=True)}
    rise = TENTH_TO_NINE_TENTHS * float(node["transition_width"])
    asked = [lags.get(name, float("nan")) for name in ("kernel O of layer 0, K of layer 1", "bridge energy in bottom")]
    if not any(one == one for one in asked):
        raise UnsupportedModel(f"{run.name}: neither quantity takes a step by the transition")
    told = ["no step of its own" if one != one else f"{one:+.0f} steps" for one in asked]
    number = (
        f"Against the transition at step {float(node['transition_step']):.0f}, whose rise takes {rise:.0f} steps: "
        f"kernel {told[0]}, bridge in bottom {told[1]}."
    )
    table = [["quantity", "steps after the transition"], *([name, f"{one:+.0f}"] for name, one in lags.items())]
    outcome = graded([abs(one) <= rise for one in asked])
    return Shown(outcome, number, run.name, run.drawn("Subspace overlaps", "Learning curves"), table)


@EXHIBITS.add(
    "Question: sharpness",
    sentence="Sharpness, the largest Hessian eigenvalue, increases while the geometry forms.",
    rule="Holds if it grows at least 1.5 times from its first row after the start to its last.",
    command="headspan train copying --preset default -o RUN --report",
    claims=("S4.3",),
)
def sharpness(at_hand: AtHand) -> Shown:
    """Growth of the largest eigenvalue, and when."""
    run = lab_run(at_hand)
    growth = run.numbers["sharpness_growth"]
    if growth != growth:
        raise UnsupportedModel(f"{run.name}: sharpness was not measured; train with a smaller sharpness_every")
    top, lags = run.track["hessian_top"].dropna("step"), run.node("transition")["lag"]
    late = float(lags.sel(quantity="sharpness")) if "sharpness" in lags.quantity.values else float("nan")
    when = f" Half of the way is reached {late:+.0f} steps from the transition." if late == late else ""
    number = (
        f"It grows {growth:.1f} times, from {float(top[1]):.1f} at step {int(top.step[1])} to {float(top[-1]):.1f} at "
        f"step {int(top.step[-1])} (before training {float(top[0]):.1f}).{when}"
    )
    drawn = run.drawn("Sharpness and where it lives", "Loss along the sharpest direction")
    table = run.beside_kept(("sharpness_growth",))
    return Shown("holds" if growth >= 1.5 else "does not hold", number, run.name, drawn, table)


@EXHIBITS.add(
    "Question: saddle or minimum?",
    sentence="Before the transition the model is held at a saddle point and not at a minimum.",
    rule="Holds if the smallest Hessian eigenvalue at the last kept step before the transition is below 0 by more than "
    "its error. That its direction is the way out is another claim, which `--study plateau` asks.",
    command="headspan train copying --preset default -o RUN --study plateau --report",
    claims=("S4.6",),
)
def saddle(at_hand: AtHand) -> Shown:
    """The smallest eigenvalue on the plateau, and what lies along it."""
    run = lab_run(at_hand)
    node = run.node("plateau")
    curvature, error, top, fall = (float(node[name]) for name in ("curvature", "error", "top", "fall"))
    number = (
        f"Smallest eigenvalue {curvature:.2f} (error {error:.2f}), largest {top:.2f}; the loss falls by at most "
        f"{fall:.3f} nats along the smallest."
    )
    drawn = run.drawn("Loss barrier between before and after")
    outcome: Outcome = "holds" if curvature + error < 0 else "does not hold"
    return Shown(outcome, number, run.name, drawn, run.beside_kept(("plateau_curvature",)))


@EXHIBITS.add(
    "Question: one description of composition",
    sentence="Composition of layer 0 into layer 1 can be described by the channels between them, in any model.",
    rule="Coupling of the strongest channel into layer 1's keys, in standard deviations from a random rotation. Holds "
    "if it is above 3 at the kept step nearest to the transition and at the end, was not before training, and stands "
    "above queries and values at the transition; in part if it is gone at the end. (What is said of the transition was "
    "added after the courses of five runs were seen.)",
    command="headspan train copying --preset default -o RUN --study channels",
    claims=(),
)
def composition(at_hand: AtHand) -> Shown:
    """Channels before training and at the end."""
    run = lab_run(at_hand)
    if isinstance(run.channels, str):
        raise UnsupportedModel(f"{run.name}: {run.channels}")
    z, carrying = run.channels["coupling_z"], run.channels["carrying"].sel(pairing="OK")
    at = float(run.channels.attrs["transition"])
    near = int(np.abs(z.step.values - at).argmin()) if at == at else -1
    keys = z.sel(pairing="OK").values
    others = {name: float(z.sel(pairing=name)[near]) for name in ("OQ", "OV")}
    formed = bool(keys[near] > FORMED and keys[0] <= FORMED and keys[near] > max(others.values()))
    outcome: Outcome = "does not hold" if not formed else "holds" if keys[-1] > FORMED else "holds in part"
    number = (
        f"Coupling into keys, z: {keys[0]:+.1f} before training, {keys[near]:+.1f} at step {int(z.step[near])} near "
        f"the transition ({int(carrying[near])} channels carry 90 %), {keys[-1]:+.1f} at the end "
        f"({int(carrying[-1])}); into queries {others['OQ']:+.1f} and values {others['OV']:+.1f} near the transition "
        "(expected 0)."
    )
    return Shown(outcome, number, run.name, {"Channels over training": channel_curves(run.channels)})
