"""Directions read in the vocabulary: definition, invariance, null, filter, and tables of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError, ShapeError
from headspan.heads.token_rows import token_rows
from headspan.lenses.token_reading import MASS_TOKENS, STATISTICS, TokenTable, read_directions
from headspan.lenses.token_texts import tokens_of
from headspan.statistics.draw_tails import upper_p_values


def llama(d=32, n_tokens=3000, dtype=torch.float64, seed=0, **changes):
    """A random one-layer Llama with untied tables and gains that are not one."""
    draw = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)

    tensors = {f"model.layers.0.self_attn.{role}_proj.weight": random(d, d) for role in "qkvo"}
    tensors |= {"model.embed_tokens.weight": random(n_tokens, d), "lm_head.weight": random(n_tokens, d)}
    tensors |= {name: 1 + random(d).abs() for name in ("model.norm.weight", "model.layers.0.input_layernorm.weight")}
    config = {"model_type": "llama", "hidden_size": d, "num_attention_heads": 4, "num_hidden_layers": 1}
    return tensors | changes, config | {"vocab_size": n_tokens, "intermediate_size": 8}


def opened(fold="none", dtype=torch.float64, **of):
    return headspan.open(llama(**of)).heads(dtype=dtype, fold=fold)


def naive(table, direction):
    """Scores of tokens by the definition, and the three statistics."""
    centered = table - table.mean(0)
    scores = centered @ direction
    z = scores / np.sqrt((scores**2).mean())
    largest = np.sort(z**2)[::-1]
    return z, {
        "largest_z": np.abs(z).max(),
        "kurtosis": (z**4).mean() - 3,
        "top_mass": largest[:MASS_TOKENS].sum() / largest.sum(),
    }


@pytest.mark.parametrize("side", ["read", "write"])
@pytest.mark.parametrize("fold", ["none", "layernorm"])
def test_a_reading_is_the_product_with_the_centered_table(side, fold):
    heads = opened(fold, n_tokens=9001)
    directions = torch.randn(300, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    reading = read_directions(heads, directions, side, count=7)
    table = (heads.W_E if side == "read" else heads.W_U.T).numpy()
    for place in (0, 255, 256, 299):
        z, statistics = naive(table, directions[place].numpy())
        order = np.argsort(-z, kind="stable")
        np.testing.assert_array_equal(reading.ids[place], [order[:7], order[::-1][:7]])
        np.testing.assert_allclose(reading.z[place], [z[order[:7]], z[order[::-1][:7]]], rtol=1e-9)
        for name, value in statistics.items():
            np.testing.assert_allclose(getattr(reading, name)[place], value, rtol=1e-9)


def test_statistics_see_neither_length_nor_sign_and_ends_change_places():
    heads = opened()
    u = torch.randn(4, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    plain, turned = read_directions(heads, u, "read"), read_directions(heads, -3 * u, "read")
    for name in STATISTICS:
        np.testing.assert_allclose(getattr(plain, name), getattr(turned, name), rtol=1e-10)
    np.testing.assert_array_equal(plain.turned(-np.ones(4)).ids, turned.ids)
    np.testing.assert_allclose(plain.turned(-np.ones(4)).z, turned.z, rtol=1e-10)
    np.testing.assert_allclose(3 * plain.rms, turned.rms, rtol=1e-10)


def test_half_precision_tables_stay_as_they_are_and_read_the_same():
    half = headspan.open(llama(n_tokens=500, dtype=torch.bfloat16)).heads()
    assert token_rows(half, "W_E").stored.dtype == torch.bfloat16
    tensors, config = llama(n_tokens=500, dtype=torch.bfloat16)
    wide = headspan.open(({name: tensor.float() for name, tensor in tensors.items()}, config)).heads()
    u = torch.randn(9, 32, generator=torch.Generator().manual_seed(3))
    for side in ("read", "write"):
        np.testing.assert_array_equal(read_directions(half, u, side).ids, read_directions(wide, u, side).ids)


def test_a_table_of_262144_tokens_is_read_in_blocks_and_never_tokens_by_tokens(monkeypatch):
    heads = headspan.open(llama(n_tokens=2**18, d=16, dtype=torch.bfloat16)).heads(dtype=torch.float32)
    table, largest = TokenTable(heads, "read", memory=2**20), 0
    blocks = type(table.rows).blocks

    def watched(*arguments):
        nonlocal largest
        for start, block in blocks(*arguments):
            largest = max(largest, block.nbytes)
            yield start, block

    monkeypatch.setattr(type(table.rows), "blocks", watched)
    u = torch.randn(5, 16, generator=torch.Generator().manual_seed(4))
    reading = table.read(u)
    assert 0 < largest <= 2**20
    assert table.rows.stored.dtype == torch.bfloat16
    W_E = heads.W_E.double()
    scores = (W_E - W_E.mean(0)) @ u.double().T
    np.testing.assert_array_equal(reading.ids[:, 0, :3], scores.topk(3, dim=0).indices.T.numpy())


def test_factorized_tables_are_widened_in_the_direction_not_in_the_table():
    transformers = pytest.importorskip("transformers")
    config = transformers.AlbertConfig(
        hidden_size=24,
        embedding_size=8,
        num_attention_heads=4,
        num_hidden_layers=2,
        intermediate_size=16,
        vocab_size=90,
    )
    module = transformers.AlbertModel(config)
    torch.nn.init.uniform_(module.embeddings.LayerNorm.weight)
    heads = headspan.open(module).heads(dtype=torch.float64)
    rows = token_rows(heads, "W_E")
    assert rows.stored.shape == (90, 8)
    u = torch.randn(3, 24, dtype=torch.float64)
    with torch.no_grad():
        table = module.embeddings.word_embeddings.weight.double()
        table = (table - table.mean(-1, keepdim=True)) * module.embeddings.LayerNorm.weight.double()
        table = table @ module.encoder.embedding_hidden_mapping_in.weight.double().T
    np.testing.assert_allclose(rows.stored.double() @ rows.pulled_back(u).T, table @ u.T, rtol=1e-6)
    assert TokenTable(heads, "write").name == "W_E"


def test_random_directions_are_significant_as_often_as_their_level_says():
    heads = opened(n_tokens=800)
    table = TokenTable(heads, "write")
    u = torch.randn(2000, 32, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = table.concentration(table.read(u, 1), draws=1000)
    for name in STATISTICS:
        p = found[f"{name}_p"]
        for level in (0.2, 0.05, 0.01):
            assert (p < level).mean() < level + 4 * np.sqrt(level / 2000 + level / 1000), (name, level)
        assert abs(p.mean() - 0.5) < 0.06


def test_a_planted_direction_is_found_and_names_its_tokens():
    tensors, config = llama(d=64, n_tokens=800)
    u = torch.nn.functional.normalize(torch.randn(64, generator=torch.Generator().manual_seed(6)).double(), dim=0)
    chosen = [3, 141, 592, 653]
    tensors["lm_head.weight"][chosen] += 12 * u
    table = TokenTable(headspan.open((tensors, config)).heads(dtype=torch.float64), "write")
    reading = table.read(u[None], 4)
    assert sorted(reading.ids[0, 0]) == chosen
    found = table.concentration(reading)
    assert all(found[f"{name}_p"][0] < 1e-4 for name in STATISTICS)


def test_a_direction_that_no_token_has_is_undefined():
    heads = opened()
    reading = read_directions(heads, torch.zeros(1, 32, dtype=torch.float64), "read")
    assert (reading.ids == -1).all()
    assert np.isnan(reading.z).all()
    assert np.isnan(reading.kurtosis).all()
    assert set(reading.texts.ravel()) == {""}


def test_tails_are_uniform_within_the_draws_and_fall_beyond_them():
    random = np.random.default_rng(0)
    draws, values = random.gumbel(size=2000), random.gumbel(size=20000)
    p = upper_p_values(values, draws)
    assert abs((p < 0.05).mean() - 0.05) < 0.02
    assert abs((p < 0.001).mean() - 0.001) < 0.001
    far = upper_p_values(np.array([8.0, 12.0, np.nan]), draws)
    assert np.exp(-12) / 10 < far[1] < far[0] < 5e-3
    assert np.isnan(far[2])
    # A tail that ends, such as that of a uniform law, is taken for an exponential one: p is too large, never 0.
    assert 0 < upper_p_values(np.array(1.5), random.uniform(size=1000)) < 0.01
    with pytest.raises(ArgumentError, match="at least 50 draws"):
        upper_p_values(values, draws[:10])


def write_tokenizer(folder: Path, content: dict) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(content))


def saved(folder: Path, n_tokens: int):
    from safetensors.torch import save_file

    tensors, config = llama(n_tokens=n_tokens)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


BYTE_LEVEL = ["<|endoftext|>", "Ġthe", "ing", "Ã", "ĠcafÃ©", "[unused3]", "<|reserved_7|>", "<0x0A>"]


def test_special_unused_and_byte_tokens_are_left_out_and_counted(tmp_path):
    saved(tmp_path, 10)
    vocab = {piece: token for token, piece in enumerate(BYTE_LEVEL)}
    added = [{"id": 0, "content": "<|endoftext|>", "special": True}]
    write_tokenizer(tmp_path, {"model": {"vocab": vocab}, "added_tokens": added})
    heads = headspan.open(str(tmp_path)).heads()
    tokens = tokens_of(heads, 10)
    assert tokens.counts == {"special": 1, "unused": 4, "byte": 2}
    assert tokens.kept.tolist() == [1, 2, 4]
    assert [tokens.text(token) for token in (1, 2, 4, 9)] == [" the", "ing", " café", "#9"]
    assert tokens.by_text[" café"] == 4
    kept = read_directions(heads, torch.eye(32)[:2], "read", count=10)
    assert kept.ids.shape == (2, 2, 3)
    assert set(kept.ids.ravel()) == {1, 2, 4}
    shown = read_directions(heads, torch.eye(32)[:2], "read", count=10, filtered=False)
    assert set(shown.ids.ravel()) == set(range(10))


@pytest.mark.parametrize("content", ['{"model": 3}', "{", '{"model": {"vocab": [["a", 0], 3]}, "added_tokens": [4]}'])
def test_a_damaged_tokenizer_leaves_ids(tmp_path, content):
    saved(tmp_path, 10)
    (tmp_path / "tokenizer.json").write_text(content)
    heads = headspan.open(str(tmp_path)).heads()
    assert tokens_of(heads, 10).text(3) == "#3"
    assert len(tokens_of(heads, 10).kept) == 10


def test_word_lists_and_sentencepiece_are_read_too(tmp_path):
    saved(tmp_path, 4)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[unused0]\nthe\n##ing\n")
    tokens = tokens_of(headspan.open(str(tmp_path)).heads(), 4)
    assert tokens.kept.tolist() == [2, 3]
    assert tokens.text(3) == "##ing"
    write_tokenizer(tmp_path, {"model": {"vocab": [["<s>", 0], ["\u2581the", -1], ["<0x41>", -2], ["s", -3]]}})
    tokens = tokens_of(headspan.open(str(tmp_path)).heads(), 4)
    assert tokens.kept.tolist() == [1, 3]
    assert tokens.text(1) == " the"


def test_bad_directions_are_refused_in_one_line():
    heads = opened()
    with pytest.raises(ShapeError, match=r"directions need shape \[n, 32\], found \(3, 5\)"):
        read_directions(heads, torch.zeros(3, 5), "read")
    with pytest.raises(ArgumentError, match="side='left' is unknown; it is one of read, write"):
        read_directions(heads, torch.zeros(3, 32), "left")
    with pytest.raises(ArgumentError, match="count = 0 asks for no token"):
        read_directions(heads, torch.zeros(3, 32), "read", count=0)
