"""Edges from an encoder into a decoder's cross-attention, whose keys and values read the encoder's output.

That output is the encoder's whole stream, so that everything that writes it reaches the keys and values of every layer:
its tables, its heads' O and its MLPs. Sources are labeled `encoder.L2H1`, `encoder.L0MLP`, `encoder.W_E`, and kinds of
edges `encoder MLP to K`. Matrices are compared as everywhere (`relations`). Two heads of different stacks have no order
in reverse and no layer in common, so that rotation is their only null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from headspan.checkpoint.families.order import Part
from headspan.dims import Role
from headspan.heads import Heads
from headspan.lenses.wiring.energy import Matrix, energies
from headspan.lenses.wiring.parts import ENCODER, Axis, Choice, available, axis
from headspan.lenses.wiring.relations import Edges, Spectra, matrix_edges
from headspan.lenses.wiring.schema import ROTATION
from headspan.subspaces import Subspace, concatenate, projection_kernels

TWO_STACKS = "heads of two stacks have no pairs in reverse order to be compared with"


def encoder_edges(
    heads: Heads,
    chosen: tuple[Choice, Choice],
    null: str,
    centered: bool,
    tolerance: float | None,
    memory: int,
) -> Iterator[Edges]:
    """Edges of every kind from the encoder to the keys and values of cross-attention; none in any other stack."""
    roles = [role for role in cast("tuple[Role, ...]", ("K", "V")) if role in available(heads, chosen[1])]
    if not heads.stack.reads_memory or ENCODER not in heads.checkpoint.stacks or not roles:
        return
    encoder = heads.checkpoint.heads(
        stack=ENCODER, dtype=heads.dtype, device=heads.device, fold=heads.fold, center=heads.center
    )
    if encoder.d_model != heads.d_model:
        return
    writing = available(encoder, chosen[0])
    if "O" in writing:
        yield from _pairs(heads, encoder, roles, tolerance, memory)
    kinds: list[Part] = [part for part in writing if part != "O"]
    writers = [Matrix(part, True, layer) for part in kinds for layer in (encoder.layers if part == "MLP" else (0,))]
    if not writers:
        return
    found = energies(
        heads, writers, [], roles, centered=centered, tolerance=tolerance, memory=memory, written_by=encoder
    )
    for part in kinds:
        rows = [place for place, one in enumerate(writers) if one.part == part]
        for role in roles:
            spectra = Spectra(found.spectra[0][rows]), Spectra.of_ranks(found.ranks[role])
            share = found.shares[role][:, rows].T
            yield matrix_edges(_source(encoder, part), axis(heads, role), share, spectra, heads.d_model, null)


def _source(encoder: Heads, part: Part) -> Axis:
    """Parts of the encoder, labeled as such."""
    own = axis(encoder, part)
    return replace(own, stack=ENCODER, labels=np.array([f"{ENCODER}.{label}" for label in own.labels], dtype=object))


def _pairs(
    heads: Heads, encoder: Heads, roles: Sequence[Role], tolerance: float | None, memory: int
) -> Iterator[Edges]:
    """What encoder heads write beside what cross-attention reads: projection kernels over the destination's rank."""
    written = _spaces(encoder, "O", tolerance)
    for role in roles:
        read = _spaces(heads, role, tolerance)
        (kernel,) = projection_kernels(written, [read], memory=memory)
        ranks = [space.rank.double().cpu().numpy() for space in (written, read)]
        whole = np.where(ranks[1] > 0, ranks[1], np.nan)
        share = np.minimum(kernel.double().cpu().numpy() / whole, 1.0)
        reading = Spectra(Spectra.of_ranks(ranks[1]).values / whole[:, None])
        spectra = Spectra.of_ranks(ranks[0]), reading
        found = matrix_edges(_source(encoder, "O"), axis(heads, role), share, spectra, heads.d_model, ROTATION)
        yield found.explained(TWO_STACKS)


def _spaces(heads: Heads, role: Role, tolerance: float | None) -> Subspace:
    """The spaces of all heads of a role, in one list."""
    blocks = (heads.layer(layer, (role,)).spaces(role, tolerance) for layer in heads.layers)
    return concatenate([block.reshape(-1) for block in blocks])
