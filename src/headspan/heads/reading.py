"""Reading a block of layers: stored tensors in, per-head weights out.

1. Name the distinct stored tensors that the wanted roles need (a fused tensor is read once for all its roles).
2. Read layer by layer into one buffer per tensor; a single layer that needs no conversion is not copied at all.
3. View each buffer as heads; fold and centre if asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headspan.checkpoint.families import Linear
from headspan.checkpoint.stored_stack import at_layer
from headspan.dims import Role
from headspan.errors import CheckpointError
from headspan.heads.block import HeadBlock
from headspan.heads.folding import centred, folded_reader
from headspan.heads.reader import WeightReader
from headspan.heads.views import head_features, head_weights


def block_bytes(reader: WeightReader, roles: Sequence[Role]) -> tuple[int, int]:
    """Bytes that each layer of a block takes, and bytes that reading takes once, for these roles."""
    stack = reader.stored.stack
    linears = {stack.projections[role].linear: reader.stored.role_features(role) for role in roles}
    items = sum(n_in * n_out + n_out for n_in, n_out in linears.values())
    rows = [stack.projections[role].rows for role in roles]
    folded = 0 if reader.fold == "none" else sum(r.n_heads * r.d_head * (reader.d_model + 1) for r in rows)
    return (items + folded) * reader.dtype.itemsize, items * reader.stored_dtype.itemsize


def read_block(reader: WeightReader, layers: Sequence[int], roles: Sequence[Role]) -> HeadBlock:
    """The weights of `roles` in `layers`, folded and centred as the reader says."""
    buffers = _stored_buffers(reader, layers, roles)
    weights: dict[Role, Tensor] = {}
    biases: dict[Role, Tensor | None] = {}
    for role in roles:
        projection = reader.stored.stack.projections[role]
        matrix, bias = buffers[projection.linear]
        weights[role] = head_weights(matrix, projection.rows, projection.linear.stored, role)
        biases[role] = bias if bias is None or role == "O" else head_features(bias, projection.rows)
    if reader.fold == "layernorm":
        for role in roles:
            fold = _centred_writer if role == "O" else _folded_reader
            weights[role], biases[role] = fold(reader, layers, weights[role], biases[role])
    return HeadBlock(tuple(layers), weights, biases)


def _stored_buffers(
    reader: WeightReader, layers: Sequence[int], roles: Sequence[Role]
) -> dict[Linear, tuple[Tensor, Tensor | None]]:
    """The stored matrices and biases of a block, one buffer [layer, ...] for each distinct stored tensor."""
    templates = {reader.stored.stack.projections[role].linear: reader.stored.role_features(role) for role in roles}
    buffers: dict[tuple[Linear, int], Tensor] = {}
    for index, layer in enumerate(layers):
        parts = {linear: reader.linear_shapes(at_layer(linear, layer), *n) for linear, n in templates.items()}
        tensors = reader.checkpoint.take({name: shape for part in parts.values() for name, shape in part.items()})
        for linear, part in parts.items():
            if index > 0 and (len(part) > 1) != ((linear, 1) in buffers):
                raise CheckpointError(f"'{linear.bias}' is stored for some layers and not for others")
            for which, name in enumerate(part):
                if len(layers) == 1:
                    buffers[linear, which] = reader.converted(tensors[name]).unsqueeze(0)
                    continue
                if index == 0:
                    size = (len(layers), *part[name])
                    buffers[linear, which] = torch.empty(size, dtype=reader.dtype, device=reader.device)
                buffers[linear, which][index].copy_(tensors[name])
    return {linear: (buffers[linear, 0], buffers.get((linear, 1))) for linear in templates}


def _folded_reader(
    reader: WeightReader, layers: Sequence[int], weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    folded = [
        folded_reader(
            weight[i], None if bias is None else bias[i], reader.norm(reader.stored.stack.norm, layer), reader.center
        )
        for i, layer in enumerate(layers)
    ]
    shifts = [shift for _, shift in folded if shift is not None]
    return torch.stack([weight for weight, _ in folded]), torch.stack(shifts) if shifts else None


def _centred_writer(
    reader: WeightReader, layers: Sequence[int], weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    if not reader.center:
        return weight, bias
    return centred(weight), None if bias is None else centred(bias)
