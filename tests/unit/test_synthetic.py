"""Checkpoints that are made from a seed."""

from __future__ import annotations

import pytest
import torch

import headspan
from headspan.checkpoint import open_checkpoint, summary
from headspan.checkpoint.synthetic import SHAPES, Planted
from headspan.checkpoint.synthetic.store import STANDARD_DEVIATION
from headspan.dims import HeadLabel
from headspan.errors import ArgumentError, CheckpointError, HeadspanError, UnsupportedModel
from headspan.lenses.affinity.wiring import edges


def tensor(checkpoint: headspan.Checkpoint, name: str) -> torch.Tensor:
    return checkpoint.store.read([name])[name]


QUERY = "model.layers.2.self_attn.q_proj.weight"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_named_shape_opens_at_once_and_lacks_nothing(shape: str) -> None:
    checkpoint = headspan.synthetic(shape)
    facts = summary(checkpoint).stacks[0]
    assert facts.missing == []
    assert facts.unclaimed == []


@pytest.mark.parametrize(("shape", "billions"), [("gpt2", 0.12444), ("mistral-7b", 7.24), ("llama-70b", 68.98)])
def test_a_named_shape_has_the_parameters_of_the_model_it_is_named_after(shape: str, billions: float) -> None:
    assert summary(headspan.synthetic(shape)).n_parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def test_a_tensor_does_not_depend_on_what_was_read_before_it() -> None:
    first, second = headspan.synthetic("tiny", seed=4, planted=2), headspan.synthetic("tiny", seed=4, planted=2)
    for name in second.store.infos:
        second.store.read([name])
    assert torch.equal(tensor(first, QUERY), tensor(second, QUERY))


def test_seeds_and_tensors_differ() -> None:
    one, other = headspan.synthetic("tiny", seed=1), headspan.synthetic("tiny", seed=2)
    assert not torch.equal(tensor(one, QUERY), tensor(other, QUERY))
    assert not torch.equal(tensor(one, QUERY), tensor(one, QUERY.replace("2", "1")))
    assert one.store.content_hash() != other.store.content_hash()


def test_entries_are_normal_with_the_stated_deviation() -> None:
    values = tensor(headspan.synthetic("tiny"), QUERY).double().flatten() / STANDARD_DEVIATION
    assert float(values.mean()) == pytest.approx(0, abs=4 / len(values) ** 0.5)
    assert float(values.square().mean()) == pytest.approx(1, abs=4 * (2 / len(values)) ** 0.5)
    assert float(values.pow(4).mean()) == pytest.approx(3, abs=4 * (96 / len(values)) ** 0.5)


def test_the_source_names_the_same_model_again() -> None:
    for checkpoint in (
        headspan.synthetic("tiny", seed=5, planted=2, strength=5.0),
        headspan.synthetic("tiny", seed=5, planted=["L0H1-L2H3:OQ:6", "L0H2-L3K1:OV:4"], layers=5),
    ):
        again = open_checkpoint(checkpoint.source)
        assert again.store.content_hash() == checkpoint.store.content_hash()
        assert all(torch.equal(tensor(again, name), tensor(checkpoint, name)) for name in again.store.infos)


@pytest.mark.parametrize("shape", ["tiny", "gpt2"])
def test_a_planted_pair_has_the_kernel_that_was_asked_for_and_the_rest_the_expected_one(shape: str) -> None:
    planted = [Planted(HeadLabel(0, 1), HeadLabel(2, 3), "OQ", 6.0), ("L1H0", "L3H2", "OK", 9.5), "L0H1-L3H6:OV:3"]
    checkpoint = headspan.synthetic(shape, planted=planted, seed=1)
    result = headspan.affinity(checkpoint.heads(layers=range(4)), metrics="pk")
    for pair in map(Planted.of, planted):
        table = edges(result, pair.pairing)
        best, rest = table.iloc[0], table["score"][1:]
        mean, sd = (float(result[pair.pairing][f"projection_kernel_{name}_null"]) for name in ("mean", "sd"))
        assert (best["src"], best["dst"][:2]) == (str(pair.src), f"L{pair.dst.layer}")
        assert best["score"] == pytest.approx(mean + pair.strength, abs=6 * sd)
        assert rest.max() < mean + 6 * sd
        assert rest.mean() == pytest.approx(mean, abs=6 * sd / len(rest) ** 0.5 + 0.02)


def test_drawn_pairs_are_as_many_as_asked_for_and_use_no_head_twice() -> None:
    pairs = headspan.synthetic("gpt2", planted=7, seed=2).store.planted  # type: ignore[attr-defined]
    assert [sum(pair.pairing == pairing for pair in pairs) for pairing in ("OQ", "OK", "OV")] == [7, 7, 7]
    assert len({pair.src for pair in pairs}) == len(pairs)
    assert all(pair.src.layer < pair.dst.layer for pair in pairs)


def test_a_shape_may_be_a_config_of_any_plain_family() -> None:
    config = {**SHAPES["tiny"], "model_type": "gemma", "num_key_value_heads": 1}
    heads = headspan.synthetic(config, seed=3).heads(fold="layernorm")
    plain = heads.refolded("none")
    assert torch.equal(heads.W_Q, plain.W_Q)  # gains are 1 once Gemma's offset is added


def test_a_synthetic_model_runs() -> None:
    pytest.importorskip("transformers")
    from headspan.runtime import open_runnable

    running = open_runnable(headspan.synthetic("tiny"))
    assert running.module.config.num_hidden_layers == 4


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("synthetic:huge", "no synthetic shape 'huge'; shapes are tiny, gpt2"),
        ("synthetic:tiny?size=3", "'size' is no option"),
        ("synthetic:tiny?seed=one", "invalid literal.*write synthetic:tiny"),
        ("synthetic:tiny?planted=L0H1", "is not a planted pair"),
        ("synthetic:tiny?planted=L0H1-L2H1:OQ:much", "strength is a number"),
        ("synthetic:tiny?planted=L2H1-L0H1:OQ:2", "needs an earlier and a later layer"),
        ("synthetic:tiny?planted=L0H1-L2H1:QK:2", "needs one of the pairings OQ, OK, OV"),
        ("synthetic:tiny?planted=L0H1-L2H1:OQ:40", "needs a strength above 0"),
        ("synthetic:tiny?planted=L0H1-L2H1:OQ:20,L0H1-L3H1:OQ:20", "taken by other pairs"),
        ("synthetic:tiny?planted=900", "900 planted pairs for each pairing do not fit"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(source: str, problem: str) -> None:
    with pytest.raises(HeadspanError, match=problem):
        open_checkpoint(source)


def test_families_with_more_than_plain_attention_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="one stack of plain attention"):
        headspan.synthetic({**SHAPES["tiny"], "model_type": "qwen3"})


def test_a_head_that_does_not_exist_cannot_be_planted() -> None:
    with pytest.raises(ArgumentError, match=r"heads 0\.\.3"):
        headspan.synthetic("tiny", planted=["L0H1-L2K4:OK:2"])
    with pytest.raises(CheckpointError, match="no synthetic shape"):
        headspan.synthetic("gpt5")
