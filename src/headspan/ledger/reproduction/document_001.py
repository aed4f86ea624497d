"""Document 001, projection kernel and composition score: published values, diagrams, hubs, classes, folding, questions.

The four questions that the paper leaves open are exhibits of their own: identity heads as hubs, models with RMSNorm and
rotary positions, a baseline from the model's own weights, prompts made for a purpose.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from headspan.dims import COMPOSING, HeadLabel
from headspan.errors import FoldError, HeadspanError, UnsupportedModel
from headspan.heads.classes import HeadClasses, head_classes
from headspan.ledger.models import (
    PAPER,
    affinity_of,
    agreement_after_folding,
    class_lead_p,
    class_precision,
    hub_test,
    identity_extremes,
    kernel_statistics,
    reproduction,
)
from headspan.ledger.reproduction.exhibit import UNTESTED, AtHand, Exhibits, Outcome, Shown, obstacle
from headspan.lenses.affinity.figures import score_distributions
from headspan.lenses.affinity.score_figures import kernel_against_score, precision_recall
from headspan.lenses.affinity.wiring import hub_scores, ranked_hubs, wiring_graph
from headspan.lenses.affinity.wiring_figure import wiring_diagram
from headspan.lenses.detect.schema import DETECTORS
from headspan.lenses.model import Model
from headspan.result import Result
from headspan.runtime.untrained import untrained_twin
from headspan.statistics import empirical_p_value, matched_draws

EXHIBITS = Exhibits("001")
METRICS = ("projection_kernel", "composition_score")
IDENTITY = 7
"""Heads of lowest identity score that count as identity heads, as many as the paper's figure has."""
DRAWS = 4999
STORIES = (
    "Once upon a time there was a farmer who had three sons. The oldest liked the forest, the second liked the sea, "
    "and the youngest liked to sit by the fire and listen.",
    "The committee met on Tuesday to discuss the budget. After two hours it agreed on most of the points and left the "
    "rest for the next meeting.",
    "Water boils at a lower temperature on a mountain, because the pressure of the air is lower there, so cooking "
    "takes longer.",
)
"""Ordinary text of our own, against which prompts made for a purpose are held."""


def _affinity(at_hand: AtHand) -> tuple[Result, Model]:
    model = at_hand.first("affinity")
    return affinity_of(model.checkpoint), model


def _published(model: Model, name: str = PAPER) -> HeadClasses | None:
    try:
        return head_classes(name, model.heads())
    except HeadspanError:
        return None


@EXHIBITS.add(
    "Published values",
    sentence="Figures 1, 5 and 8 of the paper print 24 values for GPT-2 small.",
    rule="Holds if every value, rounded to the digits printed, is the computed one.",
    command="headspan reproduce 2601.10266 --model {model}",
    claims=("S1.8", "S1.9", "S1.10"),
)
def values(at_hand: AtHand) -> Shown:
    """Every published value beside the computed one."""
    model = at_hand.first("affinity", _not_gpt2)
    lines = reproduction(PAPER, model.heads(), affinity_of(model.checkpoint))
    agree = sum(line.agrees for line in lines)
    rows = [(line.statement, line.published, line.computed, "yes" if line.agrees else "no") for line in lines]
    outcome: Outcome = "holds" if agree == len(lines) else "holds in part" if agree else "does not hold"
    number = f"{agree} of {len(lines)} published values are the computed ones."
    return Shown(outcome, number, model.source, table=[("what", "published", "computed", "agrees"), *rows])


def _not_gpt2(model: Model) -> str | None:
    return None if _published(model) is not None else "it is not GPT-2 small, which the published values are of"


@EXHIBITS.add(
    "Random baseline",
    sentence="Kernels of real heads lie above those of random orthogonal matrices, in every pairing.",
    rule="Holds if the mean kernel exceeds its null in all 16 pairings; in part if in some. Whether single pairs stand "
    "out is a question of its own, below.",
    command="headspan affinity {model} --pairings all --null haar",
    claims=("S1.8",),
)
def baseline(at_hand: AtHand) -> Shown:
    """Means of kernels against the Haar null."""
    result, model = _affinity(at_hand)
    found = kernel_statistics(model.checkpoint)
    above = [pairing for pairing in found["mean"] if found["mean"][pairing] > found["null"][pairing]]
    low, high = (choose(found["mean"], key=found["mean"].get) for choose in (min, max))  # type: ignore[arg-type]
    number = (
        f"{len(above)} of {len(found['mean'])} pairings have a mean kernel above the null: from "
        f"{found['mean'][low]:.2f} ({low}) to {found['mean'][high]:.2f} ({high}), expected {found['null'][low]:.2f}."
    )
    outcome: Outcome = "holds" if len(above) == len(found["mean"]) else "holds in part" if above else "does not hold"
    drawn = {"Scores and their nulls": score_distributions(result)}
    if all(metric in result[COMPOSING[0]] for metric in METRICS):
        drawn["Kernel against composition score"] = kernel_against_score(result)
    return Shown(outcome, number, model.source, drawn)


@EXHIBITS.add(
    "Wiring diagrams",
    sentence="The 20 strongest pairs by projection kernel join known classes of heads; by composition score they "
    "scatter.",
    rule="Holds if the share of classified heads among those in the diagrams is larger by kernel than by score, with "
    "p < 0.05 when the classes are dealt out at random within layers; in part if larger with a larger p.",
    command="headspan affinity {model} --figures DIR",
    claims=("S1.9", "S1.10"),
)
def diagrams(at_hand: AtHand) -> Shown:
    """Both diagrams, and how many of their heads have a class."""
    result, model = _affinity(at_hand)
    classes = _published(model)
    named = None if classes is None else classes.of_head
    titles = {METRICS[0]: "Wiring by projection kernel", METRICS[1]: "Wiring by composition score"}
    drawn = {title: wiring_diagram(result, named, metric=metric) for metric, title in titles.items()}
    if classes is None:
        return Shown(UNTESTED, "No published classes of heads are known for this model.", model.source, drawn)
    labels = [str(HeadLabel(layer, head)) for layer in model.heads().layers for head in range(model.heads().n_heads)]
    graphs = [np.isin(labels, list(wiring_graph(result, metric=metric, top=20).nodes)) for metric in METRICS]
    chosen = np.isin(labels, list(classes.of_head))
    layers = np.array([HeadLabel.parse(label).layer for label in labels])
    truth = np.concatenate([chosen[None], matched_draws(chosen, layers, DRAWS, at_hand.seed)])
    shares = [truth[:, graph].mean(1) for graph in graphs]
    lead = shares[0] - shares[1]
    p = float(empirical_p_value(lead[0], lead[1:], 1e-12))
    counts = [f"{int(chosen[graph].sum())} of {int(graph.sum())}" for graph in graphs]
    number = (
        f"{counts[0]} heads of the kernel's diagrams have a class, {counts[1]} of the composition score's (lead "
        f"{lead[0]:+.2f}, expected {lead[1:].mean():+.2f} with classes dealt out within layers, p = {p:.2g})."
    )
    outcome: Outcome = "does not hold" if lead[0] <= 0 else "holds" if p < 0.05 else "holds in part"
    return Shown(outcome, number, model.source, drawn)


@EXHIBITS.add(
    "Precision and recall",
    sentence="The kernel finds heads of known classes with a higher average precision than the composition score.",
    rule="Holds if it leads with p < 0.05 (members dealt out within layers) on both published lists by both "
    "aggregates, a head's largest and its mean affinity; in part if in any of the four.",
    command="headspan affinity {model} --labels ioi",
    claims=("S1.11",),
)
def detection(at_hand: AtHand) -> Shown:
    """Average precision by list and aggregate."""
    model = at_hand.first("affinity", _not_gpt2)
    result, rows, clear = affinity_of(model.checkpoint), [], 0
    drawn: dict[str, go.Figure] = {}
    for labels in ("ioi", PAPER):
        classes = _published(model, labels)
        found = class_precision(model.checkpoint, labels)
        for aggregate in ("largest", "mean"):
            kernel, score = (found[aggregate, metric] for metric in METRICS)
            p = class_lead_p(model.checkpoint, labels, aggregate, DRAWS, at_hand.seed)
            clear += kernel > score and p < 0.05
            base = found["base rate", ""]
            rows.append((labels, aggregate, f"{kernel:.3f}", f"{score:.3f}", f"{base:.3f}", f"{p:.2g}"))
            figure = None if classes is None else precision_recall(result, classes.of_head, aggregate)
            drawn |= {} if figure is None else {f"List {labels}, {aggregate} affinity": figure}
    outcome: Outcome = "holds" if clear == len(rows) else "holds in part" if clear else "does not hold"
    number = f"The kernel leads with p < 0.05 in {clear} of {len(rows)} comparisons; the table has base rates and p."
    header = ("list", "affinity of a head", "kernel", "composition score", "base rate", "p of the lead")
    return Shown(outcome, number, model.source, drawn, [header, *rows])


@EXHIBITS.add(
    "Question: identity heads as hubs",
    sentence="L4H7 is a hub; is it alone, or are identity heads hubs as a class?",
    rule="The seven heads of lowest signed identity score are identity heads. They are hubs as a class if they rank "
    "higher than other heads of their layers (permutation within layers) with p < 0.01 by all three definitions of a "
    "hub; in part if by one.",
    command="headspan affinity {model} --figures DIR; headspan detect {model} --weights-only",
    claims=("S1.12",),
)
def hubs(at_hand: AtHand) -> Shown:
    """Ranks of identity heads among hubs."""
    from headspan.lenses.affinity.figures import hub_ranking

    result, model = _affinity(at_hand)
    removing, _ = identity_extremes(model.checkpoint, IDENTITY)
    tests = {name: hub_test(model.checkpoint, removing, name) for name in ("excess", "kernel", "degree")}
    first = {name: str(ranked_hubs(hub_scores(result, name))["head"][0]) for name in tests}
    told = ", ".join(f"{name} p = {test.p:.2g} (first hub {first[name]})" for name, test in tests.items())
    clear = sum(test.p < 0.01 for test in tests.values())
    outcome: Outcome = "holds" if clear == len(tests) else "holds in part" if clear else "does not hold"
    number = f"Identity heads {', '.join(removing)} against others of their layers: {told}."
    classes = dict.fromkeys(removing, "identity head")
    return Shown(outcome, number, model.source, {"Hubs": hub_ranking(result, classes)})


@EXHIBITS.add(
    "Folding",
    sentence="The kernel hardly changes when the norm's gain is folded into the weights; the composition score does.",
    rule="Holds if rank correlations of kernels with and without folding are at least 0.95 in OQ, OK and OV and above "
    "those of the score in each; in part if above in each only.",
    command="headspan affinity {model} --fold layernorm",
    claims=("S1.7", "S1.13"),
)
def folding(at_hand: AtHand) -> Shown:
    """Agreement of scores with and without folding, on every model given."""
    rows: list[tuple[str, ...]] = []
    verdicts = []
    for model in at_hand.given:
        try:
            if (reason := obstacle("affinity", model)) is not None:
                raise UnsupportedModel(reason)
            found = agreement_after_folding(model.checkpoint)
        except (FoldError, UnsupportedModel) as problem:
            rows.append((model.source, str(problem), "", "", ""))
            continue
        kernel, score = (found[metric] for metric in METRICS)
        ahead = all(kernel[pairing][0] > score[pairing][0] for pairing in COMPOSING)
        firm = min(rho for rho, _ in kernel.values()) >= 0.95
        verdicts.append(2 if ahead and firm else 1 if ahead else 0)
        for pairing in COMPOSING:
            cells = [f"{one[pairing][0]:.3f}, {one[pairing][1]} of 20" for one in (kernel, score)]
            rows.append((model.source, model.stored().stack.norm.kind, pairing, *cells))
    if not verdicts:
        raise UnsupportedModel("no model given has a norm before its attention")
    outcome: Outcome = "holds" if min(verdicts) == 2 else "holds in part" if max(verdicts) else "does not hold"
    number = (
        f"Kernels agree better than scores in all pairings on {sum(one > 0 for one in verdicts)} of {len(verdicts)} "
        f"models, with a rank correlation of at least 0.95 on {sum(one == 2 for one in verdicts)}."
    )
    header = ("model", "norm", "pairing", "kernel: rank correlation, kept of the top 20", "composition score")
    return Shown(outcome, number, "; ".join(one.source for one in at_hand.given), table=[header, *rows])


@EXHIBITS.add(
    "Question: larger models, and a baseline from the weights",
    sentence="Does the kernel work on models with RMSNorm and rotary positions, and can the model's own weights be the "
    "baseline?",
    rule="For every model given: pairs that stand out from a two-way fit of the model's own scores (q < 0.05), in "
    "causal order and in reverse. Holds if there are more in causal order on every model with RMSNorm or rotary "
    "positions; in part if on some. Without such a model it cannot be tested.",
    command="headspan affinity {model} --pairings OQ,OK,OV",
)
def own_baseline(at_hand: AtHand) -> Shown:
    """Pairs above the two-way null in causal and in reverse order."""
    rows: list[tuple[str, ...]] = []
    ahead = []
    for model in at_hand.given:
        if (reason := obstacle("affinity", model)) is not None:
            rows.append((model.source, "", "", "", reason))
            continue
        try:
            result = at_hand.result("affinity", model, pairings=COMPOSING, null="two-way")
            found = [_standing_out(result, pairing) for pairing in COMPOSING]
        except HeadspanError as problem:
            rows.append((model.source, "", "", "", str(problem)))
            continue
        stack, totals = model.stored().stack, [0, 0]
        for pairing, counts in zip(COMPOSING, found, strict=True):
            totals = [a + b for a, b in zip(totals, counts, strict=True)]
            rows.append((model.source, f"{stack.norm.kind}, {stack.positions}", pairing, *map(str, counts)))
        if stack.norm.kind == "rmsnorm" or stack.positions == "rotary":
            ahead.append(totals[0] > totals[1])
    header = ("model", "norm, positions", "pairing", "stand out in causal order", "in reverse order")
    outcome: Outcome = "holds" if all(ahead) else "holds in part" if any(ahead) else "does not hold"
    number = f"More pairs stand out in causal than in reverse order on {sum(ahead)} of {len(ahead)} such models."
    sources = "; ".join(one.source for one in at_hand.given)
    if not ahead:
        outcome, number = UNTESTED, "No model with RMSNorm or rotary positions and layers enough was given."
    return Shown(outcome, number, sources, table=[header, *rows])


def _standing_out(result: Result, pairing: str) -> tuple[int, int]:
    """Pairs with q < 0.05 under the two-way null, and pairs in reverse order that pass the same test."""
    node = result.dataset(pairing)
    if "two-way" not in node["null"].values:
        raise UnsupportedModel("it has too few layers for a two-way fit")
    own = node["projection_kernel_n_significant"].sel(null="two-way")
    return int(own), int(node["projection_kernel_n_significant_reverse"])


@EXHIBITS.add(
    "Question: prompts made for a purpose",
    sentence="Do prompts made for a purpose tell more about what heads do than ordinary text?",
    rule="Heads labeled by detectors (score above 0.4 and 3 standard errors above uniform attention) on repeated "
    "random tokens and on ordinary text. Holds if the made prompt labels more heads as previous-token, duplicate-token "
    "or induction heads than text does, and the untrained twin gets none; in part if the twin gets some.",
    command="headspan detect {model} --text FILE",
)
def prompts(at_hand: AtHand) -> Shown:
    """Heads labeled on made prompts and on text, and on untrained weights."""
    model = at_hand.first("detect", _speaks)
    result = at_hand.result("detect", model, text=" ".join(STORIES), length=16, seeds=4)
    data, kinds = result.dataset(), ("previous_token", "duplicate_token", "induction")
    made, text = (str(name) for name in data["prompt"].values[:2])
    rows, totals = [], [0, 0]
    for kind in (*kinds, *(name for name in DETECTORS if name not in kinds)):
        counts = [int(data[f"{kind}_label"].sel(prompt=prompt).sum()) for prompt in (made, text)]
        both = int((data[f"{kind}_label"].sel(prompt=made) & data[f"{kind}_label"].sel(prompt=text)).sum())
        totals = [a + b * (kind in kinds) for a, b in zip(totals, counts, strict=True)]
        rows.append((kind.replace("_", " "), *map(str, (*counts, both))))
    twin = _untrained_labels(model, kinds)
    outcome: Outcome = "does not hold" if totals[0] <= totals[1] else "holds" if twin == 0 else "holds in part"
    number = f"{totals[0]} labels of these kinds on {made}, {totals[1]} on {text}; untrained twin: {twin}."
    header = ("kind of head", f"labeled on {made}", f"labeled on {text}", "on both")
    return Shown(outcome, number, model.source, dict(result.figures), [header, *rows])


def _untrained_labels(model: Model, kinds: tuple[str, ...]) -> int:
    """Labels that the same model gets on the made prompt with weights as before training."""
    from headspan.lenses.detect.measurement import measure

    found = measure(untrained_twin(model.running()), length=16, seeds=4)
    return sum(int(found[f"{kind}_label"].isel(prompt=0).sum()) for kind in kinds)


def _speaks(model: Model) -> str | None:
    return None if model.running().tokenizer is not None else "it has no tokenizer"
