"""Ranks are decided by the precision that weights were stored in, in every lens alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.subspaces import noise_floor, numerical_rank, orthonormal_basis, unit_roundoff

D, N_HEADS, WIDTH, N_LAYERS, RANK = 128, 8, 16, 2, 3
STORED = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
CONFIG = {
    "model_type": "llama",
    "hidden_size": D,
    "num_attention_heads": N_HEADS,
    "num_hidden_layers": N_LAYERS,
    "vocab_size": 40,
    "intermediate_size": 32,
    "tie_word_embeddings": True,
}


def _head(normal: Callable[..., torch.Tensor], rank: int) -> torch.Tensor:
    return 0.02 * (normal(D, rank) if rank == WIDTH else normal(D, rank) @ normal(rank, WIDTH))


def tensors(rank: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """A Llama in float64 whose heads all have this rank; head 0 of layer 0 is zero."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    found = {"model.embed_tokens.weight": normal(40, D)}
    for layer in range(N_LAYERS):
        for role in "qkvo":
            heads = [_head(normal, rank) for _ in range(N_HEADS)]
            if layer == 0:
                heads[0] = torch.zeros(D, WIDTH, dtype=torch.float64)
            W = torch.cat(heads, dim=1)
            found[f"model.layers.{layer}.self_attn.{role}_proj.weight"] = (W if role == "o" else W.T).contiguous()
        norms = ("input_layernorm", "post_attention_layernorm")
        found |= {f"model.layers.{layer}.{name}.weight": torch.ones(D, dtype=torch.float64) for name in norms}
        for name, shape in (("gate", (32, D)), ("up", (32, D)), ("down", (D, 32))):
            found[f"model.layers.{layer}.mlp.{name}_proj.weight"] = 0.1 * normal(*shape)
    return found | {"model.norm.weight": torch.ones(D, dtype=torch.float64)}


def model(dtype: str, rank: int = RANK, **change: torch.Tensor) -> headspan.Model:
    stored = {name: tensor.to(STORED[dtype]) for name, tensor in (tensors(rank) | change).items()}
    return headspan.open((stored, CONFIG))


@pytest.fixture(scope="module")
def exact() -> float:
    """The kernel of one pair of rank-3 heads, computed from the weights before they were stored."""
    weights = tensors(RANK)
    W_O = np.linalg.svd(weights["model.layers.0.self_attn.o_proj.weight"][:, WIDTH : 2 * WIDTH].numpy())[0][:, :RANK]
    W_K = np.linalg.svd(weights["model.layers.1.self_attn.k_proj.weight"][:WIDTH].numpy().T)[0][:, :RANK]
    return float(np.square(W_O.T @ W_K).sum())


@pytest.mark.parametrize("dtype", STORED)
def test_every_lens_sees_rank_three_in_every_stored_precision(dtype: str, exact: float) -> None:
    subject = model(dtype)
    expected = np.full((N_LAYERS, N_HEADS), RANK)
    expected[0, 0] = 0
    ranks = headspan.ranks(subject)
    for role in "QKVO":
        assert (ranks.grid()[f"rank_{role}"].values == expected).all(), role
    close = {"float64": 1e-9, "float32": 1e-5, "float16": 1e-2, "bfloat16": 0.1}[dtype]
    pairs = headspan.affinity(subject, pairings="OK")
    assert float(pairs["OK"].projection_kernel.sel(src="L0H1", dst="L1H0")) == pytest.approx(exact, abs=close)
    assert (pairs["OK"].src_rank.values == expected.ravel()).all()
    one = headspan.channels(subject, "L0H1", "L1H0", pairings="OK", draws=50)["pair"]
    assert float(one["OK"].projection_kernel) == pytest.approx(exact, abs=close)
    assert one["OK"].angle.size == RANK
    alike = headspan.similarity(subject, across_layers=False, maps=False)
    assert (alike.grid()["rank_Q"].values == expected).all()
    spectra = headspan.spectra(subject, matrices=["W_Q_head", "W_O_head", "W_QK", "W_OV"])
    for kind in ("W_Q_head", "W_O_head", "W_QK", "W_OV"):
        assert (spectra.grid(kind)["numerical_rank"].values == expected).all(), kind
    moved = headspan.drift(subject, model(dtype), draws=3)
    assert (moved.grid("K")["rank_before"].values == expected).all()
    assert (moved.grid("K")["rank_after"].values == expected).all()
    assert f"noise of {dtype}" == ranks.attrs["tolerance"] == pairs.attrs["tolerance"] == alike.attrs["tolerance"]
    assert ranks.attrs["stored_dtype"] == dtype


@pytest.mark.parametrize("dtype", STORED)
def test_positions_and_tokens_see_only_true_directions(dtype: str) -> None:
    subject = model(dtype)
    found = headspan.positions(subject)
    # Seven heads of rank three in layer 0, eight in layer 1, each with directions of its own.
    for role in "QKVO":
        assert found["matrix_rank"].sel(matrix=role).values.tolist() == [7 * RANK, 8 * RANK]
    overlaps = found.grid()["head_overlap_K"].values
    assert np.isnan(overlaps[0, 0]).all()
    assert float(headspan.vocabulary(subject, head="L0H1", projection="Q")["projection/share_null"]) == RANK / D


@pytest.mark.parametrize("dtype", STORED)
def test_random_heads_keep_their_full_rank_in_every_stored_precision(dtype: str) -> None:
    subject = model(dtype, rank=WIDTH)
    expected = np.full((N_LAYERS, N_HEADS), WIDTH)
    expected[0, 0] = 0
    ranks, alike = headspan.ranks(subject), headspan.similarity(subject, across_layers=False, maps=False)
    assert all((ranks.grid()[f"rank_{role}"].values == expected).all() for role in "QKVO")
    assert (alike.grid()["rank_K"].values == expected).all()
    assert (headspan.affinity(subject, pairings="OK")["OK"].dst_rank.values == expected.ravel()).all()
    spectra = headspan.spectra(subject, matrices=["W_V_head", "W_QK"])
    assert (spectra.grid("W_V_head")["numerical_rank"].values == expected).all()
    assert (spectra.grid("W_QK")["numerical_rank"].values == expected).all()


@pytest.mark.parametrize("algorithm", ["sketch", "gram", "projector"])
def test_every_algorithm_of_affinity_decides_ranks_alike(algorithm: str, exact: float) -> None:
    found = headspan.affinity(model("float16"), pairings="OK", metrics="projection_kernel", algorithm=algorithm, top=56)
    top = found.top(56).set_index(["src", "dst"])
    assert float(top.loc[("L0H1", "L1H0"), "score"]) == pytest.approx(exact, abs=1e-2)


@pytest.mark.slow
def test_a_tolerance_overrides_the_rule_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    subject = model("float32")
    assert int(headspan.ranks(subject, tolerance=1e-12)["rank_Q"].max()) == WIDTH
    assert headspan.affinity(subject, pairings="OK", tolerance=1e-12)["OK"].src_rank.max() == WIDTH
    one = headspan.channels(subject, "L0H1", "L1H0", pairings="OK", tolerance=1e-12, draws=50)
    assert one["pair/OK"].angle.size == WIDTH
    assert headspan.positions(subject, tolerance=1e-12)["matrix_rank"].sel(matrix="Q").values[1] == D
    save_file({name: each.float() for name, each in tensors(RANK).items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for command in ("ranks", "affinity", "similarity", "positions", "spectra", "drift", "compare", "pair"):
        more = [str(tmp_path)] if command in ("drift", "compare") else ["L0H1", "L1H0"] if command == "pair" else []
        done = CliRunner().invoke(app, [command, str(tmp_path), *more, "--tolerance", "0.5", "--json"])
        assert done.exit_code == 0, (command, done.output)
        assert '"tolerance": 0.5' in done.output, command


def test_centered_weights_are_judged_by_the_noise_of_what_was_stored() -> None:
    """A head that reads the mean alone reads nothing once the mean is removed."""
    draw = torch.Generator().manual_seed(1)
    d, width = 64, 16
    same = torch.randn(1, 4 * width, generator=draw, dtype=torch.float64).expand(d, -1)
    found = {"wte.weight": torch.randn(20, d, generator=draw), "wpe.weight": torch.randn(8, d, generator=draw)}
    # Gains that every dtype holds exactly: an error of theirs would be common to a whole row.
    gain = 1 + torch.randperm(d, generator=draw) / 128
    c_attn = torch.cat([same / gain[:, None], torch.randn(d, 8 * width, generator=draw, dtype=torch.float64)], dim=1)
    found |= {"h.0.attn.c_attn.weight": c_attn, "h.0.attn.c_attn.bias": torch.zeros(12 * width)}
    found |= {"h.0.attn.c_proj.weight": torch.randn(d, d, generator=draw), "h.0.attn.c_proj.bias": torch.zeros(d)}
    found |= {"h.0.ln_1.weight": gain, "h.0.ln_1.bias": torch.zeros(d)}
    found |= {"ln_f.weight": torch.ones(d), "ln_f.bias": torch.zeros(d)}
    config = {"model_type": "gpt2", "n_embd": d, "n_head": 4, "n_layer": 1, "vocab_size": 20, "n_positions": 8}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        stored = {name: tensor.to(dtype) for name, tensor in found.items()}
        heads = headspan.open((stored, config)).heads(fold="layernorm", center=True, dtype="float64")
        assert heads.rank("Q").tolist() == [[0] * 4]
        assert heads.rank("K").tolist() == [[width] * 4]


def test_a_quantizer_hands_over_its_step() -> None:
    """Noise of a uniform quantizer, step / sqrt(12), decides as roundoff does."""
    draw = torch.Generator().manual_seed(2)
    low = (
        torch.randn(12, D, RANK, generator=draw, dtype=torch.float64)
        @ torch.randn(RANK, WIDTH, generator=draw).double()
    )
    full = torch.randn(12, D, WIDTH, generator=draw, dtype=torch.float64)
    for W, rank in ((low, RANK), (full, WIDTH)):
        step = W.abs().amax((-2, -1)) / 127
        rounded = (W / step[:, None, None]).round() * step[:, None, None]
        noise = step / 12**0.5
        assert (numerical_rank(rounded, noise=noise) == rank).all()
        assert (orthonormal_basis(rounded, noise=noise).rank == rank).all()
        assert (numerical_rank(rounded) == WIDTH).all()


def test_the_floor_is_above_what_rounding_leaves_of_a_zero() -> None:
    draw = torch.Generator().manual_seed(3)
    for d, p in ((64, 8), (128, 64), (256, 256)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            W = torch.randn(d, 4, generator=draw, dtype=torch.float64) @ torch.randn(4, p, generator=draw).double()
            error = float(torch.linalg.matrix_norm(W.to(dtype).double() - W, 2))
            floor = float(noise_floor(unit_roundoff(dtype) * float(W.square().mean().sqrt()), d, p))
            assert error < floor < 8 * error
