"""p-values of changes between two checkpoints (drift, compare), on random weights.

Gaussian null: models share nothing (`models`), and every matrix is changed by independent normal entries in proportion
to its size. Rounding null: under its own null every entry's change has a random sign; the stress is real rounding to 7
steps in groups of 32, where the sign is that of the entry's remainder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import headspan
from docs.calibration.models import Weights, generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows
from headspan.lenses.compare.directions import change_nodes
from headspan.lenses.compare.edges import wiring_nodes

LAYERS, CHANGE, GROUP, STEPS = 5, 0.3, 32, 7
PAIRINGS = ("OQ", "OK", "OV")
SHARES = ("read_share_p", "write_share_p", "read_share_order_p", "write_share_order_p")
DRIFT = ("grassmann_p", "outside_share_p", "growth_p")
COVERS = {
    "drift": DRIFT,
    "compare": (*DRIFT, "change_p", *SHARES, "similarity_p", "top_mass_p"),
}
PValues = dict[str, list[np.ndarray]]


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` pairs of checkpoints. Heads and pairs of one model are not independent."""
    found: list[Row] = []
    for place, null, kind in kinds(stress):
        p, rounded = PValues(), PValues()
        for draw in range(draws):
            generator = generator_of(seed, place, draw)
            before = gpt2(kind(generator), LAYERS)
            _collect(p, before, _changed(before, generator), "gaussian", draw)
            after = _rounded(before, generator if null == "own null" else None)
            _collect(rounded, before, after, "rounding", draw)
        found += pooled_rows("", null, p)
        found += pooled_rows("rounding:", null if null == "own null" else f"rounded weights, {null}", rounded)
    return found


def _collect(p: PValues, before: Weights, after: Weights, noise: str, draw: int) -> None:
    """p-values of the parts of `headspan.compare` that this topic is about; channels and behavior have their own."""
    pair = [headspan.open(one).heads() for one in (before, after)]
    drawn: dict[str, Any] = {"noise": noise, "draws": 16, "seed": draw}
    moved = headspan.drift(*pair, progress=False, **drawn)
    for role in "QKVO":
        for name in DRIFT:
            p.setdefault(f"drift {name}", []).append(moved[role][name].values.ravel())
    wiring, _ = wiring_nodes(*pair, null="two-way", level=0.05, tolerance=None, memory="4GB", **drawn)
    for pairing in PAIRINGS:
        node = wiring[f"wiring/{pairing}"]
        for name in ("change_p", *SHARES):
            if name in node:
                p.setdefault(f"compare {name}", []).append(np.ravel(node[name].values))
    changed, _ = change_nodes(*pair, similarity=0.5, level=0.05, **drawn)
    for path, node in changed.items():
        part = path.partition("/")[0]
        for name in ({"change": "similarity_p", "tokens": "top_mass_p"}.get(part, ""),):
            if name in node:
                p.setdefault(f"compare {name} ({part})", []).append(node[name].values.ravel())


def _changed(model: Weights, generator: torch.Generator) -> Weights:
    """Every matrix with a normal change of a size in proportion to its own."""

    def changed(one: Tensor) -> Tensor:
        return one + CHANGE * one.std() * torch.randn(one.shape, generator=generator, dtype=one.dtype)

    return {name: changed(one) if one.ndim == 2 else one for name, one in model[0].items()}, model[1]


def _rounded(model: Weights, generator: torch.Generator | None) -> Weights:
    """Every matrix rounded to STEPS steps by groups of GROUP; with a generator, signs of the errors are random."""

    def rounded(one: Tensor) -> Tensor:
        groups = one.reshape(-1, GROUP)
        step = groups.abs().amax(-1, keepdim=True) / (STEPS // 2)
        error = (groups / step).round() * step - groups
        if generator is not None:
            error = error * (2 * torch.randint(2, error.shape, generator=generator) - 1)
        return (groups + error).reshape(one.shape)

    matrices = {name for name, one in model[0].items() if one.ndim == 2 and name.startswith("h.")}
    return {name: rounded(one) if name in matrices else one for name, one in model[0].items()}, model[1]
