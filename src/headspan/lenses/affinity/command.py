"""`headspan affinity`: which heads can talk to which."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

    from headspan.heads import Heads
    from headspan.lenses.affinity.head_classes import HeadClasses

METRICS = {"pk": ("pk",), "cs": ("cs",), "both": ("pk", "cs")}

Pairings = Annotated[
    str | None, typer.Option("--pairing", help="Pairings such as OQ,OK,OV (the default), or all.", show_default=False)
]
Metric = Annotated[str, typer.Option("--metric", help="pk (projection kernel), cs (composition score) or both.")]
Top = Annotated[int, typer.Option("--top", help="How many pairs to show for each pairing.")]
Null = Annotated[str, typer.Option("--null", help="Null of the p-values shown: haar or anticausal.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels", help='Head classes: "ioi", "2601.10266", "detected" (by running the model), or a YAML file.'
    ),
]
Robustness = Annotated[bool, typer.Option("--robustness", help="Also compare with folded and centred weights.")]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Also compare with bases made by SVD and cut to leading directions.")
]
Sketch = Annotated[
    bool, typer.Option("--sketch", help="Only the strongest pairs by the kernel: sketched, then verified exactly.")
]
Confidence = Annotated[
    float, typer.Option("--confidence", help="With --sketch: the probability that no pair of the top is missed.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print what each algorithm would cost and which is chosen, and stop.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Also write the result; the ending says how: .nc, .csv, .parquet, .json, or .graphml for the graph of "
        "the strongest pairs.",
    ),
]


def affinity(
    model: shared.Model,
    pairing: Pairings = None,
    metric: Metric = "both",
    top: Top = 20,
    null: Null = "haar",
    labels: Labels = None,
    robustness: Robustness = False,
    sensitivity: Sensitivity = False,
    sketch: Sketch = False,
    confidence: Confidence = 0.99,
    memory: shared.Memory = "4GB",
    explain: Explain = False,
    fold: shared.Fold = "none",
    delta: shared.Delta = 0,
    output: Output = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Score every pair of heads that can compose, beside what chance would give."""
    from headspan.checkpoint import open_checkpoint
    from headspan.lenses.affinity.head_classes import default_labels
    from headspan.lenses.affinity.plan_command import print_plan
    from headspan.lenses.affinity.tables import as_json as document
    from headspan.lenses.affinity.tables import table
    from headspan.storage import without_nan

    _check_choices(metric, null, top)
    if sketch:
        _check_sketch(metric, robustness, sensitivity, delta)
    images = image_files(figures, figure_format, dark)
    to = delivery("affinity", output, images, as_json, more={".graphml": partial(_write_graph, top=top, null=null)})
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    if explain:
        print_plan(heads, pairing, ("pk",) if sketch else METRICS[metric], memory, sketch, as_json)
        return
    classes = _classes(labels, heads)
    result = _computed(heads, pairing, metric, delta, memory, (top, confidence) if sketch else None)
    extra = _class_extras(result, classes, top)
    extra |= _stability_extras(result, heads, top, delta, robustness, sensitivity)
    told = without_nan({**document(result, top=top, null=null), **extra}) if as_json or _is_json(output) else {}
    to.draw(result, classes or default_labels(heads))
    to.save(result, table, lambda _: told)
    to.tell(lambda: told, lambda: _print(result, extra, top, null))


def _is_json(output: Path | None) -> bool:
    return output is not None and output.suffix == ".json"


def _check_choices(metric: str, null: str, top: int) -> None:
    from headspan.errors import ShapeError
    from headspan.lenses.affinity import NULLS

    if metric not in METRICS or null not in NULLS or top < 1:
        raise ShapeError("--metric is pk, cs or both; --null is haar or anticausal; --top is at least 1")


def _check_sketch(metric: str, robustness: bool, sensitivity: bool, delta: int) -> None:
    from headspan.errors import ShapeError

    if metric == "cs" or robustness or sensitivity or delta:
        raise ShapeError(
            "--sketch finds pairs by the projection kernel of the weights as they are; it goes without --metric cs, "
            "--robustness, --sensitivity and --delta"
        )


def _computed(
    heads: Heads, pairing: str | None, metric: str, delta: int, memory: str, sketch: tuple[int, float] | None
) -> xr.DataTree:
    """All scores, or by a sketch only as many pairs as its first number says, with the confidence of its second."""
    from headspan.heads.memory import working_memory
    from headspan.lenses import affinity as lens
    from headspan.lenses.affinity import sketch as sketched

    budget = working_memory(memory)
    if sketch is None:
        return lens.compute(heads, pairings=pairing, metrics=METRICS[metric], delta=delta, memory=budget)
    top, confidence = sketch
    return sketched.compute(heads, pairings=pairing, top=top, confidence=confidence, memory=budget)


def _classes(labels: str | None, heads: Heads) -> HeadClasses | None:
    """Published or given head classes, or those that running the model detects."""
    from headspan.lenses.affinity.head_classes import head_classes

    if labels != "detected":
        return None if labels is None else head_classes(labels, heads)
    from headspan.lenses import detect
    from headspan.runtime import open_runnable

    return detect.detected_classes(detect.compute(open_runnable(heads.checkpoint, stack=heads.stack.name)))


def _class_extras(result: xr.DataTree, classes: HeadClasses | None, top: int) -> dict[str, object]:
    """How the classes stand in the graph and among the hubs, and how well affinity finds them and their edges."""
    from headspan.lenses.affinity.class_detection import class_counts, edge_detection, head_detection
    from headspan.lenses.affinity.hubs import class_hubs, hub_scores

    if classes is None:
        return {}
    joined = [(a, b) for a in classes.classes for b in classes.classes if a != b]
    found = [*head_detection(result, classes), *edge_detection(result, classes, joined)]
    return {
        "labels": {"source": classes.source, "counts": class_counts(result, classes, top).to_dict("records")},
        "detection": [vars(detection) for detection in found],
        "class_hubs": class_hubs(hub_scores(result), classes.classes).to_dict("records"),
    }


def _stability_extras(
    result: xr.DataTree, heads: Heads, top: int, delta: int, robustness: bool, sensitivity: bool
) -> dict[str, object]:
    """Scores against those of folded weights, and kernels against those of other bases, where asked for."""
    import pandas as pd

    from headspan.lenses.affinity.edges import pairings_of
    from headspan.lenses.affinity.robustness import basis_sensitivity, fold_robustness

    extra: dict[str, object] = {}
    if robustness:
        table = fold_robustness(heads.refolded("none"), pairings_of(result), top, delta)
        extra["robustness"] = {"table": table.to_dict("records"), "left_out": table.attrs["left_out"]}
    if sensitivity:
        tables = [basis_sensitivity(heads, pairing, top=top).assign(pairing=pairing) for pairing in pairings_of(result)]
        extra["sensitivity"] = pd.concat(tables).to_dict("records")
    return extra


def _write_graph(result: xr.DataTree, path: Path, top: int, null: str) -> None:
    from headspan.lenses.affinity.wiring import wiring_graph, write_graphml

    write_graphml(wiring_graph(result, top=top, null=null), path)


def _print(result: xr.DataTree, extra: dict[str, object], top: int, null: str) -> None:
    from headspan.lenses.affinity.plan_command import print_made

    _print_scores(result, top, null)
    print_made(result)
    _print_extras(extra)


def _print_scores(result: xr.DataTree, top: int, null: str) -> None:
    """The strongest pairs of every pairing by every score, and the hubs."""
    from headspan.cli.tables import p_text, print_facts, print_table
    from headspan.lenses.affinity.tables import as_json

    document = as_json(result, top, null)
    for pairing, metrics in document["pairings"].items():
        for metric, found in metrics.items():
            if found is None:
                continue
            print_table(
                f"{pairing}, {metric}: {found['n_pairs']:,} pairs, mean {found['mean']:.4g}{_interval(found)}, "
                f"chance {found['chance_mean']:.4g}",
                ("source", "destination", "score", f"p ({null})", f"q ({null})"),
                [
                    (
                        edge["src"],
                        edge["dst"],
                        f"{edge['score']:.4f}",
                        p_text(edge["p_value"]),
                        p_text(edge["q_value"]),
                    )
                    for edge in found["top"]
                ],
            )
    hubs = [hub for hub in document["hubs"] if hub["score"] == hub["score"]][:5]
    if hubs:
        rows = ((hub["head"], f"{hub['score']:.3f} (in {hub['inlet']:.3f}, out {hub['outlet']:.3f})") for hub in hubs)
        print_facts(rows, title="Hubs")


def _interval(found: dict[str, float]) -> str:
    """The mean's interval; a sketch has none."""
    known = found["mean_low"] == found["mean_low"]
    return f" (95 % {found['mean_low']:.4g} to {found['mean_high']:.4g})" if known else ""


def _print_extras(extra: dict[str, object]) -> None:
    from headspan.cli.tables import print_records

    labels = extra.get("labels")
    if isinstance(labels, dict):
        print_records(f"Classes ({labels['source']})", labels["counts"])
    if isinstance(detection := extra.get("detection"), list):
        heads_only = [row for row in detection if row["question"] == "head"]
        print_records("Does affinity find the classes? (edges between classes: --json)", heads_only)
    if isinstance(hubs := extra.get("class_hubs"), list):
        print_records("Where the classes stand among the hubs", hubs)
    if isinstance(robustness := extra.get("robustness"), dict):
        print_records("Agreement with folded weights", robustness["table"])
        for change, reason in robustness["left_out"].items():
            typer.echo(f"{change}: left out, {reason}")
    if isinstance(sensitivity := extra.get("sensitivity"), list):
        print_records("Kernels with other bases", sensitivity)
