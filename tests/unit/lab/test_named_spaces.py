"""The named subspaces are what they are called, their overlaps are the definition's, and no gap means no split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headspan.lab.architecture import Architecture
from headspan.lab.geometry import ANGLE_PAIRS, DIMS, geometry_row, part_energy
from headspan.lab.model import LabModel
from headspan.lab.named_spaces import NamedSpaces, sizes, spectral_split
from headspan.statistics import random_singular_values


def model(seed: int = 0, **options: object) -> LabModel:
    shape = {"vocabulary": 40, "length": 16, "d_model": 32, **options}
    return LabModel(Architecture(**shape), seed)  # type: ignore[arg-type]


def with_gap(found: LabModel, medium: int = 14) -> LabModel:
    """The same model with an embedding of one large, `medium` medium and otherwise small singular values."""
    with torch.no_grad():
        U, _, Vh = torch.linalg.svd(found.embed_tokens.weight, full_matrices=False)
        values = torch.cat((torch.tensor([30.0]), torch.linspace(12, 8, medium), torch.linspace(1, 0.4, 31 - medium)))
        found.embed_tokens.weight.copy_(U * values @ Vh)
    return found


def test_sizes_are_those_of_the_reference_at_width_64() -> None:
    assert sizes(64) == (4, 10, 16)
    assert sizes(32) == (2, 5, 8)
    assert len(set(sizes(8))) == 3


def test_a_gap_is_found_where_it_was_put() -> None:
    values, _ = NamedSpaces.of(with_gap(model(), 14)).embedding
    split = spectral_split(values, (40, 32))
    assert split.found
    assert (split.top, split.medium) == (1, 14)
    assert split.top_ratio == pytest.approx(30 / 12, rel=1e-4)


def test_random_tables_have_no_gap() -> None:
    draws = random_singular_values(40, 32, 300, seed=77)
    found = sum(spectral_split(one, (40, 32)).found for one in draws)
    assert found <= 3  # the level is 0.001
    p = np.array([spectral_split(one, (40, 32)).p_value for one in draws])
    assert abs(p.mean() - 0.5) < 4 / (12 * 300) ** 0.5


def test_a_spectrum_of_few_values_has_no_split() -> None:
    found = spectral_split(torch.tensor([9.0, 1, 1, 1e-9], dtype=torch.float64), (4, 4))
    assert not found.found
    assert np.isnan(found.gap)


def test_the_bridge_is_the_right_singular_subspace_of_the_query_key_product() -> None:
    found = model()
    spaces = NamedSpaces.of(found)
    attention = found.stack[1].self_attn
    W_Q, W_K = attention.q_proj.weight.double().T, attention.k_proj.weight.double().T
    V = spaces.bridge[:, :5]
    torch.testing.assert_close(V.T @ V, torch.eye(5, dtype=torch.float64))
    best = torch.linalg.svdvals(W_Q @ W_K.T)[:5].square().sum()
    torch.testing.assert_close((W_Q @ W_K.T @ V).square().sum(), best)
    # Key-reading side: what lies outside the columns of W_K cannot be in it.
    outside = torch.eye(32, dtype=torch.float64) - W_K @ torch.linalg.pinv(W_K)
    assert float((outside @ V).norm().detach()) < 1e-8


def test_energies_are_projections_and_sum_to_one() -> None:
    found = with_gap(model(), 14)
    row, spaces = geometry_row(found), NamedSpaces.of(found)
    _, directions = spaces.embedding
    for place, k in enumerate(sizes(32)):
        V = spaces.bridge[:, :k]
        medium = directions[:, 1:15]
        expected = float((medium @ medium.T @ V).square().sum()) / k
        assert row["bridge_energy"][place, 1] == pytest.approx(expected)
        assert row["bridge_energy"][place].sum() == pytest.approx(1.0)
        assert row["top_in_bridge"][place] == pytest.approx(float((V.T @ directions[:, 0]).square().sum()))
    assert row["bridge_energy_null"] == pytest.approx([1 / 32, 14 / 32, 17 / 32])
    assert part_energy(row["bridge_profile"], 1, 14) == pytest.approx(row["bridge_energy"])


def test_overlaps_of_untrained_models_are_those_of_chance() -> None:
    rows = [geometry_row(model(seed)) for seed in range(40)]
    kernel = np.array([row["projection_kernel"] for row in rows])
    for place, k in enumerate(sizes(32)):
        values = kernel[:, :, place].ravel()
        assert values.mean() == pytest.approx(k / 32, abs=4 * values.std() / len(values) ** 0.5)
    scores = np.array([row["composition_score"] for row in rows]).ravel()
    assert (scores**2).mean() == pytest.approx(1 / 32, rel=0.05)
    profile = np.array([row["bridge_profile"][1] for row in rows])
    assert profile.mean() == pytest.approx(1 / 32)
    assert profile.mean(0) == pytest.approx(1 / 32, abs=0.025)


def test_the_kernel_counts_shared_directions() -> None:
    found = model()
    attention = found.stack[1].self_attn
    with torch.no_grad():
        attention.k_proj.weight.copy_(found.stack[0].self_attn.o_proj.weight.T)
    row = geometry_row(found)
    assert row["projection_kernel"][1] == pytest.approx(1.0)
    write_key = row["angle"][ANGLE_PAIRS.index("write:K")]
    assert write_key == pytest.approx(0.0, abs=1e-4)


def test_a_random_embedding_has_no_parts_and_one_layer_no_bridge() -> None:
    row = geometry_row(model())
    assert np.isnan(row["bridge_energy"]).all()
    assert np.isnan(row["medium_size"])
    assert np.isfinite(row["bridge_profile"]).all()
    single = geometry_row(model(layers=1))
    assert np.isnan(single["projection_kernel"]).all()
    assert np.isnan(single["bridge_profile"]).all()
    assert set(single) == set(row) == set(DIMS)
