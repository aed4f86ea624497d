"""Edges of one kind as a dataset: shares, what each null says of them, and tiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from headspan.lenses.graph import IS_STRONG, tier_names
from headspan.lenses.wiring.parts import Axis, Choice
from headspan.lenses.wiring.schema import PEERS, ROTATION, SIGNIFICANT
from headspan.statistics import q_values, z_score
from headspan.statistics.peers import peers, peers_obstacle
from headspan.statistics.permutation import Array
from headspan.subspaces.nulls import rotated_trace_log_tail, rotated_trace_moments

PARTS = ("null", "null_sd", "z", "p")
SMALL = 1e-12


@dataclass(frozen=True)
class Spectra:
    """Eigenvalues of one side's forms: of projectors ones and zeros, of matrices shares of energy; NaN if zero."""

    values: Array

    @classmethod
    def of_ranks(cls, ranks: np.ndarray) -> Spectra:
        width = max(1, int(ranks.max(initial=0)))
        there = np.arange(width) < ranks[:, None]
        return cls(np.where(ranks[:, None] > 0, there.astype(np.float64), np.nan))

    @property
    def dimensions(self) -> np.ndarray:
        """(sum a)^2 / sum a^2: the rank of a projector, the participation ratio of a matrix."""
        squares = (self.values**2).sum(-1)
        return np.asarray(np.divide(self.values.sum(-1) ** 2, squares, out=np.zeros(len(squares)), where=squares > 0))


def under_rotation(share: Array, src: Spectra, dst: Spectra, d: int) -> dict[str, Array]:
    """Mean, sd, z and p of every pair under a random rotation of one side."""
    a, b = src.values, dst.values
    moments = [(each.sum(-1), (each**2).sum(-1)) for each in (a, b)]
    mean, sd = rotated_trace_moments(
        moments[0][0][:, None], moments[0][1][:, None], moments[1][0][None], moments[1][1][None], d
    )
    p = np.exp(rotated_trace_log_tail(share, a, b, d))
    return {"null": mean, "null_sd": sd, "z": z_score(share, mean, sd, SMALL), "p": p}


def under_peers(share: Array, src: Axis, dst: Axis) -> tuple[dict[str, Array], Array] | str:
    """The same under the peers null, with the mirror check; the reason where the members are too few."""
    members = dst if dst.is_neurons or (dst.is_heads and not src.is_neurons) else src
    table = share.T if members is src else share
    if members.layers is None or members.numbers is None:
        return "the peers null compares heads or neurons of one layer; here is one part in each"
    known = ~np.isnan(table)
    widest = known[np.argmax(known.sum(1))] if len(known) else np.zeros(len(members.layers), dtype=bool)
    reason = peers_obstacle(members.layers[widest])
    if reason is not None:
        return reason
    fit = peers(table, members.layers)
    found = {"null": fit.expected, "null_sd": np.where(np.isnan(fit.z), np.nan, fit.scale), "z": fit.z, "p": fit.p}
    turned = {name: each.T if members is src else each for name, each in found.items()}
    return turned, fit.mirror_fdr.T if members is src else fit.mirror_fdr


@dataclass(frozen=True)
class Edges:
    """All pairs of one kind: shares (NaN where nothing composes), what each null says, the first one first."""

    src: Axis
    dst: Axis
    share: Array
    nulls: Mapping[str, Mapping[str, Array]]
    dimensions: tuple[np.ndarray, np.ndarray]
    mirror: Array | None = None
    reason: str = ""

    def name_of(self, side: str) -> str:
        """How a relation names one of its sides: the kind of part and its stack, or the weights of neurons."""
        end = self.src if side == "src" else self.dst
        return end.name or f"{end.stack} {end.part}".lstrip()

    def explained(self, reason: str) -> Edges:
        """The same with another reason for its null, or for having no edge."""
        return replace(self, reason=reason)

    def dataset(self, asked: tuple[Choice, Choice] | None = None) -> xr.Dataset:
        """Labeled; only the parts asked for, with q over these alone."""
        keep = [np.ones(len(axis.labels), dtype=bool) for axis in (self.src, self.dst)]
        if asked is not None:
            sides = zip(asked, (self.src, self.dst), strict=True)
            keep = [np.array([one.keeps(axis.part, label) for label in axis.labels]) for one, axis in sides]
        cut = np.ix_(*keep)
        share = self.share[cut]
        known = ~np.isnan(share)
        stacked = {
            what: np.stack([np.where(known, said[what][cut], np.nan) for said in self.nulls.values()]) for what in PARTS
        }
        whole = all(each.all() for each in keep)
        stacked["q"] = np.stack(
            [
                said["q"] if whole and "q" in said else q_values(p)
                for said, p in zip(self.nulls.values(), stacked["p"], strict=True)
            ]
        )
        first = next(iter(self.nulls))
        mirror = None if self.mirror is None else np.where(known, self.mirror[cut], np.nan)
        q = stacked["q"][0] if first != ROTATION else np.full(share.shape, np.nan)
        tier = tier_names(q, mirror, known & (first != ROTATION))
        variables = {
            "share": (("src", "dst"), share),
            **{f"share_{what}": (("null", "src", "dst"), each) for what, each in stacked.items()},
            "tier": (("src", "dst"), tier),
            "n_edges": int(known.sum()),
            "n_significant": ("null", [int((each < SIGNIFICANT).sum()) for each in stacked["q"]]),
            "n_strong": int((tier == IS_STRONG).sum()),
            "null_reason": self.reason,
        }
        if mirror is not None:
            variables["mirror_fdr"] = (("src", "dst"), mirror)
        coords = {"null": list(self.nulls), **_coords("src", self.src, keep[0]), **_coords("dst", self.dst, keep[1])}
        return xr.Dataset(variables, coords=coords)


def _coords(side: str, axis: Axis, keep: np.ndarray) -> dict[str, tuple[str, np.ndarray]]:
    found = {side: (side, axis.labels[keep])}
    if axis.layers is not None:
        found[f"{side}_layer"] = (side, axis.layers[keep])
    if axis.numbers is not None:
        found[f"{side}_index"] = (side, axis.numbers[keep])
    return found


def matrix_edges(src: Axis, dst: Axis, share: Array, spectra: tuple[Spectra, Spectra], d: int, null: str) -> Edges:
    """Edges of which at least one end is a matrix, beside both nulls."""
    rotation, sizes = under_rotation(share, *spectra, d), (spectra[0].dimensions, spectra[1].dimensions)
    if null == ROTATION:
        return Edges(src, dst, share, {ROTATION: rotation}, sizes)
    compared = under_peers(share, src, dst)
    if isinstance(compared, str):
        return Edges(src, dst, share, {ROTATION: rotation}, sizes, reason=compared)
    return Edges(src, dst, share, {PEERS: compared[0], ROTATION: rotation}, sizes, mirror=compared[1])
