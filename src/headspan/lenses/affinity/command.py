"""`headspan affinity`: its options, what it prints, and the plan that `--explain` prints instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.command import Answer, Command, Facts, Option, Rows, p_text
from headspan.finding import percent
from headspan.lenses.affinity.schema import KERNEL, LONG_NAMES, TWO_WAY

if TYPE_CHECKING:
    import networkx as nx

    from headspan.heads import Heads
    from headspan.lenses.affinity.costs import Cost, Plan
    from headspan.result import Result

COMMAND = Command(
    help="Score every pair of heads that can compose, compared with its null.",
    options={
        "metrics": Option("projection_kernel (pk), composition_score (cs) or both.", names=("--metrics", "--metric")),
        "null": Option(
            "Which null expected values, z, p and q are shown for: two-way (what a pair's heads and layers share in "
            "general), reverse (pairs in reverse order) or haar (random subspaces)."
        ),
        "labels": Option('Head classes: "ioi", "2601.10266", "detected" (by running the model), or a YAML file.'),
        "robustness": Option("Also compare with folded and centered weights.", bool, ("--robustness",)),
        "sensitivity": Option(
            "Also compare with bases made by SVD and cut to leading directions.", bool, ("--sensitivity",)
        ),
        "algorithm": Option("auto, exact, gram, projector or sketch."),
        "sketch": Option(
            "Only the strongest pairs by the kernel: sketched, then verified exactly.", bool, ("--sketch",)
        ),
        "top": Option("How many pairs to show for each pairing, and to look for with --sketch.", int),
        "confidence": Option("With --sketch: the probability that no pair of the top is missed.", float),
        "width": Option("With --sketch: the numbers kept of each direction to begin with.", int),
        "draws": Option("How often heads are resampled for the intervals.", int),
        "explain": Option("Print what each algorithm would cost and which is chosen, and stop.", bool, ("--explain",)),
    },
)
HUBS = 5


def prepare(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | Answer:
    """`--sketch` as the choice of an algorithm; with `--explain` the plan is the answer and nothing is computed."""
    if given["sketch"]:
        options = {**options, "algorithm": "sketch"}
    return _plan(options, given) if given["explain"] else options


def graph(result: Result) -> nx.MultiDiGraph:
    """The graph of the strongest pairs, with q-values under the result's first null."""
    from headspan.lenses.affinity.wiring import wiring_graph

    return wiring_graph(result, top=result.attrs["top"], null=result.attrs["null"])


def _write_graph(result: Result, path: Path) -> None:
    from headspan.lenses.graph import write_graphml

    write_graphml(graph(result), path)


ENDINGS = {".graphml": _write_graph}


def show(result: Result, *, top: int = 20) -> Iterator[str | Rows | Facts]:
    """The strongest pairs of every pairing by every score, the hubs, how the result was made, and further tables."""
    from headspan.lenses.affinity.wiring import metrics_of, pairings_of

    for pairing in pairings_of(result):
        for metric in metrics_of(result, pairing):
            yield _pairs(result, pairing, metric, top)
    if "hub_score" in result:
        hubs = result.table("hubs").dropna(subset="hub_score").nsmallest(HUBS, "hub_rank").to_dict("records")
        lines = [
            (hub["head"], f"{hub['hub_score']:.3f} (in {hub['inlet']:.3f}, out {hub['outlet']:.3f})") for hub in hubs
        ]
        if lines:
            yield Facts(lines, title="Hubs")
    if "shared_weights" in result.attrs:
        yield f"Shared weights: {result.attrs['shared_weights']}."
    yield from _made(result)
    yield from _further(result)


def _pairs(result: Result, pairing: str, metric: str, top: int) -> Rows:
    from headspan.lenses.affinity.wiring import edges, first_null

    node, null = result[pairing], first_null(result, pairing)
    number = {name: float(node[f"{metric}_{name}"]) for name in ("mean", "mean_null")}
    interval = ""
    if f"{metric}_mean_low" in node and node[f"{metric}_mean_low"].notnull():
        interval = f" (95 % {float(node[f'{metric}_mean_low']):.4g} to {float(node[f'{metric}_mean_high']):.4g})"
    title = (
        f"{pairing}, {LONG_NAMES[metric]}: mean {number['mean']:.4g}{interval}, random {number['mean_null']:.4g}; "
        f"{_standing(node, metric)}{int(node[f'{metric}_n_pairs']):,} pairs"
    )
    rows = [
        (
            edge["src"],
            edge["dst"],
            f"{edge['score']:.4f}",
            f"{edge[f'null_{null}']:.4f}",
            f"{edge[f'z_{null}']:.1f}",
            p_text(edge[f"p_{null}"]),
            p_text(edge[f"q_{null}"]),
        )
        for edge in edges(result, pairing, metric, top).to_dict("records")
    ]
    columns = ("src", "dst", "score", f"expected ({null})", "z", "p", "q")
    return Rows(title, columns, rows)


def _standing(node: Any, metric: str) -> str:
    """How many pairs have q < 0.05 under the null that is shown, and how many in reverse order do."""
    if f"{metric}_n_significant" not in node:
        return ""
    count, backward = int(node[f"{metric}_n_significant"][0]), float(node[f"{metric}_n_significant_reverse"])
    known = str(node["null"].values[0]) == TWO_WAY and backward == backward
    return f"q < 0.05 in {count:,}{f' ({backward:,.0f} in reverse order)' if known else ''} of "


def _made(result: Result) -> Iterator[str]:
    """How the result was made, where there is more to say than the tables do."""
    made = result.attrs
    if "null_reason" in made and "shared_weights" not in made:
        yield f"Null: {made['null']}; {made['null_reason']}."
    if "float32_error" in made:
        yield (
            f"Computed in float32: kernels are off by at most about {made['float32_error']:.1g} (estimated from "
            f"{made['float32_error_pairs']} pairs in float64)."
        )
    if made["algorithm"] != "sketch":
        return
    for pairing, node in result.data.children.items():
        certified = int(node["certified"])
        short = "" if certified >= made["top"] else f" of {made['top']} asked for; the rest are too alike"
        yield (
            f"{pairing}: {int(node['verified']):,} pairs verified; the top {certified} are exact with confidence "
            f"{percent(made['confidence'])}{short} (sketch of {made['sketch_width']})."
        )


def _further(result: Result) -> Iterator[str | Rows]:
    """Tables of classes, robustness and sensitivity, as far as they were asked for."""
    titles = {spec.name: spec.title for spec in result.lens.schema.tables}
    for name in ("classes", "detection", "class_hubs", "robustness", "sensitivity"):
        if name not in result:
            continue
        rows, title = result.table(name), titles[name]
        if name == "detection":
            rows, title = rows[rows["question"] == "head"], f"{title} (edges between classes: --json)"
        elif name == "classes":
            title = f"{title} ({result.attrs['labels']})"
        yield Rows.of_records(title, rows.to_dict("records"))
        if name == "robustness":
            left_out = result.table("left_out").to_dict("records")
            yield from (f"{row['change']}: left out, {row['left_out']}" for row in left_out if row["left_out"])


def _plan(options: Mapping[str, Any], given: Mapping[str, Any]) -> Answer:
    """Operations, memory, scratch space and likely time of each algorithm, and which is chosen."""
    from headspan.heads.precision import computing_dtype
    from headspan.lenses.affinity import check_choices
    from headspan.lenses.affinity.costs import affinity_plan, product_speed
    from headspan.lenses.affinity.measurement import checked_pairings
    from headspan.lenses.affinity.schema import chosen_metrics
    from headspan.lenses.model import open_model

    algorithm, metrics = options["algorithm"], chosen_metrics(options["metrics"])
    check_choices(options["pairings"], metrics, options["null"], algorithm, options["labels"])
    heads = open_model(given["model"], given["config"]).heads(stack=given["stack"], fold=given["fold"])
    heads = heads.to(given["dtype"] or computing_dtype(heads))
    wanted = checked_pairings(heads, options["pairings"])
    counted = (KERNEL,) if algorithm == "sketch" else metrics
    plan = affinity_plan(heads, wanted, len(counted), options["memory"], algorithm)
    speed = product_speed(heads.dtype)
    document = {
        "schema": "headspan.affinity-plan/1",
        "chosen": plan.chosen.algorithm,
        "reason": plan.reason,
        "speed": speed,
        "costs": [_record(cost, speed) for cost in plan.costs],
    }
    return Answer(list(_plan_blocks(heads, plan, len(wanted), speed)), document)


def _plan_blocks(heads: Heads, plan: Plan, n_pairings: int, speed: float) -> Iterator[str | Rows]:
    yield Rows(
        f"{n_pairings} pairings in {str(heads.dtype).removeprefix('torch.')}, at {speed:.2g} operations a second",
        ("algorithm", "operations", "memory", "scratch file", "about"),
        [_row(cost, speed) for cost in plan.costs],
    )
    yield f"Chosen: {plan.chosen.algorithm} ({plan.reason}). Reading the weights is not counted."


def _record(cost: Cost, speed: float) -> dict[str, object]:
    names = ("algorithm", "operations", "memory", "scratch")
    return {**{name: getattr(cost, name) for name in names}, "seconds": cost.seconds(speed)}


def _row(cost: Cost, speed: float) -> tuple[str, ...]:
    scratch = _size(cost.scratch) if cost.scratch else "none"
    return (cost.algorithm, f"{cost.operations:.2g}", _size(cost.memory), scratch, _duration(cost.seconds(speed)))


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
