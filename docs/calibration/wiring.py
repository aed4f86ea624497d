"""False positives of the wiring's two nulls on unrelated heads and matrices: isotropic, anisotropic, by layer, hubs.

Heads are those of the affinity topic. The matrix has rows of its own, drawn with the scales of one head: nothing
relates it to any head but the directions that all of them use.
"""

from __future__ import annotations

import numpy as np
import torch

from docs.calibration.rows import Row, rows
from docs.calibration.two_way import D_HEAD, D_MODEL, NULLS, PLACES
from headspan.statistics.peers import peers
from headspan.subspaces.nulls import rotated_trace_log_tail

COVERS = {"wiring": ("share_p",)}
MATRIX_ROWS, MATRICES = 512, 4
USED = ("own null", "decaying spectra", "anisotropic, by layer", "anisotropy grows with depth", "strong hubs")


def shares(scale: torch.Tensor, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Shares of independent matrices in independent heads [matrix, head], and the matrices' eigenvalues."""
    drawn = torch.randn(len(scale), D_MODEL, D_HEAD, generator=generator, dtype=torch.float64)
    bases = torch.linalg.qr(drawn * scale[:, :, None])[0]
    forms = []
    for place in torch.randint(len(scale), (MATRICES,), generator=generator).tolist():
        W = torch.randn(MATRIX_ROWS, D_MODEL, generator=generator, dtype=torch.float64) * scale[place]
        forms.append(W.T @ W / W.square().sum())
    C = torch.stack(forms)
    table = torch.einsum("hdp,mde,hep->mh", bases, C, bases)
    return table.numpy(), torch.linalg.eigvalsh(C).flip(-1).clamp(min=0).numpy()


def rates(seed: int, draws: int) -> list[Row]:
    """How often unrelated edges have p at or below each level. Edges of a model share heads: intervals are narrow."""
    found: list[Row] = []
    for name in USED:
        generator = torch.Generator().manual_seed(seed)
        p_values: dict[str, list[np.ndarray]] = {"peers": [], "rotation": []}
        for _ in range(draws):
            table, spectra = shares(NULLS[name][0](generator), generator)
            p_values["peers"].append(peers(table, PLACES).p.ravel())
            ones = np.ones((len(PLACES), D_HEAD))
            p_values["rotation"].append(np.exp(rotated_trace_log_tail(table, spectra, ones, D_MODEL)).ravel())
        for null, parts in p_values.items():
            found += rows(f"wiring, {null} null", name, np.concatenate(parts))
    return found
