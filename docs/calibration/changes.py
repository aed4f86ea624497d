"""p-values of changes between two checkpoints (drift, compare), on random weights.

Gaussian null: models share nothing (`models`), and every matrix is changed by independent normal entries in proportion
to its size. Rounding null: under its own null every entry's change has a random sign; the stress is real rounding to 7
steps in groups of 32, where the sign is that of the entry's remainder.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import headspan
from docs.calibration.models import KINDS, Weights, generator_of, gpt2
from docs.calibration.rows import Row, pooled_rows

LAYERS, CHANGE, GROUP, STEPS = 5, 0.3, 32, 7
PAIRINGS = ("OQ", "OK", "OV")
SHARES = ("read_share_p", "write_share_p", "read_share_order_p", "write_share_order_p")
DRIFT = ("grassmann_p", "outside_share_p", "growth_p")
COVERS = {
    "drift": DRIFT,
    "compare": (*DRIFT, "change_p", *SHARES, "similarity_p", "top_mass_p"),
}
PValues = dict[str, list[np.ndarray]]


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` pairs of checkpoints. Heads and pairs of one model are not independent."""
    found: list[Row] = []
    for place, (null, kind) in enumerate(KINDS.items()):
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
    result = headspan.compare(before, after, noise=noise, draws=16, seed=draw, progress=False)
    for role in "QKVO":
        for name in DRIFT:
            p.setdefault(f"drift {name}", []).append(result[f"drift/{role}"][name].values.ravel())
    for pairing in PAIRINGS:
        node = result[f"wiring/{pairing}"]
        for name in ("change_p", *SHARES):
            if name in node:
                p.setdefault(f"compare {name}", []).append(np.ravel(node[name].values))
    for part, name in (("change", "similarity_p"), ("tokens", "top_mass_p")):
        for node in result[part].children.values() if part in result else ():
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
