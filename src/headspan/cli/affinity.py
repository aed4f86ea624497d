"""`headspan affinity`: which heads can talk to which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Delta, Fold, Memory, Model, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

if TYPE_CHECKING:
    import xarray as xr

    from headspan.heads import Heads
    from headspan.lenses.affinity.head_classes import HeadClasses

METRICS = {"pk": ("pk",), "cs": ("cs",), "both": ("pk", "cs")}


def affinity(
    model: Model,
    pairing: Annotated[
        str | None, typer.Option(help="Pairings such as OQ,OK,OV (the default), or all.", show_default=False)
    ] = None,
    metric: Annotated[str, typer.Option(help="pk (projection kernel), cs (composition score) or both.")] = "both",
    top: Annotated[int, typer.Option(help="How many pairs to show for each pairing.")] = 20,
    null: Annotated[str, typer.Option(help="Null of the p-values shown: haar or anticausal.")] = "haar",
    labels: Annotated[
        str | None,
        typer.Option(help='Head classes: "ioi", "2601.10266", "detected" (by running the model), or a YAML file.'),
    ] = None,
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Also compare with folded and centred weights.")
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also compare with bases made by SVD and cut to leading directions.")
    ] = False,
    sketch: Annotated[
        bool, typer.Option("--sketch", help="Only the strongest pairs by the kernel: sketched, then verified exactly.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(help="With --sketch: the probability that no pair of the top is missed.")
    ] = 0.99,
    memory: Memory = "4GB",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what each algorithm would cost and which is chosen, and stop.")
    ] = False,
    fold: Fold = "none",
    delta: Delta = 0,
    output: Output = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Score every pair of heads that can compose, beside what chance would give."""
    from headspan.atomic import check_writable
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.affinity_plan import print_made, print_plan
    from headspan.errors import ShapeError
    from headspan.heads.memory import working_memory
    from headspan.lenses import affinity as lens
    from headspan.lenses.affinity import sketch as sketched
    from headspan.lenses.affinity.head_classes import default_labels
    from headspan.lenses.affinity.tables import as_json as document
    from headspan.lenses.saving import ENDINGS, without_nan

    if metric not in METRICS or null not in lens.NULLS or top < 1:
        raise ShapeError("--metric is pk, cs or both; --null is haar or anticausal; --top is at least 1")
    if sketch and (metric == "cs" or robustness or sensitivity or delta):
        raise ShapeError(
            "--sketch finds pairs by the projection kernel of the weights as they are; it goes without --metric cs, "
            "--robustness, --sensitivity and --delta"
        )
    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, (*ENDINGS, ".graphml"))
    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    if explain:
        print_plan(heads, pairing, ("pk",) if sketch else METRICS[metric], memory, sketch, as_json)
        return
    classes, budget = _classes(labels, heads), working_memory(memory)
    if sketch:
        result = sketched.compute(heads, pairings=pairing, top=top, confidence=confidence, memory=budget)
    else:
        result = lens.compute(heads, pairings=pairing, metrics=METRICS[metric], delta=delta, memory=budget)
    extra = _class_extras(result, classes, top)
    extra |= _stability_extras(result, heads, top, delta, robustness, sensitivity)
    save_figures("affinity", result, figures, figure_format, dark, classes or default_labels(heads))
    if output is not None:
        _save(result, output, top, null)
    if as_json:
        typer.echo(json.dumps(without_nan({**document(result, top, null), **extra}), indent=2, allow_nan=False))
    else:
        _print(result, top, null)
        print_made(result)
        _print_extras(extra)
        if output is not None:
            typer.echo(f"Written to {output}")


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


def _save(result: xr.DataTree, output: Path, top: int, null: str) -> None:
    from headspan.lenses.affinity.tables import as_json, table
    from headspan.lenses.affinity.wiring import wiring_graph, write_graphml
    from headspan.lenses.saving import save_result

    save_result(
        result,
        output,
        table=table,
        as_json=lambda tree: as_json(tree, top, null),
        more={".graphml": lambda path: write_graphml(wiring_graph(result, top=top, null=null), path)},
    )


def _print(result: xr.DataTree, top: int, null: str) -> None:
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
