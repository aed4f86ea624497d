"""Tables that one narrow matrix widens (ALBERT, ELECTRA): what they share is judged inside the narrow space."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertModel, ElectraConfig, ElectraModel, PreTrainedModel

import headspan

WIDTH, D = 24, 96
SHAPE = {"embedding_size": WIDTH, "hidden_size": D, "num_attention_heads": 4, "num_hidden_layers": 2}
SHAPE |= {"intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 80}


def untrained(family: str, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    if family == "albert":
        return AlbertModel(AlbertConfig(**SHAPE, initializer_range=0.02, pad_token_id=None))
    return ElectraModel(ElectraConfig(**SHAPE, initializer_range=0.02, pad_token_id=None))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["albert", "electra"])
def test_tables_of_untrained_models_share_nothing(family: str) -> None:
    found = [headspan.positions(untrained(family, seed)) for seed in range(6)]
    for name in ("decile_mass_z", "table_corner_z", "table_overlap_z"):
        z = np.concatenate([each[name].values.ravel() for each in found])
        z = z[np.isfinite(z)]
        assert abs(z.mean()) < 0.5, name
        assert np.abs(z).max() < 6, name
    p = np.concatenate([each["top_kernel_p"].values for each in found])
    assert (p > 1e-3).all()


@pytest.mark.parametrize("family", ["albert", "electra"])
def test_a_narrow_table_has_no_more_directions_than_its_width(family: str) -> None:
    found = headspan.positions(untrained(family, 0))
    for name in ("rank", "rank_90", "rank_99", "rank_null", "rank_90_null", "participation_ratio_null"):
        assert float(found[name].max()) <= WIDTH, name
    assert abs(found["rank_90"] - found["rank_90_null"]).sel(table="E").max() <= 1
    assert found.attrs["table_width"] == WIDTH
    assert f"{WIDTH} dimensions before the matrix" in found.attrs["null"]
    assert any(f"of {WIDTH} directions hold 90 %" in finding.statement for finding in found.findings)


def test_layers_are_compared_with_the_widened_tables() -> None:
    model = untrained("electra", 1)
    heads = headspan.open(model).heads(dtype="float64")
    _, _, Vh = np.linalg.svd(heads.W_pos.numpy())
    k = int(headspan.positions(model)["capture_k"].sel(centering="stored", k_choice="given"))
    W = heads.W_Q[0].movedim(0, 1).flatten(1).numpy()
    share = np.square(Vh[:k] @ W).sum() / np.square(W).sum()
    found = headspan.positions(model)["alignment"].sel(layer=0, matrix="Q", table="P")
    assert float(found) == pytest.approx(share, rel=1e-4)


def test_narrow_tables_that_share_directions_are_found() -> None:
    model = untrained("electra", 2)
    with torch.no_grad():
        words, places = model.embeddings.word_embeddings.weight, model.embeddings.position_embeddings.weight
        basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH)).Q
        stretched = basis * torch.linspace(3, 0.3, WIDTH)[:, None]
        for table in (words, places):
            table.copy_(torch.randn_like(table) @ stretched)
    assert (headspan.positions(model)["top_kernel_p"] < 1e-3).all()


def test_overlaps_entry_by_entry_have_one_grid() -> None:
    found = headspan.positions(untrained("electra", 0), full=True)
    assert found["table_overlap_full"].shape[1:] == (D, D)
    assert int(found["table_overlap_full"].isel(centering=0).notnull().sum()) == WIDTH**2
