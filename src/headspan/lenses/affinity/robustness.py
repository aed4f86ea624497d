"""Does a score survive a change that means nothing to the model? Folding, centering, and the choice of a basis.

Folding the norm and removing what it discards leave every computation of the model unchanged, so a score that moves
much under them measures the way weights are written down. Truncating a basis to its leading directions is no such
change: it asks how much of the kernel hangs on directions a head hardly uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr

from headspan.errors import ArgumentError, FoldError
from headspan.heads import Heads
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity import affinity
from headspan.lenses.affinity.schema import KERNEL, METRICS
from headspan.statistics import spearman
from headspan.statistics.permutation import Array
from headspan.subspaces import Subspace, projection_kernel
from headspan.threads import one_thread

FOLDS: Mapping[str, bool] = {"folded": False, "folded and centered": True}
"""Change -> whether it also centers."""


def fold_robustness(heads: Heads, pairings: Sequence[str] | None = None, top: int = 20, delta: int = 0) -> xr.Dataset:
    """Agreement of every score between weights as stored and the folded ones.

    Returns
    -------
    Dataset
        `spearman` (in [-1, 1]) and `top_overlap` (of the `top` strongest pairs, how many stay; expected under the null
        is top^2 / number of pairs) [pairing, metric, change]; NaN where a pairing has no such score or the model does
        not admit the change. `left_out` [change] says why it does not.
    """
    plain = _scores(heads, pairings, delta)
    names = list(dict.fromkeys(pairing for pairing, _ in plain))
    shape = (len(names), len(METRICS), len(FOLDS))
    found, left_out = {name: np.full(shape, np.nan) for name in ("spearman", "top_overlap")}, [""] * len(FOLDS)
    for place, (_, center) in enumerate(FOLDS.items()):
        try:
            folded = heads.refolded("layernorm", center)
        except FoldError as refusal:
            left_out[place] = str(refusal)
            continue
        changed = _scores(folded, pairings, delta)
        for (pairing, metric), values in plain.items():
            at = (names.index(pairing), METRICS.index(metric), place)
            found["spearman"][at], found["top_overlap"][at] = agreement(values, changed[pairing, metric], top)
    dims = ("pairing", "metric", "change")
    return xr.Dataset(
        {
            **{name: (dims, values) for name, values in found.items()},
            "left_out": ("change", np.array(left_out, object)),
        },
        coords={"pairing": names, "metric": list(METRICS), "change": list(FOLDS)},
    )


def _scores(heads: Heads, pairings: Sequence[str] | None, delta: int) -> dict[tuple[str, str], Array]:
    result = affinity(heads, pairings=pairings, delta=delta, draws=2, algorithm="exact")
    return {
        (str(pairing), metric): node[metric].values
        for pairing in result.data.children
        for node in (result.dataset(str(pairing)),)
        for metric in METRICS
        if metric in node
    }


def agreement(a: Array, b: Array, top: int) -> tuple[float, int]:
    """Spearman correlation of two scores over the pairs defined in both, and how many of a's top pairs b keeps."""
    known = ~np.isnan(a) & ~np.isnan(b)
    x, y = a[known], b[known]
    if x.size < 2:
        return np.nan, 0
    count = min(top, x.size)
    tops = [set(np.argsort(-values, kind="stable")[:count]) for values in (x, y)]
    return float(spearman(x, y)), len(tops[0] & tops[1])


def basis_sensitivity(
    heads: Heads, pairings: Sequence[str] = ("OK",), kept: Sequence[int] | None = None, top: int = 20
) -> xr.Dataset:
    """The kernel with bases made by QR against bases made by SVD and cut to their leading directions.

    Returns
    -------
    Dataset
        `spearman`, `top_overlap` and `largest_change` (for full bases) [pairing, directions], against the QR kernel.
    """
    heads = heads.unrolled().to(computing_dtype(heads))
    reference = affinity(heads, pairings=pairings, metrics=KERNEL, draws=2, algorithm="exact")
    rows = {
        (pairing, width): values
        for pairing in pairings
        for width, values in _by_width(heads, pairing, reference[pairing][KERNEL].values, kept, top).items()
    }
    widths = sorted({width for _, width in rows}, reverse=True)
    absent = (np.nan, np.nan, np.nan)
    values = np.array([[rows.get((pairing, width), absent) for width in widths] for pairing in pairings])
    return xr.Dataset(
        {
            name: (("pairing", "directions"), values[..., place])
            for place, name in enumerate(("spearman", "top_overlap", "largest_change"))
        },
        coords={"pairing": list(pairings), "directions": widths},
    )


def _by_width(
    heads: Heads, pairing: str, full: Array, kept: Sequence[int] | None, top: int
) -> dict[int, tuple[float, float, float]]:
    """Agreement of the kernels of bases cut to each number of directions with those of full bases."""
    src, dst = (_leading_directions(heads, role) for role in pairing)
    layers = torch.tensor(heads.layers)
    by_role = [layers.repeat_interleave(len(space) // heads.n_layers) for space in (src, dst)]
    widths = [w for w in (kept or _halvings(src.shape[-1])) if 1 <= w <= src.shape[-1]]
    if not widths:
        raise ArgumentError(f"kept={list(kept or ())} has no number of directions in 1..{src.shape[-1]}")
    found = {}
    for width in widths:
        cut = [Subspace.from_orthonormal(space[..., :width]) for space in (src, dst)]
        kernel = projection_kernel(*cut, src_layer=by_role[0], dst_layer=by_role[1]).double().cpu().numpy()
        change = float(np.nanmax(np.abs(kernel - full))) if width == src.shape[-1] else np.nan
        correlation, kept_top = agreement(full, kernel, top)
        found[width] = (correlation, float(kept_top), change)
    return found


def _halvings(width: int) -> list[int]:
    return [width >> i for i in range(width.bit_length()) if width >> i >= max(width // 16, 1)]


def _leading_directions(heads: Heads, role: str) -> torch.Tensor:
    """Orthonormal directions of each head's role in order of singular value: [heads, d_model, d_head]."""
    parts = []
    for block in heads.blocks(roles=(role,)):
        W = block.weight("O").mT if role == "O" else next(iter(block.weights.values()))
        with one_thread():
            parts.append(torch.linalg.svd(W.flatten(0, 1), full_matrices=False).U)
    return torch.cat(parts)
