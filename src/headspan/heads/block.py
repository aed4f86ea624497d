"""The heads of a few consecutive layers, in memory: stored tensors in, per-head weights out.

The library's convention, stated here once: row vectors, `x @ W`;
`W_Q, W_K, W_V: [layer, head, d_model, d_head]`, `W_O: [layer, head, d_head, d_model]`.

1. Name the distinct stored tensors that the wanted roles need (a fused tensor is read once for all its roles).
2. Read layer by layer into one buffer per tensor; a single layer that needs no conversion is not copied at all.
3. View each buffer as heads, without copying; where heads read a latent space, multiply by the matrix that leads there.
4. Fold and center if asked.

Beside the weights a block knows the error that storing them has left in an entry (`noise`), which decides ranks
(`subspaces.rank`): u rms(W) with u the unit roundoff of the stored dtype, or of the one read into where that is
coarser. Folding scales an entry and its error alike; centering takes weight away and no error, so what counts there is
the rms before it. A product W_1 W_2 through n latent features has sqrt(2 n) u rms(W_1) rms(W_2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from headspan.checkpoint.families import Latent, Linear, Norm, Projection, Rows, Stored
from headspan.dims import KV_ROLES, Role
from headspan.errors import ArgumentError, CheckpointError
from headspan.heads.norms import fold_norm, without_mean
from headspan.heads.reader import WeightReader
from headspan.subspaces import Subspace, orthonormal_basis

Projections = Mapping[Role, Projection]
Buffers = Mapping[Linear, tuple[Tensor, Tensor | None]]
ALL = slice(None)


@dataclass(frozen=True)
class HeadBlock:
    """Weights and biases of the roles that were asked for, for a block of layers.

    A bias is None where the model has none. `b_O` belongs to the layer, not to a head: it is added once.
    """

    layers: tuple[int, ...]
    weights: Mapping[Role, Float[Tensor, "layer _ _ _"]]
    biases: Mapping[Role, Float[Tensor, "layer ..."] | None]
    roundoffs: Mapping[Role, float | Float[Tensor, "layer heads"]]
    """Error of an entry over the rms of its head's weights."""
    noises: Mapping[Role, Float[Tensor, "layer heads"]] = field(default_factory=dict)
    """Rms of the error of an entry, where it does not follow from the weights as they are here."""

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self.weight("Q")

    @property
    def W_K(self) -> Float[Tensor, "layer kv_head d_model d_head"]:
        return self.weight("K")

    @property
    def W_V(self) -> Float[Tensor, "layer kv_head d_model d_value"]:
        return self.weight("V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_value d_model"]:
        return self.weight("O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"] | None:
        return self.bias("Q")

    @property
    def b_K(self) -> Float[Tensor, "layer kv_head d_head"] | None:
        return self.bias("K")

    @property
    def b_V(self) -> Float[Tensor, "layer kv_head d_value"] | None:
        return self.bias("V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"] | None:
        return self.bias("O")

    def weight(self, role: Role) -> Float[Tensor, "layer heads _ _"]:
        self._check(role)
        return self.weights[role]

    def bias(self, role: Role) -> Float[Tensor, "layer ..."] | None:
        self._check(role)
        return self.biases[role]

    def noise(self, role: Role) -> Float[Tensor, "layer heads"]:
        """Root mean square of the error that storing has left in an entry of each head; 0 for a head of zeros."""
        if role in self.noises:
            return self.noises[role]
        return head_noise(self.weight(role), self.roundoffs[role])

    def spaces(self, role: Role, tolerance: float | None = None, members: slice | Tensor = ALL) -> Subspace:
        """What heads read through Q, K or V, or write through O, [layer, heads]; `members` chooses heads.

        Ranks are decided by the precision that the weights were stored in, or by a `tolerance`: a share of a head's
        largest singular value.
        """
        W = self.weight(role)[:, members]
        noise = self.noise(role)[:, members] if tolerance is None else 0.0
        return orthonormal_basis(W.mT if role == "O" else W, tolerance, noise=noise)

    def _check(self, role: Role) -> None:
        if role not in self.weights:
            raise ArgumentError(
                f"role {role} was not read in this block (it holds {', '.join(self.weights)}); ask for it"
            )


def block_bytes(reader: WeightReader, projections: Projections) -> tuple[int, int]:
    """Bytes that each layer of a block takes, and bytes that reading takes once, for these roles."""
    items = sum(n_in * n_out + n_out for n_in, n_out in _features(reader, projections).values())
    copied = [
        projection.rows.n_heads * projection.rows.d_head * (reader.d_model + 1)
        for projection in projections.values()
        if reader.fold != "none" or projection.latent is not None
    ]
    return (items + sum(copied)) * reader.dtype.itemsize, items * reader.stored_dtype.itemsize


def read_block(reader: WeightReader, layers: Sequence[int], projections: Projections) -> HeadBlock:
    """The weights of some roles in `layers`, folded and centered as the reader says."""
    buffers = _stored_buffers(reader, layers, projections)
    weights: dict[Role, Tensor] = {}
    biases: dict[Role, Tensor | None] = {}
    roundoffs: dict[Role, float | Tensor] = {}
    noises: dict[Role, Tensor] = {}
    for role, projection in projections.items():
        matrix, bias = buffers[projection.linear]
        weights[role] = head_weights(matrix, projection.rows, projection.linear.stored, role)
        biases[role] = bias if bias is None or role == "O" else head_features(bias, projection.rows)
        roundoffs[role] = role_roundoff(reader, layers, projection)
        if projection.latent is not None:
            weights[role], biases[role], spread = _through_latent(
                reader, layers, projection.latent, buffers, weights[role], biases[role]
            )
            roundoffs[role] = roundoffs[role] * spread
    if reader.fold == "layernorm":
        for role in projections:
            fold = _fold_write_norm if role == "O" else _fold_norm_before
            weights[role], biases[role] = fold(reader, layers, role, weights[role], biases[role])
            if reader.center:
                noises[role] = head_noise(weights[role], roundoffs[role])
                weights[role], biases[role] = _centered(reader, role, weights[role], biases[role])
    return HeadBlock(tuple(layers), weights, biases, roundoffs, noises)


def head_noise(
    weight: Float[Tensor, "*heads _ _"], roundoff: float | Float[Tensor, "*heads"]
) -> Float[Tensor, "*heads"]:
    """roundoff * rms of each head's entries; 0 where squares of entries leave the float range."""
    rms = torch.linalg.vector_norm(weight, dim=(-2, -1)) / (weight.shape[-2] * weight.shape[-1]) ** 0.5
    return torch.nan_to_num(rms * roundoff, nan=0.0, posinf=0.0)


def role_roundoff(reader: WeightReader, layers: Sequence[int], projection: Projection) -> float:
    """The coarsest roundoff of the tensors that a role is made of in these layers."""
    linears = [projection.linear] + ([] if projection.latent is None else [projection.latent.linear])
    return max(reader.roundoff(reader.stored.at_layer(linear, layer)) for linear in linears for layer in layers)


def _features(reader: WeightReader, projections: Projections) -> dict[Linear, tuple[int, int]]:
    """Every distinct stored matrix that these roles need, with its input and output features."""
    features: dict[Linear, tuple[int, int]] = {}
    for role, projection in projections.items():
        features[projection.linear] = reader.stored.features(projection, role)
        if projection.latent is not None:
            features[projection.latent.linear] = (reader.d_model, projection.latent.n_features)
    return features


def _stored_buffers(reader: WeightReader, layers: Sequence[int], projections: Projections) -> Buffers:
    """The stored matrices and biases of a block, one buffer [layer, ...] for each distinct stored tensor."""
    templates = _features(reader, projections)
    buffers: dict[tuple[Linear, int], Tensor] = {}
    for index, layer in enumerate(layers):
        parts = {
            linear: reader.linear_shapes(reader.stored.at_layer(linear, layer), *n) for linear, n in templates.items()
        }
        tensors = reader.checkpoint.take({name: shape for part in parts.values() for name, shape in part.items()})
        for linear, part in parts.items():
            if index > 0 and (len(part) > 1) != ((linear, 1) in buffers):
                raise CheckpointError(f"'{linear.bias}' is stored for some layers and not for others")
            for which, name in enumerate(part):
                if len(layers) == 1:
                    buffers[linear, which] = reader.convert(tensors[name]).unsqueeze(0)
                    continue
                if index == 0:
                    size = (len(layers), *part[name])
                    buffers[linear, which] = torch.empty(size, dtype=reader.dtype, device=reader.device)
                buffers[linear, which][index].copy_(tensors[name])
    return {linear: (buffers[linear, 0], buffers.get((linear, 1))) for linear in templates}


def _through_latent(
    reader: WeightReader,
    layers: Sequence[int],
    latent: Latent,
    buffers: Buffers,
    weight: Float[Tensor, "layer head latent d_head"],
    bias: Float[Tensor, "layer head d_head"] | None,
) -> tuple[
    Float[Tensor, "layer head d_model d_head"], Float[Tensor, "layer head d_head"] | None, Float[Tensor, "layer head"]
]:
    """What heads read of the stream through a latent space: W_down diag(gain) W_up, and the bias it makes.

    Third, by how much the relative error of an entry of the product exceeds that of its factors.
    """
    matrix, down_bias = buffers[latent.linear]
    down = (matrix if latent.linear.stored == "in_out" else matrix.mT)[..., : latent.width]
    gain = torch.stack([reader.norm(latent.norm, layer, latent.width).gain for layer in layers])
    if down_bias is not None:
        shift = ((down_bias[..., : latent.width] * gain)[:, None, None, :] @ weight).squeeze(-2)
        bias = shift if bias is None else bias + shift
    down = (down * gain[:, None, :])[:, None]
    product = down @ weight
    # As norms: sqrt(2 n) rms(down) rms(up) / rms(product), with n features between them.
    norms = (torch.linalg.vector_norm(each, dim=(-2, -1)) for each in (down, weight, product))
    first, second, whole = norms
    return product, bias, 2**0.5 * first * second / (latent.width**0.5 * whole)


def _fold_norm_before(
    reader: WeightReader, layers: Sequence[int], role: Role, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    norm = _norm_before(reader, role)
    if norm is None:
        return weight, bias
    folded = [
        fold_norm(weight[i], None if bias is None else bias[i], reader.norm(norm, layer), center=False)
        for i, layer in enumerate(layers)
    ]
    shifts = [shift for _, shift in folded if shift is not None]
    return torch.stack([weight for weight, _ in folded]), torch.stack(shifts) if shifts else None


def _norm_before(reader: WeightReader, role: Role) -> Norm | None:
    """The norm behind which a role reads; None where it reads a stream as it is."""
    stack = reader.stored.stack
    if stack.reads_memory and role in KV_ROLES:
        return stack.memory_norm
    return stack.norm if stack.norm_place == "before" else None


def _fold_write_norm(
    reader: WeightReader, layers: Sequence[int], role: Role, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """What heads write, times the gain of a norm behind them if there is one."""
    norm = reader.stored.stack.write_norm
    if norm is not None:
        gain = torch.stack([reader.norm(norm, layer).gain for layer in layers])
        weight = weight * gain[:, None, None, :]
        bias = None if bias is None else bias * gain
    return weight, bias


def _centered(reader: WeightReader, role: Role, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Without the component that a LayerNorm discards: of what is written, and of what is read behind a norm."""
    if role == "O":
        return without_mean(weight), None if bias is None else without_mean(bias)
    return (weight if _norm_before(reader, role) is None else without_mean(weight, -2)), bias


def head_features(
    features: Float[Tensor, "layer *other n_features"], rows: Rows
) -> Float[Tensor, "layer *other head d_head"]:
    """Split the last axis of a stored tensor into the heads that `rows` assigns it to."""
    outer = features.shape[:-1]
    groups = features.reshape(*outer, rows.n_groups, rows.group_rows)
    own = groups.narrow(-1, rows.start, rows.per_group * rows.d_head)
    return own.reshape(*outer, rows.n_heads, rows.d_head)


def head_weights(
    matrix: Float[Tensor, "layer _ _"], rows: Rows, stored: Stored, role: Role
) -> Float[Tensor, "layer head _ _"]:
    """One role's heads out of the stored matrices of a block of layers, in the library's layout."""
    reads_heads_last = (stored == "in_out") != (role == "O")
    features = matrix if reads_heads_last else matrix.transpose(-1, -2)
    heads = head_features(features, rows).movedim(-2, 1)
    return heads.transpose(-1, -2) if role == "O" else heads
