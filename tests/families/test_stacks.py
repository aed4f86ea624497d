"""What users do with any family: lenses, folding, several stacks, shared layers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from headspan.checkpoint import open_checkpoint, summary
from headspan.errors import ArgumentError, FoldError, MissingTensor, UnsupportedModel
from headspan.lenses.affinity import affinity
from headspan.lenses.catalog import lenses
from headspan.lenses.gaussian.measurement import measure as measure_gaussian
from headspan.lenses.model import open_model
from headspan.lenses.run import run as run_lens
from headspan.lenses.similarity import similarity
from headspan.runtime import RunnableModel, open_runnable
from tests.families.proof import read, run
from tests.families.tiny_models import CASES, Case, by_family

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@by_family
def test_every_lens_that_applies_computes(case: Case) -> None:
    checkpoint = open_checkpoint(case.model())
    for name in checkpoint.stacks:
        model = open_model(checkpoint)
        reasons = model.skip_reasons(name)
        assert reasons["ranks"] is None
        for own, reason in reasons.items():
            lens = lenses()[own]
            # Lenses that run the model have tests of their own, family by family, in tests/runtime.
            if reason is None and lens.reads_weights_alone and not lens.on_request:
                result = run_lens(lens, [model], lens.series_options, {"stack": name})
                assert result.attrs["stack"] == name


@by_family
def test_the_gaussian_lens_computes_or_says_why_not(case: Case) -> None:
    checkpoint = open_checkpoint(case.model())
    for name in checkpoint.stacks:
        heads, reason = checkpoint.heads(stack=name), open_model(checkpoint).skip_reasons(name)["gaussian"]
        if reason is not None:
            continue
        try:
            running: RunnableModel | str = open_runnable(checkpoint, stack=name, dtype="float64")
        except UnsupportedModel as problem:
            running = str(problem)
        if isinstance(running, RunnableModel) and "num_experts_per_tok" in case.settings:
            # Mixtures of experts have no grouped product in float64.
            running.module.set_experts_implementation("eager")
        options = {"running": running, "sequences": 4, "length": 8}
        if heads.stack.apart:
            with pytest.raises(UnsupportedModel, match="latent attention"):
                measure_gaussian(heads, **options)
        elif isinstance(running, RunnableModel):
            result = measure_gaussian(heads, **options)
            assert result["layer"].values.tolist() == list(heads.layers)
            assert bool(np.isfinite(result["entropy"]).all())
        else:
            # What stands before layer 0 is described for some of these families only.
            with suppress(UnsupportedModel):
                assert measure_gaussian(heads, **options)["layer"].values.tolist() == [0]


@by_name
def test_folding_a_norm_changes_no_query(case: Case) -> None:
    model, checkpoint = case.model(), open_checkpoint(case.model())
    for name, stored in checkpoint.stacks.items():
        stack = stored.stack
        if stack.norm_place == "after" and stack.write_norm is None:
            with pytest.raises(FoldError, match="applies its norm after the attention"):
                checkpoint.heads(stack=name, fold="layernorm")
            continue
        plain, folded = checkpoint.heads(stack=name), checkpoint.heads(stack=name, fold="layernorm")
        for layer, seen in enumerate(run(model, name, case.inputs(), checkpoint)):
            ours, theirs = folded.layer(layer), plain.layer(layer)
            norm = plain.norm(layer)
            z = (
                seen.x
                if stack.norm_place == "after"
                else (seen.x - (0 if norm.bias is None else norm.bias)) / norm.gain
            )
            torch.testing.assert_close(read(z, ours.W_Q[0], ours.b_Q), read(seen.x, theirs.W_Q[0], theirs.b_Q))


@pytest.mark.parametrize("name", ["gemma2", "gemma3_text", "olmo2"])
def test_folding_a_norm_of_the_output_leaves_its_direction(name: str) -> None:
    case = named(name)
    model, checkpoint = case.model(), open_checkpoint(case.model())
    folded, modules = checkpoint.heads(fold="layernorm"), dict(model.named_modules())
    for layer, seen in enumerate(run(model, "decoder", case.inputs(), checkpoint)):
        values = read(seen.x, checkpoint.heads().layer(layer).W_V[0], None)
        values = values.repeat_interleave(folded.n_heads // folded.n_kv_heads, dim=1)
        ours = torch.einsum("nhqk,nhkv,hvd->nqd", seen.pattern, values, folded.layer(layer, "O").W_O[0])
        theirs = modules[f"layers.{layer}.post_attention_layernorm"](seen.output).detach()
        cosines = torch.nn.functional.cosine_similarity(ours, theirs, dim=-1)
        torch.testing.assert_close(cosines, torch.ones_like(cosines), atol=1e-6, rtol=0)


def test_folding_in_cross_attention_uses_the_norm_of_the_encoders_output() -> None:
    case = named("whisper")
    model, checkpoint = case.model(), open_checkpoint(case.model())
    plain, folded = checkpoint.heads(stack="cross"), checkpoint.heads(stack="cross", fold="layernorm")
    norm = dict(model.named_modules())["encoder.layer_norm"]
    for layer, seen in enumerate(run(model, "cross", case.inputs(), checkpoint)):
        z = ((seen.memory - norm.bias) / norm.weight).detach()
        for role in ("K", "V"):
            ours, theirs = folded.layer(layer), plain.layer(layer)
            torch.testing.assert_close(
                read(z, ours.weight(role)[0], ours.bias(role)),
                read(seen.memory, theirs.weight(role)[0], theirs.bias(role)),
            )


def test_centring_is_refused_where_a_layer_reads_without_a_norm() -> None:
    checkpoint = open_checkpoint(named("modernbert").model())
    with pytest.raises(FoldError, match="layer 0 of a modernbert reads the stream without a norm"):
        checkpoint.heads(fold="layernorm", center=True)


def test_a_model_with_several_stacks_wants_one_named() -> None:
    checkpoint = open_checkpoint(named("t5").model())
    assert list(checkpoint.stacks) == ["encoder", "decoder", "cross"]
    with pytest.raises(
        ArgumentError, match="no stack was named; this t5 has: encoder, decoder, cross; name one with --stack"
    ):
        checkpoint.heads()
    with pytest.raises(ArgumentError, match="there is no stack 'vision'"):
        checkpoint.heads(stack="vision")


def test_a_decoder_saved_alone_opens_without_its_encoder() -> None:
    model = named("bart").model()
    alone = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("encoder.")}
    assert list(open_checkpoint((alone, model.config)).stacks) == ["decoder", "cross"]


def test_cross_attention_compares_only_what_lives_in_one_stream() -> None:
    checkpoint = open_checkpoint(named("t5").model())
    heads = checkpoint.heads(stack="cross")
    assert list(affinity(heads, draws=2).data.children) == ["OQ"]
    everything = set(affinity(heads, pairings="all", draws=2).data.children)
    assert everything == {"QQ", "QO", "OQ", "OO", "KK", "KV", "VK", "VV"}
    with pytest.raises(ArgumentError, match="OK would compare the two"):
        affinity(heads, pairings="OQ,OK", draws=2)
    with pytest.raises(UnsupportedModel, match="queries and keys of cross-attention read different streams"):
        similarity(heads)
    assert (
        open_model(checkpoint).skip_reasons("cross")["similarity"]
        == "queries and keys of cross-attention read different streams"
    )
    assert open_model(checkpoint).skip_reasons("decoder")["similarity"] is None


def test_shared_layers_count_once_and_are_said_to_be_repeated() -> None:
    checkpoint = open_checkpoint(named("albert").model())
    (stack,) = summary(checkpoint).stacks
    assert stack.n_layers == 1
    counted = "each is counted once, and the wiring is that of the passes"
    assert stack.notes == [f"the model runs through these layers 6 times; {counted}"]
    assert open_model(checkpoint).skip_reasons()["affinity"] is None


def test_sinks_let_a_row_of_a_pattern_sum_to_less_than_one() -> None:
    case = named("gpt_oss")
    model, checkpoint = case.model(), open_checkpoint(case.model())
    (seen, *_) = run(model, "decoder", case.inputs(), checkpoint)
    sums = seen.pattern.sum(-1)
    assert sums.max() < 1 - 1e-6
    assert sums.mean() < 0.95
    assert checkpoint.heads().sinks(0) is not None
    assert open_checkpoint(named("llama").model()).heads().sinks(0) is None


def test_the_parts_that_positions_turn_are_kept_apart_in_latent_attention() -> None:
    heads = open_checkpoint(named("deepseek_v3").model()).heads()
    apart = heads.rotary_parts(0)
    assert apart is not None
    assert apart.W_Q.shape == (1, 4, 24, 4)
    assert apart.W_K.shape == (1, 1, 24, 4)
    assert (heads.d_head, heads.d_value) == (5, 7)
    assert open_checkpoint(named("llama").model()).heads().rotary_parts(0) is None


def test_effective_keys_of_latent_attention_have_at_most_the_rank_of_the_latent() -> None:
    heads = open_checkpoint(named("deepseek_v3").model()).heads()
    side_by_side = torch.cat(list(heads.W_K[0]), dim=-1)
    assert int(torch.linalg.matrix_rank(side_by_side)) == 8
    assert side_by_side.shape == (24, 20)


def test_layers_of_one_model_may_turn_at_different_speeds() -> None:
    heads = open_checkpoint(named("gemma3_text").model()).heads()
    assert [record.theta for record in heads.stack.rotary] == [1e4, 1e4, 1e6]


def test_a_family_without_an_unembedding_says_so() -> None:
    with pytest.raises(MissingTensor, match="has no unembedding"):
        _ = open_checkpoint(named("electra").model(head=True)).heads().W_U


def test_wide_values_do_not_disturb_the_composition_scores(tmp_path: Path) -> None:
    heads = open_checkpoint(named("deepseek_v3").model()).heads()
    result = affinity(heads, draws=2)
    scores = result["OV"]["composition_score"]
    block = [heads.layer(layer) for layer in range(2)]
    M = block[0].W_V[0, 1] @ block[0].W_O[0, 1]
    N = block[1].W_V[0, 2] @ block[1].W_O[0, 2]
    expected = torch.linalg.norm(M @ N) / torch.linalg.norm(M) / torch.linalg.norm(N)
    np.testing.assert_allclose(scores.sel(src="L0H1", dst="L1H2"), float(expected), rtol=1e-9)
