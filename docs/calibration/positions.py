"""False-positive rates of every p-value of the positions lens, on models whose tables and matrices share nothing.

Own null: independent normal entries everywhere. Stress: coordinates of unequal variance, the same in tables and
matrices (anisotropic: the rotation of the null does not know them, and it is meant to reject); tables and matrices
whose singular values decay as 1/sqrt(i), turned at random (decaying spectra); both tables widened by one narrow matrix,
as in ALBERT and ELECTRA (factorized tables).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import headspan
from docs.calibration.models import (
    D_MLP,
    N_HEADS,
    N_POSITIONS,
    N_TOKENS,
    D,
    Matrix,
    Weights,
    anisotropic,
    decaying,
    generator_of,
    gpt2,
    normal,
)
from docs.calibration.rows import LEVELS, Row, wilson
from headspan.lenses.positions.overlap import (
    angle_variables,
    capture_variables,
    mean_variables,
    overlap_variables,
)
from headspan.lenses.positions.spectra import RankRule, Variables, table_spectra

WIDTH, K, TABLES_EACH = 24, 8, 20
TABLE_TESTS = ("capture_p", "decile_mass_p", "table_corner_p", "top_kernel_p", "mean_cosine_p", "mean_capture_p")
TESTS = (
    *TABLE_TESTS,
    *("alignment_p", "energy_alignment_p", "corner_p"),
    "head_alignment_p",
    *("sparsity_participation_p", "sparsity_coordinates_90_p", "sparsity_gini_p", "coordinate_energy_p"),
    *("wave_r2_p", "wave_concentration_p"),
)
COVERS = {"positions": (*TESTS, *(f"head_alignment_{role}_p" for role in "QKVO"))}


def rates(seed: int, draws: int = 25) -> list[Row]:
    """A row per test, null and level.

    Everything is tested on `draws` models of each kind, through the lens. Tests that a model has one of, or few, are
    those of two tables; where these are of full width, TABLES_EACH times as many pairs of tables are drawn instead.
    Every kind has draws of its own, and every model a seed of its own for nulls that are sampled: with one seed for
    all, the error of that sample would be common to them. Tests within a model are not independent, so intervals are
    Wilson's for as many tests as would vary as much as the models' rates do.
    """
    found = []
    for place, (null, (models, matrices)) in enumerate(MODELS.items()):
        p_values: dict[str, list[np.ndarray]] = {}
        for draw in range(draws):
            model = models(generator_of(seed, place, draw))
            result = headspan.positions(model, samples=2, seed=draw, progress=False).dataset()
            _collect(p_values, {str(name): (one.dims, one.values) for name, one in result.data_vars.items()})
        if matrices is not None:
            for name in TABLE_TESTS:
                p_values.pop(name)
            for draw in range(TABLES_EACH * draws):
                _collect(p_values, _two_tables(matrices(generator_of(seed, place, draw, 1))))
        for name in TESTS:
            found += [_row(name.removesuffix("_p"), null, level, p_values[name]) for level in LEVELS]
    return found


def _two_tables(matrix: Matrix) -> Variables:
    """What the lens says of a position and a token table, with p-values."""
    P, E = (table_spectra(matrix(n, D), RankRule(), 2**24) for n in (N_POSITIONS, N_TOKENS))
    found = capture_variables(P, E, K) | overlap_variables(P, E, 4, None)
    found |= angle_variables(P, E, K, 0) | mean_variables(P, E, K)
    return {
        name.replace("_log_p", "_p"): (dims, np.exp(log_p)) for name, (dims, log_p) in found.items() if "_log_p" in name
    }


def _collect(p_values: dict[str, list[np.ndarray]], variables: Mapping[str, tuple[Sequence[Any], np.ndarray]]) -> None:
    """Add one model's p-values: of tables as stored, with k as given."""
    model: dict[str, list[np.ndarray]] = {}
    for name, (dims, values) in variables.items():
        test = "head_alignment_p" if name.startswith("head_alignment") and name[-2:] == "_p" else name
        if test in TESTS and not name.endswith("_log_p"):
            first = tuple(0 if dim in ("centering", "k_choice") else slice(None) for dim in dims)
            chosen = np.ravel(values[first])
            model.setdefault(test, []).append(chosen[np.isfinite(chosen)])
    for test, parts in model.items():
        p_values.setdefault(test, []).append(np.concatenate(parts))


def _row(test: str, null: str, level: float, by_model: list[np.ndarray]) -> Row:
    hits = np.array([(values < level).sum() for values in by_model], dtype=float)
    sizes = np.array([len(values) for values in by_model], dtype=float)
    n, rate = float(sizes.sum()), float(hits.sum() / sizes.sum())
    spread = float(((hits - rate * sizes) ** 2).sum() / max(rate * (1 - rate) * n, 1e-12)) if rate > 0 else 1.0
    low, high = wilson(rate, n / max(spread, 1.0))
    return {
        "test": f"positions {test}",
        "null": null,
        "level": level,
        "rate": rate,
        "low": low,
        "high": high,
        "n": int(n),
    }


def factorized(draw: torch.Generator) -> Weights:
    """An ELECTRA of independent normal entries, whose tables one narrow matrix widens."""
    entries, layer, zeros, ones = normal(draw), "encoder.layer.0.", torch.zeros, torch.ones
    tensors = {
        "embeddings.word_embeddings.weight": entries(N_TOKENS, WIDTH),
        "embeddings.position_embeddings.weight": entries(N_POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": entries(2, WIDTH),
        "embeddings_project.weight": entries(D, WIDTH),
        "embeddings_project.bias": zeros(D),
        f"{layer}intermediate.dense.weight": entries(D_MLP, D),
        f"{layer}intermediate.dense.bias": zeros(D_MLP),
        f"{layer}output.dense.weight": entries(D, D_MLP),
        f"{layer}output.dense.bias": zeros(D),
    }
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        tensors |= {f"{layer}attention.{name}.weight": entries(D, D), f"{layer}attention.{name}.bias": zeros(D)}
    for name, width in (("embeddings", WIDTH), (f"{layer}attention.output", D), (f"{layer}output", D)):
        tensors |= {f"{name}.LayerNorm.weight": ones(width), f"{name}.LayerNorm.bias": zeros(width)}
    config = {"model_type": "electra", "embedding_size": WIDTH, "hidden_size": D, "num_attention_heads": N_HEADS}
    config |= {"num_hidden_layers": 1, "intermediate_size": D_MLP, "vocab_size": N_TOKENS}
    return tensors, config | {"max_position_embeddings": N_POSITIONS, "type_vocab_size": 2}


MODELS: dict[str, tuple[Callable[[torch.Generator], Weights], Callable[[torch.Generator], Matrix] | None]] = {
    "own null": (lambda draw: gpt2(normal(draw)), normal),
    "anisotropic": (lambda draw: gpt2(anisotropic(draw)), anisotropic),
    "decaying spectra": (lambda draw: gpt2(decaying(draw)), decaying),
    "factorized tables": (factorized, None),
}
"""What draws a model of each kind and, where tables have full width, what draws one table."""
