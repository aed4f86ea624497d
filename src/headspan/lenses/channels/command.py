"""`headspan channels`, and `headspan pair`: its options, what it prints, and the files it can write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.command import Command, Facts, Option, Rows, p_text
from headspan.finding import percent
from headspan.lenses.channels.schema import SCORES, top_nodes

if TYPE_CHECKING:
    import networkx as nx
    import xarray as xr

    from headspan.result import Result

COMMAND = Command(
    help="Decompose what leads from one head through another into rank-one channels; of all pairs, or of one.",
    options={
        "pairings": Option(
            "Pairings such as OQ,OK,OV; scores of a pair also all 16.", names=("--pairings", "--pairing")
        ),
        "null": Option("What z, p and q of all pairs are shown for: two-way or haar."),
        "algorithm": Option("auto, exact (all pairs) or candidates (pairs of high affinity)."),
        "top": Option("How many channels of each pairing to keep and show.", int),
        "used": Option("Of a pair: run the model without the channels into these heads, such as L1H0,L1H6.", str),
        "vocabulary": Option("Read the directions in the vocabulary.", bool, ("--vocabulary/--no-vocabulary",)),
        # By default folded where the model allows it, and the scores of a pair as stored.
        "fold": Option('Weights as stored ("none") or with the norm folded in ("layernorm").', str),
    },
    arguments={
        "src": Option("A head such as L4H11.", metavar="SOURCE"),
        "dst": Option("A head of a later layer, such as L5H1.", metavar="DESTINATION"),
    },
    views=("pair",),
)


def _write_directions(result: Result, path: Path) -> None:
    from headspan.lenses.channels.export import write_directions

    write_directions(result, path)


def graph(result: Result) -> nx.MultiDiGraph:
    """The listed channels between heads."""
    from headspan.lenses.channels.export import channel_graph

    return channel_graph(result)


def _write_graph(result: Result, path: Path) -> None:
    from headspan.lenses.graph import write_graphml

    write_graphml(graph(result), path)


COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("strength", "strength", "{:.3g}".format),
    ("coupling", "coupling", "{:.4f}".format),
    ("coupling_null", "expected ({})", "{:.4f}".format),
    ("coupling_z", "z", "{:.1f}".format),
    ("coupling_q", "q", p_text),
    ("share", "share", percent),
    ("carrying", "90 % in", "{:.0f}".format),
)
"""Of a channel: variable, heading with the null's name, format."""
ENDINGS = {".safetensors": _write_directions, ".graphml": _write_graph}


def show(result: Result, *, top: int = 20) -> Iterator[str | Rows | Facts]:
    """The strongest channels of every pairing; of a pair first its scores, then what the numbers depend on."""
    if "pair" in result:
        yield _scores(result)
    for pairing, node in top_nodes(result).items():
        yield _channels(result, pairing, node, top)
    if "use" in result:
        yield from _use(result)
    yield from (finding.statement for finding in result.findings)
    yield Facts(list(_made(result)))


def _scores(result: Result) -> Rows:
    rows, made = [], result.attrs
    for pairing in result["pair"].children:
        node = result.dataset(f"pair/{pairing}")
        angles = node["angle"].values
        for metric in SCORES:
            if metric in node:
                p_values = [
                    float(node[f"{metric}_p"].sel(null=null)) for null in ("haar", "reverse") if null in node["null"]
                ]
                rows.append(
                    (
                        str(pairing),
                        metric,
                        f"{float(node[metric]):.4f}",
                        f"{float(node[f'{metric}_null'].sel(null='haar')):.4f}",
                        f"{int(node[f'{metric}_rank']):,} of {int(node[f'{metric}_n_pairs']):,}",
                        *map(p_text, [*p_values, float("nan")][:2]),
                        f"{angles[0]:.1f} to {angles[-1]:.1f}" if metric == SCORES[0] and len(angles) else "",
                    )
                )
    columns = ("pairing", "metric", "score", "expected", "rank", "p (haar)", "p (reverse)", "angles (°)")
    return Rows(f"{made['src']} -> {made['dst']}, weights with fold {made['scores_fold']}", columns, rows)


def _channels(result: Result, pairing: str, node: xr.Dataset, top: int) -> Rows:
    null, with_tokens = str(node["null"].values[0]), "tokens" in node
    rows = []
    for place in range(min(top, node.sizes["channel"])):
        one = node.isel(channel=place, null=0)
        tokens = [str(one["tokens"].sel(side=side).values) for side in ("source", "target")] if with_tokens else []
        cells = [form(float(one[name])) for name, _, form in COLUMNS]
        rows.append((str(one["channel"].values), *cells, str(one["sign"].values), *tokens))
    columns = ["channel", *(title.format(null) for _, title, _ in COLUMNS), "sign"]
    counted = ""
    if pairing in result:
        grid = result[pairing]
        counted = f": q < 0.05 in {int(grid['n_significant'][0]):,} of {int(grid['n_pairs']):,} pairs"
    return Rows(
        f"{pairing} channels{counted}", [*columns, *(("source tokens", "target tokens") if with_tokens else ())], rows
    )


def _use(result: Result) -> Iterator[Rows]:
    """Share copied by number of channels removed, means over random draws."""
    rows = result.table("use")
    for (pairing, untrained), own in rows.groupby(["pairing", "untrained"], sort=False):
        means = own.pivot_table(index="channels", columns="removed", values="copied", sort=False).reset_index()
        which = "in the untrained twin " if untrained else ""
        title = (
            f"Repeated tokens copied {which}without parts of what {result.attrs['src']} sends to {result.attrs['used']}"
        )
        yield Rows.of_records(f"{title} ({pairing})", means.to_dict("records"))


def _made(result: Result) -> Iterator[tuple[str, str]]:
    """What the numbers depend on."""
    made = result.attrs
    names = ("model", "file_hash", "fold", "dtype", "stored_dtype", "tolerance", "delta", "null_reason", "algorithm")
    yield from ((name.replace("_", " "), str(made[name])) for name in names if name in made)
    if "command" in made:
        yield "reproduce with", str(made["command"])
