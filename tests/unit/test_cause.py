"""Causes at equal read energy: nothing in untrained weights, something where a pair was planted or learned."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import headspan
from headspan.dims import HeadLabel
from headspan.lenses.affinity import affinity
from headspan.lenses.validate.cause import causal_effects
from headspan.lenses.validate.contrast import Term, additive_fit, contrasts, permuted_mean, rankings, rest_weights
from headspan.lenses.validate.selection import SCORES, chosen_blocks
from headspan.runtime import RunnableModel, forward, open_runnable
from headspan.runtime.buffers import token_buffers
from headspan.runtime.interventions import Edits, intervened
from headspan.runtime.interventions.ablation import reading_matrix
from headspan.runtime.interventions.edits import head_weight
from headspan.runtime.interventions.messages import NormedStream, WithoutMessage, arriving_message
from headspan.runtime.untrained import untrained_twin

LLAMA = ["hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "intermediate_size"]
SHAPES: dict[str, dict[str, int]] = {
    "gpt2": {"n_embd": 48, "n_head": 6, "n_layer": 2, "n_positions": 32},
    "llama": dict(zip(LLAMA, (64, 8, 4, 2, 96), strict=True)),
    "planted": dict(zip(LLAMA, (64, 8, 8, 2, 96), strict=True)),
    "modernbert": dict(zip(LLAMA, (48, 6, 6, 2, 60), strict=True)) | {"cls_token_id": 1, "sep_token_id": 2},
}
SEEDS = 3


def untrained(family: str, seed: int, scale: float | None = None) -> RunnableModel:
    """A model as its family initializes it, or with matrices of independent normal numbers of a larger scale."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        "llama" if family == "planted" else family,
        vocab_size=50,
        pad_token_id=3,
        bos_token_id=0,
        eos_token_id=None,
        **SHAPES[family],
    )
    module = (AutoModel if family == "modernbert" else AutoModelForCausalLM).from_config(config)
    if scale is not None:
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.ndim == 2:
                    parameter.copy_(scale * torch.randn_like(parameter))
    return open_runnable(module)


def effects_of(model: RunnableModel, strong: int = 5, random: int = 3, length: int = 16) -> pd.DataFrame:
    tokens = token_buffers(model, "repeated", 2, length, 0)[1]
    blocks = chosen_blocks(affinity(model.heads()), strong, random, 8, 0)
    return causal_effects(forward(model, tokens), blocks, lambda step: None)


@pytest.mark.parametrize(("family", "scale"), [("gpt2", None), ("gpt2", 0.2), ("llama", None), ("modernbert", None)])
def test_untrained_weights_show_no_effect_of_affinity(family: str, scale: float | None) -> None:
    logs, correlations, p_values = [], [], []
    for seed in range(SEEDS):
        effects = effects_of(untrained(family, seed, scale))
        strong, ranked = contrasts(effects, 199, seed), rankings(effects, 199, seed)
        strong = strong[strong["sample"] == "strong over weak"].dropna(subset="ratio")
        ranked = ranked.dropna(subset="spearman")
        logs += np.log(strong[strong["outcome"] == "pattern_change"]["ratio"]).tolist()
        correlations += ranked["spearman"].tolist()
        p_values += [*strong["ratio_p"], *ranked["spearman_p"]]
    # The control of equal energy, most of which was not read, gave ratios of 6 and correlations of +.33 here.
    assert abs(np.mean(logs)) < max(4 * np.std(logs) / np.sqrt(len(logs)), 0.05)
    assert np.exp(np.abs(np.mean(logs))) < 1.3
    assert abs(np.mean(correlations)) < 0.1
    assert np.mean(np.array(p_values) < 0.05) < 0.16


def planted(seed: int) -> tuple[RunnableModel, dict[str, str]]:
    """An untrained model in which five targets' keys carry what one source each writes to where their queries look."""
    model = untrained("planted", seed, 0.1)
    pairs = {"L0H1": "L1H0", "L0H2": "L1H5", "L0H4": "L1H3", "L0H6": "L1H7", "L0H7": "L1H1"}
    edits, looked_at = Edits(model), torch.eye(8)[3]  # the feature that rotary positions turn least
    with torch.no_grad():
        for source, target in pairs.items():
            written = head_weight(edits, "O", 0, HeadLabel.parse(source).head)
            U, _, Vh = torch.linalg.svd(written, full_matrices=False)
            direction, head = Vh[0], HeadLabel.parse(target).head
            written.add_(torch.outer(U[:, 0], direction), alpha=2.0)
            head_weight(edits, "K", 1, head).add_(torch.outer(direction, looked_at), alpha=1.2)
            head_weight(edits, "Q", 1, head).mul_(1.0 + 9.0 * looked_at)
    return open_runnable(model.module), pairs


@pytest.mark.parametrize("seed", [1, 3])
def test_planted_pairs_are_found_and_weak_ones_beside_them_give_the_null(seed: int) -> None:
    model, pairs = planted(seed)
    effects = effects_of(model)
    keys = effects[effects["pairing"] == "OK"]
    own = keys[[pairs.get(src) == dst for src, dst in zip(keys["src"], keys["dst"], strict=True)]]
    assert (own["chosen"] == "strong").all()
    found = contrasts(effects, 499, 0).query("pairing == 'OK' and outcome == 'pattern_change'").set_index("sample")
    assert found.loc["strong", "ratio"] > 2
    assert found.loc["strong", "ratio_q"] < 0.05
    assert found.loc["strong over weak", "ratio_p"] < 0.05
    assert 0.8 < found.loc["weak", "ratio"] < 1.25
    assert found.loc["weak", "ratio_p"] > 0.05
    ranked = rankings(effects, 499, 0).set_index(["pairing", "score", "outcome"])
    assert ranked.loc[("OK", "composition_score", "pattern_change"), "spearman_p"] < 0.05


def test_the_demo_models_bridge_is_a_cause_and_its_untrained_twin_has_none() -> None:
    model = headspan.open("demo").running()
    found = {}
    for name, each in (("demo", model), ("twin", untrained_twin(model))):
        effects = effects_of(each, length=48)
        own = rankings(effects, 499, 0).set_index(["pairing", "score", "outcome"]).sort_index()
        found[name] = own.xs(("OK", "projection_kernel"))
        if each is model:
            bridge = effects[
                (effects["pairing"] == "OK") & (effects["src"] == "L0H3") & (effects["chosen"] == "strong")
            ]
            assert len(bridge) == 5
            over = contrasts(effects, 499, 0).set_index(["pairing", "sample", "outcome"])
            assert over.loc[("OK", "strong over weak", "pattern_change"), "ratio_p"] < 0.05
    assert (found["demo"]["spearman"] > 0.3).all()
    assert (found["demo"]["spearman_q"] < 0.05).all()
    assert (found["twin"]["spearman"].abs() < 0.3).all()


def test_all_messages_are_taken_away_at_the_same_read_energy() -> None:
    model = untrained("gpt2", 0, 0.2)
    tokens = token_buffers(model, "repeated", 2, 12, 0)[1]
    run = forward(model, tokens)
    block = next(each for each in chosen_blocks(affinity(model.heads()), 1, 9, 8, 0) if each.pairing == "OK")
    rows = causal_effects(run, [block], lambda step: None)
    target = block.targets[1]
    own = rows[rows["dst"] == str(target)].set_index("src")
    stream, W = NormedStream.of(run, target.layer), reading_matrix(model, "K", target)
    messages = {str(source): arriving_message(run, stream, source) for source in block.sources}
    energies = [
        float((own.loc[name, "scale"] * message @ W.to(message)).square().sum()) for name, message in messages.items()
    ]
    np.testing.assert_allclose(energies, energies[0], rtol=1e-6)
    assert own["scale"].min() == pytest.approx(1.0)
    # Several sources share a run; alone the effect is the same.
    name = str(block.sources[2])
    with intervened(model, WithoutMessage(target, "K", own.loc[name, "scale"] * messages[name])):
        alone = forward(model, tokens).loss() - run.loss()
    assert own.loc[name, "loss_change"] == pytest.approx(alone, abs=1e-6)


def test_rests_have_neither_source_nor_target_effects() -> None:
    generator = np.random.default_rng(0)
    rows, columns, rest = generator.normal(size=(5, 1)), generator.normal(size=(1, 4)), np.zeros((5, 4))
    rest[2, 1] = 1.7
    picked = rest > 0
    weights, count = rest_weights(picked, ~picked)
    assert count == 1
    assert (weights * (rows + columns + rest)).sum() == pytest.approx(1.7)
    assert np.abs(weights.sum(0)).max() < 1e-12
    fit = additive_fit(rows + columns)
    np.testing.assert_allclose(fit, rows + columns)
    everything = np.ones((5, 4), dtype=bool)
    assert rest_weights(everything, ~everything)[1] == 0


def test_groups_are_permuted_the_same_way_in_all_their_blocks() -> None:
    values = np.arange(6.0).reshape(3, 2)
    term = Term(("a", "b", "c"), ("x", "y"), np.ones((3, 2)), values)
    value, drawn = permuted_mean([term, term], 2, 50, np.random.default_rng(0))
    assert value == pytest.approx(15.0)
    np.testing.assert_allclose(drawn, 15.0)
    weights = np.zeros((3, 2))
    weights[0, 0] = 1.0
    opposite = Term(("a", "b", "c"), ("x", "y"), -weights, values)
    _, drawn = permuted_mean(
        [Term(("a", "b", "c"), ("x", "y"), weights, values), opposite], 1, 50, np.random.default_rng(0)
    )
    np.testing.assert_allclose(drawn, 0.0)


def test_blocks_hold_all_pairs_of_their_groups_and_weak_ones_beside_strong() -> None:
    model = untrained("llama", 0)
    for block in chosen_blocks(affinity(model.heads()), 2, 2, 3, 0):
        assert 2 <= len(block.sources) <= 3
        assert block.scores.shape == (len(SCORES), len(block.sources), len(block.targets))
        assert np.isfinite(block.scores).all()
        for column in range(len(block.targets)):
            kinds = block.chosen[:, column].tolist()
            assert kinds.count("weak") == int(0 < kinds.count("strong") < len(kinds))


def test_a_twin_has_the_same_shape_other_weights_and_leaves_the_generator_alone() -> None:
    model = untrained("gpt2", 0)
    state = torch.random.get_rng_state()
    twin, again = untrained_twin(model, 3), untrained_twin(model, 3)
    assert torch.equal(torch.random.get_rng_state(), state)
    ours, theirs, same = (each.heads().W_Q for each in (model, twin, again))
    assert ours.shape == theirs.shape
    assert not torch.allclose(ours, theirs)
    assert torch.equal(theirs, same)
