"""Neurons of one head: which listen to what it writes, and which write what it reads.

A neuron's input weight is a vector of the stream (two with a gate), and so is its output weight. The share of such a
vector in a subspace of p of d dimensions is |U^T w|^2 / |w|^2, under a random rotation exactly Beta(p/2, (d - p)/2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families.order import Part, can_compose
from headspan.dims import KV_ROLES, HeadLabel, Role
from headspan.errors import ArgumentError, MissingTensor
from headspan.heads import Heads
from headspan.lenses.wiring.energy import reading_matrices
from headspan.lenses.wiring.parts import READ_ROLES, Axis
from headspan.lenses.wiring.relations import Edges, Spectra, matrix_edges
from headspan.progress import current_step


def neuron_edges(heads: Heads, label: str, null: str, tolerance: float | None) -> Iterator[Edges]:
    """From the head's O to every neuron of the MLPs that read it, then from neurons to the head's Q, K and V."""
    if "MLP" not in heads.reader.stored.parts:
        raise MissingTensor("neurons need the MLP, which this checkpoint does not have")
    head = _checked(heads, label)
    spaces = _spaces(heads, head, tolerance)
    reads = ("gate", "up") if reading_matrices(heads) == 2 else ("in",)
    shares: dict[tuple[str, Role], dict[int, np.ndarray]] = {}
    for layer in heads.layers:
        listens = can_compose(heads.stack, "O", head.layer, "MLP", layer)
        feeds: list[Role] = [
            role for role in READ_ROLES if can_compose(heads.stack, "MLP", layer, _part(role), head.layer)
        ]
        if not (listens or feeds):
            continue
        current_step(f"neurons of layer {layer}")
        for place, W in enumerate(heads.mlp_matrices(layer)):
            writes = place == len(reads)
            rows, name = (W, "out") if writes else (W.mT, reads[place])
            readers: list[Role] = feeds if writes else ["O"] if listens else []
            for role in readers:
                shares.setdefault((name, role), {})[layer] = _share(rows, spaces[role][0])
    for (name, role), by_layer in shares.items():
        yield _relation(heads, head, name, role, by_layer, int(spaces[role][1]), null)


def _part(role: Role) -> Part:
    return cast("Part", role)


def _checked(heads: Heads, label: str) -> HeadLabel:
    head = HeadLabel.parse(label)
    if head.kv or head.layer not in heads.layers or head.head >= heads.n_heads:
        raise ArgumentError(
            f"neurons={label!r} is no head of this model, which has layers {heads.layers[0]} to {heads.layers[-1]} of "
            f"{heads.n_heads} heads; write it like L4H7"
        )
    return head


def _spaces(heads: Heads, head: HeadLabel, tolerance: float | None) -> dict[Role, tuple[Float[Tensor, "d p"], Tensor]]:
    """Basis and rank of what the head writes and reads, keys and values of the kv head that it uses."""
    block, group = heads.layer(head.layer), heads.n_heads // heads.n_kv_heads
    found: dict[Role, tuple[Tensor, Tensor]] = {}
    for role in ("O", *READ_ROLES):
        place = head.head // group if role in KV_ROLES else head.head
        space = block.spaces(role, tolerance, slice(place, place + 1))
        found[role] = space.basis[0, 0], space.rank[0, 0]
    return found


def _share(rows: Float[Tensor, "neuron d"], U: Float[Tensor, "d p"]) -> np.ndarray:
    """|U^T w|^2 / |w|^2 of every row, in [0, 1]; NaN for a row of zeros or a space without dimensions."""
    total = rows.square().sum(1)
    inside = (rows @ U).square().sum(1)
    known = (total > 0) & bool(U.any())
    share = torch.where(known, inside / total.clamp(min=torch.finfo(total.dtype).tiny), torch.nan)
    return np.asarray(share.clamp(max=1.0).double().cpu().numpy())


def _relation(
    heads: Heads, head: HeadLabel, name: str, role: Role, by_layer: dict[int, np.ndarray], rank: int, null: str
) -> Edges:
    layers = np.concatenate([np.full(len(values), layer) for layer, values in by_layer.items()])
    numbers = np.concatenate([np.arange(len(values)) for values in by_layer.values()])
    labels = np.array([f"L{layer}N{number}" for layer, number in zip(layers, numbers, strict=True)], dtype=object)
    neurons = Axis("MLP", labels, layers, numbers, name)
    grouped = role in KV_ROLES and heads.n_kv_heads < heads.n_heads
    number = head.head // (heads.n_heads // heads.n_kv_heads) if grouped else head.head
    shown = str(HeadLabel(head.layer, number, grouped))
    one = Axis(_part(role), np.array([shown], dtype=object), np.array([head.layer]), np.array([number]))
    share = np.concatenate(list(by_layer.values()))
    of_head, of_neurons = Spectra.of_ranks(np.array([rank])), Spectra(np.ones((len(share), 1)))
    if role == "O":
        return matrix_edges(one, neurons, share[None, :], (of_head, of_neurons), heads.d_model, null)
    return matrix_edges(neurons, one, share[:, None], (of_neurons, of_head), heads.d_model, null)
