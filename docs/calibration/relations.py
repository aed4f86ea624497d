"""p-values of relations beyond the tables, for heads that know nothing but how similar words are."""

from __future__ import annotations

import numpy as np
import torch

from docs.calibration.rows import Row, rows
from headspan.lenses.vocabulary.relations import PERMUTATIONS, beyond_tables

PAIRS, D, RANK, HEADS = 30, 64, 8, 8
COVERS = {"vocabulary": ("beyond_p",)}
NULLS = ("own null", "random heads, partners similar", "anisotropic: heads copy leading directions, partners similar")


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` lists of pairs: unrelated words, and similar partners with random and with copying heads."""
    random = np.random.default_rng(seed)
    p: dict[str, list[np.ndarray]] = {name: [] for name in NULLS}
    for _ in range(draws):
        spread = torch.from_numpy(np.exp(random.normal(size=D)))
        left, more = (torch.from_numpy(random.normal(size=(PAIRS, D))) * spread for _ in range(2))
        signs = random.choice((-1.0, 1.0), (PERMUTATIONS, PAIRS))
        noise = torch.from_numpy(random.normal(size=(2, HEADS, D, RANK)))
        leading = torch.eye(D)[:, spread.argsort(descending=True)[:RANK]].double() + 0.2 * noise
        for name, right, (A, B) in zip(NULLS, (more, left + more, left + more), (noise, noise, leading), strict=True):
            found = beyond_tables((left @ A) @ (right @ B).mT, (left @ right.mT)[None], signs)
            p[name].append(found["beyond_p"])
    return [row for name in NULLS for row in rows("relations beyond the tables", name, np.concatenate(p[name]))]
