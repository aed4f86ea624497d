"""Affinity of GPT-2's 144 heads, float32: against a loop over pairs, and against the machine's matrix products.

(a) all 16 pairings of the projection kernel, all ordered pairs, bases given; against `norm(U.T @ V)**2` in a loop.
(b) one pairing, composing pairs only, bases included.
(c) OQ, OK and OV together, the same way.
(d) the composition scores of OQ, OK and OV: the same numbers as three calls of TransformerLens' `all_composition_scores`
    (compared with it in `transformer_lens_speed`). No p-values, which it does not have either.

Each is also a share of the peak: operations needed / time / (operations a second of one large product, timed in the same
rounds). "Needed" counts a multiplication and an addition as two, symmetric results once, and composing pairs only:

    pair       d^2                 inner product of two symmetric d x d projectors (a gram product needs 2 d p^2)
    projector  d^2 p               forming A A^T of one member
    basis      4 d p^2 - 4/3 p^3   Householder QR with Q formed
    factor     2 d p^2             p^2 d for the Gram matrix, p^2 d for the product with its triangular root

Wall time is what counts; CPU seconds stand beside it because other work on the machine does not stretch them as much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import headspan
from benchmarks.measure import models_folder
from headspan.dims import ROLES
from headspan.heads import Heads
from headspan.lenses.circuits import measured_circuits
from headspan.subspaces import (
    Subspace,
    concatenated,
    orthonormal_basis,
    pairwise_squared_overlap,
    projection_kernel,
    projection_kernel_table,
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
    """[layer * head, d_model, d_head] per role, in memory; W_O transposed, so that columns span the write space."""
    weights = {role: getattr(heads, f"W_{role}").flatten(0, 1) for role in ROLES}
    return {role: W.mT if role == "O" else W for role, W in weights.items()}


def layer_of_each(heads: Heads) -> Tensor:
    """The layer of every head, in the order of `weights_of`."""
    return torch.tensor(heads.layers).repeat_interleave(heads.n_heads)


def kernels(weights: Mapping[str, Tensor], layer: Tensor, readers: Sequence[str]) -> Tensor:
    """Bases of O and of `readers`, then the kernel of all composing pairs: [heads, len(readers) * heads]."""
    src = orthonormal_basis(weights["O"])
    dst = concatenated([orthonormal_basis(weights[role]) for role in readers])
    return projection_kernel(src, dst, src_layer=layer, dst_layer=layer.repeat(len(readers)))


def composition(heads: Heads, layer: Tensor, readers: Sequence[str] = ("Q", "K", "V")) -> Tensor:
    """Composition scores of all composing pairs, weights read from the file: [heads, len(readers) * heads]."""
    circuits = measured_circuits(heads, (), composition=True)
    assert circuits.writer is not None
    dst = torch.cat([circuits.readers[role] for role in readers])
    overlap = pairwise_squared_overlap(circuits.writer, dst, src_layer=layer, dst_layer=layer.repeat(len(readers)))
    src_norm, dst_norm = torch.linalg.matrix_norm(circuits.writer), torch.linalg.matrix_norm(dst)
    return overlap.sqrt() / src_norm[:, None] / dst_norm


@dataclass(frozen=True)
class Operations:
    """Operations needed, by the module's table."""

    heads: Heads

    def bases(self, roles: int) -> float:
        """Orthonormal bases of all heads through `roles` roles."""
        d, p = self.heads.d_model, self.heads.d_head
        return roles * self._count * (4 * d * p**2 - 4 * p**3 / 3)

    def factors(self) -> float:
        """The four factors of all circuits."""
        return 4 * self._count * 2 * self.heads.d_model * self.heads.d_head**2

    def table(self, roles: int) -> float:
        """All pairs of one list with itself, which is symmetric."""
        n = roles * self._count
        return self._projectors(n) + n * (n + 1) / 2 * self.heads.d_model**2

    def composing(self, readers: int) -> float:
        """Composing pairs of one writer with `readers` readers; the last layer writes to nobody, the first reads none."""
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
    weights, layer, needed = weights_of(heads), layer_of_each(heads), Operations(heads)
    bases = [orthonormal_basis(weights[role]) for role in ROLES]
    everything = concatenated(bases)
    found = costs(
        {
            "peak": one_product(),
            "loop": lambda: _loop(everything, LOOP_PAIRS),
            "table": lambda: projection_kernel_table(everything),
            "bases": lambda: orthonormal_basis(weights["Q"]),
            "one": lambda: kernels(weights, layer, "Q"),
            "three": lambda: kernels(weights, layer, "QKV"),
            "factors": lambda: measured_circuits(heads, (), composition=True),
            "composition": lambda: composition(heads, layer),
        }
    )
    peak, table, pairs = found["peak"], found["table"], len(everything.rank) ** 2
    print(
        f"peak: {2 * PEAK_SIDE**3 / peak.wall / 1e9:.0f}e9 operations a second (cpu {2 * PEAK_SIDE**3 / peak.cpu / 1e9:.0f}e9)"
    )
    print(
        f"(a) 16 pairings, {pairs} ordered pairs: {table}; a loop is {found['loop'].over(table, pairs / LOOP_PAIRS)} "
        f"as long (target >= 7), timed on {LOOP_PAIRS} random pairs and scaled; "
        f"{share_of_peak(needed.table(4), table, peak)}"
    )
    for label, cost, operations in (
        ("(b) one pairing, bases included", found["one"], needed.bases(2) + needed.composing(1)),
        ("(c) OQ, OK and OV, bases included", found["three"], needed.bases(4) + needed.composing(3)),
        (
            "(d) composition scores OQ, OK, OV, reading included",
            found["composition"],
            needed.factors() + needed.composing(3),
        ),
    ):
        print(f"{label}: {cost}; {share_of_peak(operations, cost, peak)}")
    print(f"    of which bases, per role: {found['bases']}; {share_of_peak(needed.bases(1), found['bases'], peak)}")
    print(
        f"    of which factors and reading: {found['factors']}; {share_of_peak(needed.factors(), found['factors'], peak)}"
    )


def _loop(everything: Subspace, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(everything.rank), (2, count), generator=generator).tolist()
    U = everything.basis
    return [torch.linalg.norm(U[i].T @ U[j]) ** 2 for i, j in zip(*chosen, strict=True)]


if __name__ == "__main__":
    main()
