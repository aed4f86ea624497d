"""Channels for other programs: directions with labels as safetensors, and a graph of the pairs as GraphML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import torch
from safetensors.torch import save_file

from headspan.heads.channels import SIDES
from headspan.lenses.channels.schema import top_nodes
from headspan.storage import without_nan

if TYPE_CHECKING:
    import pandas as pd

    from headspan.result import Result

NUMBERS = ("strength", "coupling", "coupling_z", "coupling_q", "share", "alignment")


def write_directions(result: Result, path: Path) -> None:
    """The directions of the listed channels: for each pairing `OK.source`, `OK.sent`, `OK.received`, `OK.target`
    [channel, d_model], float32, length 1, and `OK.strength [channel]`.

    The metadata hold labels as JSON (`OK.channels`: "L0H3:L1H6:OK:0", ... in the order of the rows), the fold state
    that the directions belong to, the model and the hash of its file.
    """
    tensors: dict[str, torch.Tensor] = {}
    metadata = {name: str(result.attrs[name]) for name in ("model", "file_hash", "fold", "headspan_version", "delta")}
    for pairing, node in top_nodes(result).items():
        for place, side in enumerate(SIDES):
            values = node["direction"].values[:, place].astype("float32")
            tensors[f"{pairing}.{side}"] = torch.from_numpy(values.copy())
        tensors[f"{pairing}.strength"] = torch.from_numpy(node["strength"].values.astype("float32"))
        metadata[f"{pairing}.channels"] = json.dumps([str(label) for label in node["channel"].values])
    save_file(tensors, path, metadata=metadata)


def channel_graph(result: Result) -> nx.MultiDiGraph:
    """The listed channels as a graph: heads are nodes, channels edges keyed by pairing and number."""
    graph = nx.MultiDiGraph(model=str(result.attrs["model"]), fold=str(result.attrs["fold"]))
    rows: pd.DataFrame = result.table()
    for row in rows.to_dict("records"):
        numbers = {name: value for name in NUMBERS if (value := without_nan(row[name])) is not None}
        graph.add_edge(
            row["src"],
            row["dst"],
            key=f"{row['pairing']}:{row['number']}",
            pairing=row["pairing"],
            sign=row["sign"],
            **numbers,
        )
    return graph
