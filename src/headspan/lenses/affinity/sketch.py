"""The strongest pairs of a model too large for a table of all pairs: sketched, then verified.

1. One pass keeps a sketch of every head; it gives every composing pair's kernel up to a known error (`estimates`).
2. Every pair that could be among the top N at the stated confidence is a candidate.
3. The candidates' heads are read again and their kernels computed exactly (`Verifier`). If candidates are too many, the
   sketch is made anew and wider, where that would help.

Each pairing has two child nodes: `top`, the verified pairs, and `heads`, means of the estimates for every head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import PAIR_DIMS, Role
from headspan.heads import Heads
from headspan.heads.precision import double_bases
from headspan.labels import head_labels
from headspan.lenses.affinity.costs import sketch_width
from headspan.lenses.affinity.estimates import (
    Candidates,
    Estimates,
    Pair,
    Question,
    candidates,
    estimated_kernels,
    helpful_width,
    leading_pairs,
)
from headspan.lenses.affinity.pair_tables import error_estimate, roles_in, roles_of
from headspan.lenses.affinity.schema import KERNEL
from headspan.lenses.affinity.scores import kv_sides, standardized
from headspan.statistics.permutation import Array
from headspan.subspaces import (
    kernel_null_mean,
    kernel_null_variance,
    log_upper_tail,
    projection_kernel,
)
from headspan.subspaces.sketch import kernel_standard_error
from headspan.subspaces.slabs import ScratchSlabs, scratch_slabs

ROUNDS = 3
"""A sketch is replaced by a wider one twice at most."""
PAIRS_AT_A_TIME = 8
SAMPLED = 6
"""Pairs of each pairing, weak to strong, on which the cost of single precision is measured."""


@dataclass(frozen=True)
class Settings:
    """What is asked of a sketch: the `top` pairs of each pairing, with this confidence, from m = `width` at first."""

    top: int
    confidence: float
    width: int | None
    seed: int
    tolerance: float | None
    memory: int

    @property
    def limit(self) -> int:
        """Pairs of a pairing that may be verified beyond the leading ones."""
        return 10 * self.top + 200

    def failure(self, n_pairings: int) -> float:
        """The probability with which one pair of the top may be missed, in one round."""
        return (1 - self.confidence) / (self.top * n_pairings * ROUNDS)


@dataclass(frozen=True)
class SketchedPairing:
    """What a sketch and its verification found of one pairing."""

    pairing: str
    estimates: Estimates
    kernels: Mapping[Pair, float]
    candidates: Candidates


def sketch_nodes(
    heads: Heads, pairings: Sequence[str], settings: Settings
) -> tuple[dict[str, xr.Dataset], dict[str, float | int]]:
    """The nodes of a sketched result by path, and its attributes."""
    found, width, error = _verified_pairings(heads, pairings, settings)
    nodes = {path: node for each in found for path, node in _nodes(heads, each).items()}
    return nodes, {"sketch_width": width, "confidence": settings.confidence, **error}


def _verified_pairings(
    heads: Heads, pairings: Sequence[str], settings: Settings
) -> tuple[list[SketchedPairing], int, dict[str, float | int]]:
    """Sketch, candidates, exact kernels; wider sketches while candidates are too many and it helps."""
    leading = max(4 * settings.top, settings.top + 50)
    width, most = settings.width or sketch_width(heads), ROUNDS * (leading + settings.limit) * len(pairings)
    with verifier(heads, roles_in(pairings), settings.tolerance, most) as check:
        for turn in range(ROUNDS):
            estimates = estimated_kernels(
                heads, pairings, width=width, seed=settings.seed, tolerance=settings.tolerance, memory=settings.memory
            )
            check.kernels({name: leading_pairs(table, leading) for name, table in estimates.tables.items()})
            asked = {name: _question(heads, name, estimates, check, settings) for name in pairings}
            chosen = {name: candidates(question) for name, question in asked.items()}
            short = [name for name in pairings if chosen[name].certified < asked[name].asked]
            wider = [each for name in short if (each := helpful_width(asked[name], heads.d_model)) is not None]
            if turn == ROUNDS - 1 or not wider:
                break
            width = max(wider)
        check.kernels({name: each.pairs for name, each in chosen.items()})
        kernels: dict[str, dict[Pair, float]] = {name: check.of(name) for name in pairings}
    found = [SketchedPairing(name, estimates, kernels[name], chosen[name]) for name in pairings]
    return found, estimates.width, _verified_error(heads, kernels, settings.tolerance)


def _question(heads: Heads, pairing: str, estimates: Estimates, check: Verifier, settings: Settings) -> Question:
    src, dst = (min(heads.shape(role)[2:]) for role in roles_of(pairing))
    return Question(
        table=estimates.tables[pairing],
        exact=check.of(pairing),
        top=settings.top,
        limit=settings.limit,
        dimensions=(src, dst),
        width=estimates.width,
        failure=settings.failure(len(estimates.tables)),
    )


@dataclass
class Verifier:
    """Exact kernels of chosen pairs; every head is read once more, however many pairs it is part of."""

    heads: Heads
    tolerance: float | None
    files: Mapping[Role, ScratchSlabs]
    places: dict[Role, dict[int, int]] = field(default_factory=dict)
    known: dict[tuple[str, Pair], float] = field(default_factory=dict)

    def kernels(self, wanted: Mapping[str, Iterable[Pair]]) -> None:
        """Make `known` hold the kernel of these pairs, by pairing."""
        new = {
            pairing: [pair for pair in pairs if (pairing, pair) not in self.known] for pairing, pairs in wanted.items()
        }
        for pairing, pairs in new.items():
            for side, role in enumerate(roles_of(pairing)):
                self._read(role, {pair[side] for pair in pairs})
        for pairing, pairs in new.items():
            for start in range(0, len(pairs), PAIRS_AT_A_TIME):
                part = pairs[start : start + PAIRS_AT_A_TIME]
                src, dst = roles_of(pairing)
                U, V = self._bases(src, [i for i, _ in part]), self._bases(dst, [j for _, j in part])
                values = (U.mT @ V).square().sum((-2, -1)).double().tolist()
                self.known |= {(pairing, pair): value for pair, value in zip(part, values, strict=True)}

    def of(self, pairing: str) -> dict[Pair, float]:
        """The kernels that are known of one pairing."""
        return {pair: value for (name, pair), value in self.known.items() if name == pairing}

    def _read(self, role: Role, members: set[int]) -> None:
        """Bases of heads that are not in the scratch file yet."""
        places, per_layer = self.places.setdefault(role, {}), self.heads.shape(role)[1]
        lacking = sorted(members - set(places))
        for layer in sorted({member // per_layer for member in lacking}):
            chosen = [member for member in lacking if member // per_layer == layer]
            block = self.heads.layer(self.heads.layers[layer], (role,))
            own = torch.tensor([member % per_layer for member in chosen], device=self.heads.device)
            self.files[role].append(block.spaces(role, self.tolerance, own).basis[0])
            places |= {member: len(places) + number for number, member in enumerate(chosen)}

    def _bases(self, role: Role, members: list[int]) -> Float[Tensor, "k d p"]:
        at = (self.places[role][member] for member in members)
        return torch.cat([self.files[role].members(place, place + 1) for place in at])


@contextmanager
def verifier(heads: Heads, roles: Iterable[Role], tolerance: float | None, most: int) -> Iterator[Verifier]:
    """A verifier with scratch space for up to `most` heads of each role, of which it mostly needs a small part."""
    with ExitStack() as files:
        space: dict[Role, ScratchSlabs] = {}
        for role in roles:
            rows = heads.stack.projections[role].rows
            shape = (min(most, heads.n_layers * rows.n_heads), heads.d_model, min(rows.d_head, heads.d_model))
            room = scratch_slabs(shape, heads.d_model, heads.dtype, heads.device, filled=False)
            space[role] = files.enter_context(room)
        yield Verifier(heads, tolerance, space)


def _verified_error(
    heads: Heads, kernels: Mapping[str, Mapping[Pair, float]], tolerance: float | None
) -> dict[str, float | int]:
    """What single precision cost any verified pair, estimated from some of each pairing, weak to strong."""
    if heads.dtype == torch.float64:
        return {}
    single, double = [], []
    for pairing, known in kernels.items():
        ranked = sorted(known, key=lambda pair: known[pair])
        for place in np.unique(np.linspace(0, len(ranked) - 1, min(SAMPLED, len(ranked))).round().astype(int)):
            pair = ranked[place]
            spaces = [
                double_bases(heads, role, [divmod(member, heads.shape(role)[1])], tolerance)
                for role, member in zip(roles_of(pairing), pair, strict=True)
            ]
            single.append(known[pair])
            double.append(float(projection_kernel(*spaces)))
    values = [torch.tensor(each, dtype=torch.float64) for each in (single, double)]
    largest = max((max(known.values(), default=0.0) for known in kernels.values()), default=0.0)
    return error_estimate(values[0], values[1], largest, sum(map(len, kernels.values())))


def _nodes(heads: Heads, found: SketchedPairing) -> dict[str, xr.Dataset]:
    """One pairing's numbers, its verified pairs, strongest first, and what the estimates say of every head."""
    src, dst = roles_of(found.pairing)
    table, sides = found.estimates.tables[found.pairing], kv_sides(heads, found.pairing)
    leveled = _leveled(found.estimates, found.pairing)
    n_src, n_dst = (heads.shape(role)[1] for role in (src, dst))
    p, q = (min(heads.shape(role)[2:]) for role in (src, dst))
    numbers = {
        "n_pairs": int((~table.isnan()).sum()),
        f"{KERNEL}_n_pairs": int((~table.isnan()).sum()),
        f"{KERNEL}_mean": float(leveled.double().nanmean()),
        f"{KERNEL}_mean_null": float(kernel_null_mean(p, q, heads.d_stream)),
        f"{KERNEL}_sd_null": float(kernel_null_variance(p, q, heads.d_stream)) ** 0.5,
        "verified": len(found.kernels),
        "certified": found.candidates.certified,
        "threshold": found.candidates.threshold,
    }
    per_head = {
        "src_rank": (PAIR_DIMS[:2], found.estimates.ranks[src].cpu().numpy().reshape(-1, n_src)),
        "dst_rank": (PAIR_DIMS[2:], found.estimates.ranks[dst].cpu().numpy().reshape(-1, n_dst)),
        "outgoing": (PAIR_DIMS[:2], _mean(leveled, 1).reshape(-1, n_src)),
        "incoming": (PAIR_DIMS[2:], _mean(leveled, 0).reshape(-1, n_dst)),
    }
    layers = np.asarray(heads.layers)
    return {
        found.pairing: xr.Dataset(numbers),
        f"{found.pairing}/top": _top_dataset(heads, found, (n_src, n_dst), numbers["n_pairs"]),
        f"{found.pairing}/heads": xr.Dataset(per_head, coords={"src_layer": layers, "dst_layer": layers}, attrs=sides),
    }


def _top_dataset(heads: Heads, found: SketchedPairing, n_heads: tuple[int, int], n_pairs: int) -> xr.Dataset:
    """The verified pairs. A q-value is an upper bound: the least p n / rank from there down; no reverse null."""
    pairs = sorted(found.kernels, key=lambda pair: -found.kernels[pair])
    places = [np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1)]
    kernel = np.array([found.kernels[pair] for pair in pairs], dtype=np.float64)
    exact = torch.from_numpy(kernel)
    p, q = (found.estimates.ranks[role].cpu()[at] for role, at in zip(roles_of(found.pairing), places, strict=True))
    mean = kernel_null_mean(p, q, heads.d_stream).numpy()
    sd = kernel_null_variance(p, q, heads.d_stream).sqrt().numpy()
    p_values = log_upper_tail(exact, p, q, heads.d_stream).exp().numpy()
    by_rank = p_values * n_pairs / np.arange(1, len(p_values) + 1)
    q_bounds = np.minimum(np.minimum.accumulate(by_rank[::-1])[::-1], 1.0)
    error = kernel_standard_error(exact, p.double(), q.double(), found.estimates.width).numpy()
    coords: dict[str, tuple[str, np.ndarray]] = {}
    for side, at, n in zip(("src", "dst"), places, n_heads, strict=True):
        layer, head = np.asarray(heads.layers)[at // n], at % n
        labels = head_labels(layer, head, bool(kv_sides(heads, found.pairing)[f"{side}_kv"]))
        coords |= {side: ("pair", labels), f"{side}_layer": ("pair", layer), f"{side}_index": ("pair", head)}
    derived = {"null": mean, "null_sd": sd, "z": standardized(kernel, mean, sd), "p": p_values, "q": q_bounds}
    table = found.estimates.tables[found.pairing]
    return xr.Dataset(
        {
            KERNEL: ("pair", kernel),
            **{f"{KERNEL}_{what}": (("null", "pair"), values[None]) for what, values in derived.items()},
            "estimate": ("pair", table[tuple(places)].double().cpu().numpy()),
            "standard_error": ("pair", error),
        },
        coords={**coords, "null": ["haar"]},
    )


def _leveled(estimates: Estimates, pairing: str) -> Float[Tensor, "n m"]:
    """Estimates less what the size of either sketch adds to all pairs of a head alike; unbiased up to 2 PK / m^2.

    Single pairs gain little; a head's mean over thousands of pairs would otherwise keep the error they share.
    """
    (p, t), (q, u) = (
        (estimates.ranks[role].to(estimates.sizes[role]), estimates.sizes[role]) for role in roles_of(pairing)
    )
    shared = (t[:, None] * u[None, :] - p[:, None] * q[None, :]) / (estimates.width + 1)
    return estimates.tables[pairing] - shared


def _mean(table: Float[Tensor, "n m"], axis: int) -> Array:
    """Mean estimate over the pairs that compose; NaN where there is none."""
    mean: Array = torch.nanmean(table, dim=axis).double().cpu().numpy()
    return mean
