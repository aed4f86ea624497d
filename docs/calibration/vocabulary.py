"""False-positive rates of the vocabulary lens: concentration on tokens, copying and matching, relations of words.

Models share nothing (`models`), and the pairs of a relation are drawn at random.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import headspan
from docs.calibration.models import N_TOKENS, generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows

RELATIONS, PAIRS = 4, 12
CONCENTRATION = ("top_mass_p", "largest_z_p", "kurtosis_p")
COVERS = {"vocabulary": (*CONCENTRATION, "copying_p", "matching_p", "relation_score_p")}


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` models of each kind; tests of one model share its tables and are not independent."""
    found: list[Row] = []
    with TemporaryDirectory() as folder:
        for place, null, kind in kinds(stress):
            p: dict[str, list[np.ndarray]] = {}
            for draw in range(draws):
                model = gpt2(kind(generator_of(seed, place, draw)), layers=2)
                result = headspan.vocabulary(
                    model, relations=_relations(Path(folder), seed, draw), seed=draw, progress=False
                )
                for node in ("OV", "QK", "MLP", "W_U"):
                    for name in CONCENTRATION:
                        p.setdefault(name, []).append(result[node][name].values.ravel())
                p.setdefault("copying_p", []).append(result["copying"]["copying_p"].values)
                p.setdefault("matching_p", []).append(result["copying"]["matching_p"].values)
                p.setdefault("relation_score_p", []).append(result["relations"]["relation_score_p"].values.ravel())
            found += pooled_rows("vocabulary", null, p)
    return found


def _relations(folder: Path, seed: int, draw: int) -> Path:
    """A list of relations whose pairs are random tokens."""
    random, lines = np.random.default_rng([seed, draw]), ["relation,left,right"]
    for relation in range(RELATIONS):
        ids = random.permutation(N_TOKENS)[: 2 * PAIRS]
        pairs = zip(ids[:PAIRS], ids[PAIRS:], strict=True)
        lines += [f"relation {relation},#{left},#{right}" for left, right in pairs]
    file = folder / f"{draw}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file
