"""The lab's model is the transformer it says it is, and its checkpoints open like any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import headspan
from headspan.checkpoint import open_checkpoint
from headspan.errors import ArgumentError, CheckpointError
from headspan.heads.logits import relative_rotation
from headspan.lab.architecture import Architecture
from headspan.lab.model import LabModel, dropout_factors
from headspan.lab.positions import alibi_terms, offset_buckets
from headspan.lab.run_folder import open_model, save_model
from headspan.lenses.catalog import lenses
from headspan.lenses.model import open_model as opened

SHAPES = {
    "published": {},
    "learned-rms-mlp": {"positions": "learned", "norm": "rmsnorm", "mlp": 20, "heads": 2},
    "bare": {"positions": "none", "norm": "none", "tied": True, "bias": False},
    "without-gains": {"norm_gains": False, "heads": 4, "d_head": 6},
    "sines": {"positions": "sinusoidal"},
    "alibi": {"positions": "alibi", "heads": 2},
    "relative": {"positions": "relative", "heads": 2},
}
by_shape = pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
TOKENS = torch.randint(0, 20, (3, 11), generator=torch.Generator().manual_seed(0))


def model_of(options: dict[str, object]) -> LabModel:
    model = LabModel(Architecture(vocabulary=20, length=12, d_model=16, **options), seed=1).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "relative" in name:  # a gain left at one, a term at nought, would hide a mistake
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model


@by_shape
@torch.no_grad()
def test_fused_and_open_attention_agree(options: dict[str, object]) -> None:
    model = model_of(options)
    torch.testing.assert_close(model(TOKENS), model.trace(TOKENS).logits)


@by_shape
@torch.no_grad()
def test_our_heads_give_the_models_attention(options: dict[str, object], tmp_path: Path) -> None:
    model = model_of(options)
    heads = open_checkpoint(save_model(model, tmp_path)).heads()
    seen = model.trace(TOKENS)
    for layer in range(2):
        block, x = heads.layer(layer), seen.reads[layer][:, None]
        b = {role: 0 if block.bias(role) is None else block.bias(role)[0][:, None] for role in "QK"}
        q, k = x @ block.W_Q[0] + b["Q"], x @ block.W_K[0] + b["K"]
        scores = torch.empty_like(seen.scores[layer])
        for offset in range(-10, 11):
            R = relative_rotation(heads, offset, [layer])
            turned = q if R is None else q @ R[0]
            logits = turned @ k.mT * heads.d_head**-0.5
            where = (torch.arange(11)[:, None] - torch.arange(11)) == offset
            scores[..., where] = logits[..., where]
        terms = model.stack[layer].self_attn.position_terms(seen.reads[layer])
        scores = scores if terms is None else scores + terms
        torch.testing.assert_close(scores, seen.scores[layer], atol=1e-9, rtol=1e-9)


@by_shape
@torch.no_grad()
def test_heads_tables_and_norms_rebuild_what_enters_each_layer(options: dict[str, object], tmp_path: Path) -> None:
    model = model_of(options)
    heads = open_checkpoint(save_model(model, tmp_path)).heads()
    x = heads.W_E[TOKENS]
    if options.get("positions") in ("learned", "sinusoidal"):
        x = x + heads.W_pos[:11]
    torch.testing.assert_close(x, model.embed(TOKENS))
    norm = heads.norm(0)
    if options.get("norm") != "none":
        scale = x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x
        scale = scale / (scale.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        x = scale * norm.gain + (0 if norm.bias is None else norm.bias)
    torch.testing.assert_close(x, model.trace(TOKENS).reads[0])
    torch.testing.assert_close(heads.W_U, (model.embed_tokens if options.get("tied") else model.lm_head).weight.T)


@by_shape
def test_no_tensor_of_a_checkpoint_is_overlooked(options: dict[str, object], tmp_path: Path) -> None:
    stored = open_checkpoint(save_model(model_of(options), tmp_path)).stack()
    assert stored.unclaimed() == []
    assert stored.missing() == []


def test_every_lens_but_none_runs_on_learned_positions(tmp_path: Path) -> None:
    model = opened(save_model(model_of(SHAPES["learned-rms-mlp"]), tmp_path))
    found = model.skip_reasons()
    assert {reason for name, reason in found.items() if not lenses()[name].runs} == {None}
    reasons = {reason for name, reason in found.items() if lenses()[name].runs}
    assert len(reasons) == 1
    assert str(*reasons).startswith("transformers does not know models of the lab; headspan train runs them")
    for name in ("ranks", "affinity", "positions", "spectra"):
        assert lenses()[name].function(model).table() is not None


def test_a_checkpoint_opens_where_transformers_is_absent(tmp_path: Path) -> None:
    save_model(model_of({}), tmp_path)
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        f"import headspan; print(tuple(headspan.open({str(tmp_path)!r}).heads().W_Q.shape))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "(2, 1, 16, 16)"


def test_a_saved_model_comes_back_the_same(tmp_path: Path) -> None:
    model = LabModel(Architecture(vocabulary=20, length=12, d_model=16), seed=3)
    again = open_model(save_model(model, tmp_path))
    assert again.shape == model.shape
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_weights_of_another_configuration_are_refused(tmp_path: Path) -> None:
    save_model(LabModel(Architecture(vocabulary=20, length=12, d_model=16)), tmp_path / "a")
    save_model(LabModel(Architecture(vocabulary=22, length=12, d_model=16)), tmp_path / "b")
    (tmp_path / "a" / "model.safetensors").replace(tmp_path / "b" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"another configuration's: tensor 'embed_tokens.weight' needs shape"):
        open_model(tmp_path / "b")


def test_dropout_draws_from_its_own_generator() -> None:
    model = LabModel(Architecture(vocabulary=20, length=12, d_model=16, dropout=0.5))
    state = torch.get_rng_state()
    first, second = (model(TOKENS, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, model(TOKENS, torch.Generator().manual_seed(6)))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_dropped_is_made_up_for_on_average() -> None:
    model = LabModel(Architecture(vocabulary=20, length=12, d_model=16, dropout=0.3))
    ones = torch.ones(200, 500)
    dropped = model._drop(ones, torch.Generator().manual_seed(0))
    assert float(dropped.mean()) == pytest.approx(1.0, abs=4 * (0.3 / 0.7 / ones.numel()) ** 0.5)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"d_model 64 is not divisible by 3 heads; change one or give --set d_head"),
        ({"layers": 0}, r"layers needs to be at least 1, found 0"),
        ({"d_model": 6, "heads": 2}, r"d_head needs to be even, .* found 3"),
        ({"positions": "conical"}, r"positions needs to be one of rotary, .*, none, found 'conical'"),
        ({"dropout": 1.0}, r"dropout needs to be at least 0 and below 1, found 1.0"),
    ],
)
def test_an_impossible_shape_is_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Architecture(**options)  # type: ignore[arg-type]


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    factors = dropout_factors(torch.Size([100, 333]), 0.3, torch.Generator().manual_seed(0))
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((factors == 0).double().mean()) == pytest.approx(0.3, abs=4 * (0.21 / factors.numel()) ** 0.5)
    pairs = (factors[:, 1:] == 0) & (factors[:, :-1] == 0)  # neighbors come of one draw, and are independent
    assert float(pairs.double().mean()) == pytest.approx(0.09, abs=0.01)
    assert float(dropout_factors(torch.Size([64]), 0.999999, torch.Generator().manual_seed(0)).max()) >= 0


def test_alibi_takes_a_multiple_of_the_offset_from_each_logit() -> None:
    terms = alibi_terms(5, 4)
    assert terms[:, 4, 1].tolist() == [-3 * slope for slope in (1 / 4, 1 / 16, 1 / 64, 1 / 256)]
    assert (terms[:, 1, 1] == 0).all()


def test_relative_offsets_have_a_bucket_each_up_to_half_and_share_the_last_beyond_training() -> None:
    first = offset_buckets(200, 64)[:, 0]
    assert first[:16].tolist() == list(range(16))
    assert (np.diff(first) >= 0).all()
    assert first[63] == 31
    assert (first[64:] == 31).all()
    assert offset_buckets(12, 8)[7, 0] == 7


def test_sines_go_on_beyond_the_trained_length_and_are_not_trained() -> None:
    model = model_of(SHAPES["sines"])
    assert "embed_positions.weight" not in dict(model.named_parameters())
    torch.testing.assert_close(model.embed_positions.weight, model.sines(12).double())
    longer = torch.zeros(1, 30, dtype=torch.int64)
    torch.testing.assert_close((model.embed(longer) - model.embed_tokens(longer))[0, 29], model.sines(30)[29].double())


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative", "none"])
@torch.no_grad()
def test_only_offsets_count_where_positions_are_not_added_to_tokens(scheme: str) -> None:
    model = model_of({"positions": scheme, "layers": 1})
    repeated = torch.full((1, 9), 3)
    scores = model.trace(repeated).scores[0, 0, 0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1])
    assert bool((scores[8, :8] == scores[8, 0]).all()) == (scheme == "none")


def test_heads_as_wide_as_the_stream_are_compared_by_their_leading_directions(tmp_path: Path) -> None:
    model = model_of({})
    with torch.no_grad():
        model.stack[1].self_attn.k_proj.weight[:] = model.stack[0].self_attn.o_proj.weight.T
    whole = headspan.affinity(str(save_model(model, tmp_path)), progress=False).findings
    assert whole[0].statement.startswith("The projection kernel compares nothing here")
    assert len(whole) == 1
    cut = headspan.affinity(str(tmp_path), tolerance=0.5, progress=False)
    assert "is the strongest K-composition" in cut.findings[1].statement
    pair = {name: cut[name].to_dataset().sel(src="L0H0", dst="L1H0", null="haar") for name in ("OQ", "OK")}
    assert float(pair["OK"]["projection_kernel"]) == pytest.approx(int(pair["OK"]["dst_rank"]))
    assert float(pair["OK"]["projection_kernel_z"]) > 5
    assert abs(float(pair["OQ"]["projection_kernel_z"])) < 4
