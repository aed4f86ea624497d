"""Does a score survive a change that means nothing to the model? Folding, centring, and the choice of a basis.

Folding the norm and removing what it discards leave every computation of the model unchanged, so a score that moves
much under them measures the way weights are written down. Truncating a basis to its leading directions is no such
change: it asks how much of the kernel hangs on directions a head hardly uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from headspan.dims import PAIR_DIMS
from headspan.errors import FoldError, ShapeError
from headspan.heads import Heads
from headspan.heads.precision import computing_dtype
from headspan.lenses.affinity import lens as affinity
from headspan.lenses.affinity.edges import pairing_node, pairings_of
from headspan.lenses.affinity.lens import METRICS, VARIABLES
from headspan.statistics import spearman
from headspan.statistics.permutation import Array
from headspan.subspaces import Subspace, projection_kernel
from headspan.threads import one_thread

FOLDS: Mapping[str, bool] = {"folded": False, "folded and centred": True}
"""Change -> whether it also centres."""


def fold_robustness(heads: Heads, pairings: Sequence[str] | None = None, top: int = 20, delta: int = 0) -> pd.DataFrame:
    """Agreement of every score between weights as stored and the folded ones.

    Returns
    -------
    Table with `pairing`, `metric`, `change`, `spearman` (in [-1, 1]) and `top_overlap` (of the `top` strongest pairs,
    how many stay; by chance top^2 / number of pairs). A change the model does not admit is left out, with its reason
    in `table.attrs["left_out"]`.
    """
    plain = _scores(heads, pairings, delta)
    rows, left_out = [], {}
    for change, center in FOLDS.items():
        try:
            changed_heads = heads.refolded("layernorm", center)
        except FoldError as refusal:
            left_out[change] = str(refusal)
            continue
        changed = _scores(changed_heads, pairings, delta)
        for (pairing, metric), values in plain.items():
            spearman, overlap = agreement(values, changed[pairing, metric], top)
            rows.append(
                {"pairing": pairing, "metric": metric, "change": change, "spearman": spearman, "top_overlap": overlap}
            )
    table = pd.DataFrame(rows, columns=["pairing", "metric", "change", "spearman", "top_overlap"])
    table.attrs["left_out"] = left_out
    return table


def _scores(heads: Heads, pairings: Sequence[str] | None, delta: int) -> dict[tuple[str, str], Array]:
    result = affinity.compute(heads, pairings=pairings, delta=delta, draws=2)
    return {
        (pairing, metric): node[VARIABLES[metric][0]].transpose(*PAIR_DIMS).values
        for pairing in pairings_of(result)
        for node in (pairing_node(result, pairing),)
        for metric in METRICS
        if VARIABLES[metric][0] in node
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
    heads: Heads, pairing: str = "OK", kept: Sequence[int] | None = None, top: int = 20
) -> pd.DataFrame:
    """The kernel with bases made by QR and by SVD, and with SVD bases cut to their leading directions.

    Returns
    -------
    Table with `basis`, `directions`, `largest_change` (against the QR kernel, for full bases), `spearman` and
    `top_overlap`.
    """
    heads = heads.to(computing_dtype(heads))
    src, dst = (_leading_directions(heads, role) for role in pairing)
    layers = torch.tensor(heads.layers)
    by_role = [layers.repeat_interleave(len(space) // heads.n_layers) for space in (src, dst)]
    widths = [w for w in (kept or _halvings(src.shape[-1])) if 1 <= w <= src.shape[-1]]
    if not widths:
        raise ShapeError(f"no number of directions to keep lies in 1..{src.shape[-1]}")
    reference = affinity.compute(heads, pairings=pairing, metrics=("pk",), draws=2)
    full = (
        pairing_node(reference, pairing)["projection_kernel"].transpose(*PAIR_DIMS).values.reshape(len(src), len(dst))
    )
    rows = []
    for width in widths:
        cut = [Subspace.from_orthonormal(space[..., :width]) for space in (src, dst)]
        kernel = projection_kernel(*cut, src_layer=by_role[0], dst_layer=by_role[1]).double().cpu().numpy()
        spearman, overlap = agreement(full, kernel, top)
        whole = width == src.shape[-1]
        change = float(np.nanmax(np.abs(kernel - full))) if whole else np.nan
        rows.append(
            {
                "basis": "svd",
                "directions": width,
                "largest_change": change,
                "spearman": spearman,
                "top_overlap": overlap,
            }
        )
    return pd.DataFrame(rows)


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
