"""Affinity of GPT-2's 144 heads, float32: against a loop over pairs, and against the machine's matrix products.

(a) all 16 pairings of the projection kernel, all ordered pairs, bases given; against `norm(U.T @ V)**2` in a loop.
(b) one pairing, composing pairs only, bases included.
(c) OQ, OK and OV together, the same way.
(d) the composition scores of OQ, OK and OV, without p-values: what three calls of TransformerLens'
    `all_composition_scores` give (`transformer_lens_speed` compares the two).

Each is also a share of the peak: operations needed / time / (operations a second of one large product, timed in the
same rounds). "Needed" counts a multiplication and an addition as two, symmetric results once, composing pairs only:

    pair       d^2                 inner product of two symmetric d x d projectors (a gram product needs 2 d p^2)
    projector  d^2 p               forming A A^T of one member
    basis      2 d p^2             p^2 d for the Gram matrix, p^2 d for the product with its inverse triangular root
    factor     2 d p^2             the same with the root itself

Where less than half the peak is reached the reasons, measured on one thread, are these. Bases: the products run at
70 % of the peak and are twice what is needed, since they know neither symmetry nor triangles; one head in four is done
twice; roots and inverses of 64 x 64 matrices take a fifth of the time. Projectors: products over only 64 terms run at
70 % of the peak. Pairs: products of 48 rows run at 70 %, and blocks of four layers compute a fifth more pairs than
compose. Memory: fresh pages cost this machine up to 1 ms per MB, as much as the arithmetic done on them, and every copy
of one role's bases is 28 MB. For (d) the copies, not the products, are most of the time before the overlaps.

Wall time is what counts; CPU seconds stand beside it because other work on the machine does not stretch them as much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import headspan
from benchmarks.measure import models_folder
from headspan.dims import ROLES
from headspan.heads import Heads
from headspan.lenses.affinity.circuits import head_circuits
from headspan.subspaces import (
    Subspace,
    concatenate,
    orthonormal_basis,
    projection_kernel_table,
    projection_kernels,
    squared_overlaps,
)

LOOP_PAIRS = 3000
PEAK_SIDE = 2048
ROUNDS = 7


@dataclass(frozen=True)
class Cost:
    """Best wall and CPU seconds of one run."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.3f} s (cpu {self.cpu:.3f})"

    def over(self, other: Cost, scale: float = 1.0) -> str:
        """How many times as long this takes as the other."""
        return f"{scale * self.wall / other.wall:.1f}x (cpu {scale * self.cpu / other.cpu:.1f}x)"


def costs(actions: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, warm_up: bool = True) -> dict[str, Cost]:
    """Best cost of every action, measured in turns so that a busy spell hits all alike."""
    walls: dict[str, list[float]] = {name: [] for name in actions}
    cpus: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + warm_up):
        for name, action in actions.items():
            cpu, wall = time.process_time(), time.perf_counter()
            action()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if turn >= warm_up:
                walls[name].append(wall)
                cpus[name].append(cpu)
    return {name: Cost(min(walls[name]), min(cpus[name])) for name in actions}


def one_product() -> Callable[[], Tensor]:
    """A large product of `2 PEAK_SIDE**3` operations."""
    M = torch.randn(PEAK_SIDE, PEAK_SIDE, generator=torch.Generator().manual_seed(0))
    return lambda: M @ M


def share_of_peak(operations: float, cost: Cost, peak: Cost) -> str:
    """Operations a second as a share of those of the large product."""
    bare = operations / (2 * PEAK_SIDE**3)
    return (
        f"{bare * peak.wall / cost.wall:.0%} of peak (cpu {bare * peak.cpu / cost.cpu:.0%}) "
        f"for {operations / 1e9:.1f}e9 operations"
    )


def weights_of(heads: Heads) -> dict[str, Tensor]:
    """[layer, head, d_model, d_head] per role, in memory; W_O transposed, so that columns span the write space."""
    return {role: heads.W_O.mT if role == "O" else getattr(heads, f"W_{role}") for role in ROLES}


def layer_of_each(heads: Heads) -> Tensor:
    """The layer of every head."""
    return torch.tensor(heads.layers).repeat_interleave(heads.n_heads)


def kernels(heads: Heads, weights: Mapping[str, Tensor], readers: str) -> Tensor:
    """Bases of O and of `readers`, then the kernel of all composing pairs: [heads, reader * layer * head]."""
    src, *dst = (orthonormal_basis(weights[role]).reshape(-1) for role in "O" + readers)
    layer = layer_of_each(heads)
    return torch.cat(projection_kernels(src, dst, src_layer=layer, dst_layers=[layer] * len(dst)), dim=1)


def composition(heads: Heads, readers: str = "QKV") -> Tensor:
    """Composition scores of all composing pairs, weights read from the file: [heads, reader * layer * head]."""
    circuits = head_circuits(heads, (), composition=True)
    src, dst = circuits.writer, [circuits.readers[role] for role in readers]
    assert src is not None
    layer = layer_of_each(heads)
    overlaps = squared_overlaps(src, dst, src_layer=layer, dst_layers=[layer] * len(dst))
    norms = torch.cat([torch.linalg.matrix_norm(factor) for factor in dst])
    return torch.cat(overlaps, dim=1).sqrt() / torch.linalg.matrix_norm(src)[:, None] / norms


@dataclass(frozen=True)
class Operations:
    """Operations needed, by the module's table."""

    heads: Heads

    def bases(self, roles: int) -> float:
        """Orthonormal bases of all heads through `roles` roles."""
        d, p = self.heads.d_model, self.heads.d_head
        return roles * self._count * 2 * d * p**2

    def factors(self) -> float:
        """The four factors of all circuits."""
        return 4 * self._count * 2 * self.heads.d_model * self.heads.d_head**2

    def table(self, roles: int) -> float:
        """All pairs of one list with itself, which is symmetric."""
        n = roles * self._count
        return self._projectors(n) + n * (n + 1) / 2 * self.heads.d_model**2

    def composing(self, readers: int) -> float:
        """Composing pairs of one writer with `readers` readers; nobody reads the last layer, the first reads nobody."""
        members = self._count - self.heads.n_heads
        pairs = members * self._count / 2 * readers
        return self._projectors(members * (1 + readers)) + pairs * self.heads.d_model**2

    @property
    def _count(self) -> int:
        return self.heads.n_layers * self.heads.n_heads

    def _projectors(self, members: float) -> float:
        return members * self.heads.d_model**2 * self.heads.d_head


def main() -> None:
    """Print every figure with its target, for one thread and for two."""
    folder = models_folder() / "gpt2-attention"
    if not folder.is_dir():
        print(f"GPT-2 attention is not at {folder}: set HEADSPAN_MODELS")
        return
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        print(f"threads: {torch.get_num_threads()}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        _figures(folder)
    torch.set_num_threads(before)


def _figures(folder: Path) -> None:
    heads = headspan.open(folder).heads().to("float32")
    weights, needed = weights_of(heads), Operations(heads)
    everything = concatenate([orthonormal_basis(weights[role]).reshape(-1) for role in ROLES])
    pairs = _random_pairs(everything, LOOP_PAIRS)
    found = costs(
        {
            "peak": one_product(),
            "loop": lambda: [torch.linalg.norm(U.T @ V) ** 2 for U, V in pairs],
            "table": lambda: projection_kernel_table(everything),
            "bases": lambda: orthonormal_basis(weights["Q"]),
            "one": lambda: kernels(heads, weights, "Q"),
            "three": lambda: kernels(heads, weights, "QKV"),
            "factors": lambda: head_circuits(heads, (), composition=True),
            "composition": lambda: composition(heads),
        }
    )
    peak, table, count = found["peak"], found["table"], len(everything.rank) ** 2
    print(f"peak: {2e-9 * PEAK_SIDE**3 / peak.wall:.0f}e9 operations a second")
    print(
        f"(a) 16 pairings, {count} ordered pairs: {table}; a loop takes "
        f"{found['loop'].over(table, count / LOOP_PAIRS)} as long (target >= 7), "
        f"timed on {LOOP_PAIRS} random pairs and scaled; {share_of_peak(needed.table(4), table, peak)}"
    )
    for label, name, operations in (
        ("(b) one pairing, bases included", "one", needed.bases(2) + needed.composing(1)),
        ("(c) OQ, OK and OV, bases included", "three", needed.bases(4) + needed.composing(3)),
        ("(d) composition scores OQ, OK, OV, reading included", "composition", needed.factors() + needed.composing(3)),
        ("    bases alone, one role", "bases", needed.bases(1)),
        ("    factors alone, reading included", "factors", needed.factors()),
    ):
        print(f"{label}: {found[name]}; {share_of_peak(operations, found[name], peak)} (wanted 50%)")


def _random_pairs(everything: Subspace, count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(everything.rank), (count, 2), generator=generator).tolist()
    return [(everything.basis[i], everything.basis[j]) for i, j in chosen]


if __name__ == "__main__":
    main()
