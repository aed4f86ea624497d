"""Every layer against the tables, and the logits of layer 0: definitions, nulls, families."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headspan
from headspan.errors import ArgumentError, MissingTensor, UnsupportedModel
from headspan.heads.embeddings import first_read
from headspan.lenses.positions.layer_zero import draw_sample, logit_shares
from headspan.lenses.positions.layers import alignment
from headspan.lenses.positions.schema import TERMS
from headspan.lenses.positions.spectra import RankRule, matrix_spectrum
from tests.families.proof import run
from tests.families.tiny_models import CASES, by_family
from tests.unit.positions_models import CONTEXT, D, basis, gpt2, made_of, set_tables, tiny

FALLING = np.geomspace(10, 0.1, D)
ADDED = (
    "gpt2",
    "gpt_neo",
    "gpt_bigcode",
    "opt",
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "mpnet",
    "clip_text_model",
)


# Alignment


def test_alignment_is_the_share_of_the_norm_in_the_top_directions() -> None:
    heads = gpt2()
    result = headspan.positions(heads, k=5)
    for name, table in (("P", heads.W_pos), ("E", heads.W_E)):
        V = torch.linalg.svd(table).Vh[:5].mT
        W_Q = torch.cat(list(heads.W_Q[1]), dim=1)
        expected = float((V.mT @ W_Q).square().sum() / W_Q.square().sum())
        here = result.dataset().sel(layer=1, table=name)
        assert float(here["alignment"].sel(matrix="Q")) == pytest.approx(expected)
        head = heads.W_O[1, 2].mT
        expected = float((V.mT @ head).square().sum() / head.square().sum())
        assert float(here["head_alignment_O"].sel(head="L1H2")) == pytest.approx(expected)
    W_in = heads.mlp(0).W_in[0]
    G, T = W_in @ W_in.mT, heads.W_E.mT @ heads.W_E
    expected = float((G * T).sum() / (G.trace() * T.trace()))
    assert float(result["energy_alignment"].sel(layer=0, matrix="in", table="E")) == pytest.approx(expected)


def test_alignment_does_not_see_the_order_of_heads_nor_a_scale() -> None:
    def change(model):
        for block in model.h:
            q, k, v = block.attn.c_attn.weight.split(D, dim=1)
            block.attn.c_attn.weight.copy_(torch.cat([3 * q.flip(1), k, v], dim=1))

    one, other = headspan.positions(gpt2(), samples=2), headspan.positions(gpt2(change), samples=2)
    for name in ("alignment", "energy_alignment", "overlap", "corner"):
        np.testing.assert_allclose(one[name].sel(matrix="Q"), other[name].sel(matrix="Q"), rtol=1e-4)


def test_a_matrix_that_reads_only_top_position_directions_is_aligned_whole() -> None:
    B = basis()

    def change(model):
        set_tables(P=made_of(B, FALLING, CONTEXT))(model)
        top = torch.as_tensor(B[:, :6] @ B[:, :6].T)
        model.h[0].mlp.c_fc.weight.copy_(top @ model.h[0].mlp.c_fc.weight)

    here = headspan.positions(gpt2(change)).dataset().sel(layer=0, matrix="in", table="P")
    assert float(here["alignment"]) == pytest.approx(1)
    assert float(here["alignment_null"]) == pytest.approx(6 / D, rel=1e-12)
    assert float(here["alignment_log_p"]) < -50
    assert float(here["matrix_rank"]) == 6


def test_alignment_of_random_rotations_has_its_null_mean_and_uniform_p_values() -> None:
    rng, d, n = np.random.default_rng(0), 16, 400
    w, b = np.geomspace(1, 0.01, d), (np.arange(d) < 4).astype(float)
    w /= w.sum()
    rotations = np.linalg.qr(rng.standard_normal((n, d, d)))[0]
    found = alignment(rotations**2, np.tile(w, (n, 1)), b, d)
    assert abs(found[""].mean() - 4 / d) < 4 * found[""].std() / np.sqrt(n)
    assert abs(found["_z"].std() - 1) < 0.15
    assert 0.02 < (np.exp(found["_log_p"]) < 0.05).mean() < 0.09


def test_a_head_of_zeros_is_undefined_and_the_others_are_not() -> None:
    def change(model):
        model.h[0].attn.c_attn.weight[:, :12] = 0

    result = headspan.positions(gpt2(change))
    here = result.grid().sel(layer=0, table="P")
    assert np.isnan(here["head_alignment_Q"].values).tolist() == [True, False, False, False]
    assert np.isnan(here["head_overlap_Q"].values[0]).all()
    assert float(here["matrix_rank"].sel(matrix="Q")) == 36
    assert np.isfinite(here["alignment"]).all()


def test_each_kv_head_of_a_grouped_model_counts_once() -> None:
    result = headspan.positions(tiny("llama"))
    assert result["head_alignment_K"].dims == ("kv_head", "table")
    assert result["kv_head"].values.tolist() == ["L0K0", "L0K1", "L1K0", "L1K1"]
    with pytest.raises(ArgumentError, match="L1H3 reads L1K1"):
        result["head_alignment_K"].sel(kv_head="L1H3")
    assert result["matrix"].values.tolist() == ["Q", "K", "V", "O", "gate", "up", "out"]
    assert result["matrix_rank"].sel(matrix="K").values.tolist() == [12, 12]


def test_layers_keep_their_numbers() -> None:
    model = headspan.open(next(case for case in CASES if case.name == "gpt2").model())
    result = headspan.positions(model.heads(layers=[1]))
    assert result["layer"].values.tolist() == [1]
    assert "logits of layer 0: layer 0 is not among these layers" in result.attrs["left_out"]


# The first layer


@pytest.mark.parametrize("name", ADDED)
def test_token_position_and_constant_add_up_to_what_the_first_layer_reads(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    model = case.model()
    checkpoint = headspan.open(model).checkpoint
    heads = checkpoint.heads()
    seen = run(model, heads.stack.name, case.inputs(), checkpoint)[0]
    tokens = case.inputs()["input_ids"]
    positions_used = torch.arange(tokens.shape[1])
    parts = first_read(heads).split(heads.W_E[tokens[0]], heads.W_pos[positions_used])
    torch.testing.assert_close(sum(parts), seen.x[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "stack"), [("bart", "encoder"), ("bart", "decoder"), ("whisper", "decoder")])
def test_models_with_several_stacks_are_read_as_they_run(name: str, stack: str) -> None:
    case = next(case for case in CASES if case.name == name)
    model = case.model()
    checkpoint = headspan.open(model).checkpoint
    heads = checkpoint.heads(stack=stack)
    seen = run(model, stack, case.inputs(), checkpoint)[0]
    tokens = case.inputs()["decoder_input_ids" if stack == "decoder" else "input_ids"]
    parts = first_read(heads).split(heads.W_E[tokens[0]], heads.W_pos[: tokens.shape[1]])
    torch.testing.assert_close(sum(parts), seen.x[0], rtol=1e-6, atol=1e-6)


def direct_shares(heads: headspan.Heads, samples: int, seed: int, head: int) -> tuple[np.ndarray, float]:
    """The shares by their definition: nine tables of products, covariances over keys query by query."""
    sample = draw_sample(heads, heads.W_E, heads.W_pos, samples, seed)
    block = heads.layer(0, ("Q", "K"))
    q = [part @ block.W_Q[0, head] for part in sample.queries]
    k = [part @ block.W_K[0, head] for part in sample.keys]
    q[2], k[2] = q[2] + block.b_Q[0, head], k[2] + block.b_K[0, head]
    scale = heads.stack.scale[0]
    products = {(i, j): (scale * q[i] @ k[j].T).numpy() for i in range(3) for j in range(3)}
    logits = sum(products.values())
    named = {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
    covariance, variance, count = np.zeros(5), 0.0, 0
    for row, visible in enumerate(sample.visible.numpy() > 0):
        centered = logits[row, visible] - logits[row, visible].mean() if visible.any() else np.zeros(0)
        variance += (centered**2).sum()
        count += int(visible.sum())
        for pair, product in products.items():
            covariance[named.get(pair, 4)] += (product[row, visible] * centered).sum()
    return covariance / variance, float(np.sqrt(variance / count))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_logit_shares_are_what_direct_logits_give_and_add_up_to_one(name: str) -> None:
    heads = tiny(name)
    found = logit_shares(heads, heads.W_E, heads.W_pos, samples=40, seed=3)
    np.testing.assert_allclose(found.share.sum(1), 1, atol=1e-9)
    share, size = direct_shares(heads, 40, 3, head=1)
    np.testing.assert_allclose(found.share[1], share, atol=1e-9)
    assert found.logit_sd[1] == pytest.approx(size)


def test_the_standard_error_of_shares_is_what_other_samples_change() -> None:
    heads = tiny("bert")
    found = [logit_shares(heads, heads.W_E, heads.W_pos, samples=256, seed=seed) for seed in range(24)]
    spread = np.stack([one.share for one in found]).std(0, ddof=1)
    error = np.sqrt(np.mean([one.share_se**2 for one in found], axis=0))
    assert 0.75 < np.median(error / spread) < 1.4
    assert np.isnan(logit_shares(heads, heads.W_E, heads.W_pos, samples=20, seed=0).share_se).all()


def test_the_sum_of_the_parts_gives_the_logits_of_the_running_model() -> None:
    case = next(case for case in CASES if case.name == "gpt2")
    model = case.model()
    checkpoint = headspan.open(model).checkpoint
    heads = checkpoint.heads()
    seen, tokens = run(model, "decoder", case.inputs(), checkpoint)[0], case.inputs()["input_ids"][0]
    x = sum(first_read(heads).split(heads.W_E[tokens], heads.W_pos[: len(tokens)]))
    block = heads.layer(0, ("Q", "K"))
    q, k = (x @ W[0, 1] + b[0, 1] for W, b in ((block.W_Q, block.b_Q), (block.W_K, block.b_K)))
    logits = heads.stack.scale[0] * q @ k.T
    pattern = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(pattern, seen.pattern[0, 1], rtol=1e-5, atol=1e-6)


def test_random_heads_have_the_shares_that_the_null_says() -> None:
    """Zero biases and norms without a bias, since the null has none of its own."""

    def change(model):
        for block in model.h:
            block.attn.c_attn.bias.zero_()
            block.ln_1.bias.zero_()

    heads = gpt2(change, n_head=1, n_embd=48)
    rows = []
    for seed in range(20):
        torch.manual_seed(seed)
        with torch.no_grad():
            redrawn = gpt2(lambda m: (change(m), m.h[0].attn.c_attn.weight.normal_())[0], n_head=1)
        found = logit_shares(redrawn, heads.W_E, heads.W_pos, samples=100, seed=0)
        rows.append(found.share[0])
    rows = np.array(rows)
    error = rows.std(0) / np.sqrt(len(rows))
    for place in range(4):
        assert abs(rows[:, place].mean() - found.null[place]) < 4 * error[place], TERMS[place]
    assert found.null[4] == pytest.approx(0, abs=1e-12)
    assert np.abs(rows.std(0)[:4] / found.null_sd[:4] - 1).max() < 0.7


def test_a_head_that_reads_positions_alone_has_all_of_its_variance_there() -> None:
    B = torch.as_tensor(basis(7))
    # Both tables without a mean over d_model, so that LayerNorm's centering leaves their spaces apart.
    B = torch.linalg.qr(B - B.mean(0, keepdim=True))[0][:, :40]

    def change(model):
        model.wpe.weight.copy_(torch.randn(CONTEXT, 20, dtype=torch.float64) @ B[:, :20].T)
        model.wte.weight.copy_(torch.randn(400, 20, dtype=torch.float64) @ B[:, 20:].T)
        block = model.h[0]
        block.ln_1.weight.fill_(1.0)
        block.ln_1.bias.zero_()
        block.attn.c_attn.bias.zero_()
        block.attn.c_attn.weight.copy_(B[:, :20] @ B[:, :20].T @ block.attn.c_attn.weight)

    result = headspan.positions(gpt2(change))
    share = result.grid()["logit_share"].sel(term="position-position")
    np.testing.assert_allclose(share.sel(layer=0), 1, atol=1e-8)
    assert share.sel(layer=1).isnull().all()
    assert float(result["logit_share_null"].sel(term="position-position")) < 0.5


def test_fewer_than_two_samples_are_refused() -> None:
    with pytest.raises(ArgumentError, match="samples=1 is out of range; it is at least 2"):
        headspan.positions(gpt2(), samples=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("albert", "a albert norms token and position before it widens them to d_model"),
        ("electra", "a electra norms token and position before it widens them to d_model"),
    ],
)
def test_a_family_that_norms_before_it_widens_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(MissingTensor, match=message):
        first_read(tiny(name))


# Which models


@by_family
def test_every_family_is_handled_or_refused_by_name(case) -> None:
    model = headspan.open(case.model())
    for stack in model.stacks:
        reason = model.skip_reasons(stack)["positions"]
        if reason is not None:
            assert "different streams" in reason or "needs one of W_E, W_pos" in reason
            continue
        result = headspan.positions(model, stack=stack, samples=8)
        assert np.isfinite(result["alignment"]).all()
        lines = result.attrs["left_out"]
        for table, words in (("P", "position"), ("E", "token")):
            assert (table in result["table"].values) != (f"{words} analyses" in lines)


@pytest.mark.parametrize(
    ("name", "stack", "line"),
    [
        ("llama", None, "no learned position table (rotary positions)"),
        ("bloom", None, "no learned position table (alibi positions)"),
        ("t5", "encoder", "no learned position table (relative positions)"),
        ("vit", None, "positions are patches of an image, not places on a line"),
        ("vit", None, "a vit encoder has no token table"),
        ("mixtral", None, "the MLP: it is a mixture of experts"),
    ],
)
def test_what_a_model_does_not_have_is_said_in_one_line(name: str, stack: str | None, line: str) -> None:
    assert line in headspan.positions(tiny(name, stack), samples=2).attrs["left_out"]


def test_cross_attention_is_refused() -> None:
    model = headspan.open(next(case for case in CASES if case.name == "bart").model())
    reason = "queries and keys of cross-attention read different streams"
    assert model.skip_reasons("cross")["positions"] == reason
    with pytest.raises(UnsupportedModel, match=reason):
        headspan.positions(model, stack="cross")


# Spectra of whole matrices


@pytest.mark.parametrize("columns", [24, 60])
@pytest.mark.parametrize("smallest", [1e-2, 1e-6, 1e-11])
def test_faint_directions_of_a_matrix_are_as_exact_as_a_decomposition_gives_them(columns: int, smallest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(n, 24, generator=generator, dtype=torch.float64)).Q for n in (24, columns))
    values = torch.logspace(0, np.log10(smallest), 24, dtype=torch.float64)
    W = U * values @ V.mT
    found = matrix_spectrum(W, RankRule(1e-14), scratch=2**20)
    rounding = 1e-14 / smallest
    torch.testing.assert_close(found.values, values, rtol=1e-6 + 10 * rounding, atol=0)
    # Each direction holds its own energy and no more: a mixture with a larger one would show.
    torch.testing.assert_close((found.directions.mT @ W).norm(dim=1), values, rtol=1e-6 + 10 * rounding, atol=0)
    torch.testing.assert_close(found.directions.mT @ found.directions, torch.eye(24).double(), rtol=0, atol=1e-12)


def test_a_matrix_of_lower_rank_has_as_many_directions_and_zero_has_none() -> None:
    W = torch.randn(20, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    W[12:] = W[:8]
    assert matrix_spectrum(W, RankRule(), scratch=2**20).rank == 12
    assert matrix_spectrum(torch.zeros(20, 30), RankRule(), scratch=2**20).rank == 0
