"""Negative control of channels, wiring, vocabulary and relations: untrained models of several families and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import headspan
from headspan.lenses.wiring.graph import relations

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
SHAPE = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
WIDE = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 128, **SHAPE}
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(n_embd=64, n_layer=4, n_head=8, n_positions=32, **SHAPE),
    "llama": lambda: transformers.LlamaConfig(num_key_value_heads=4, max_position_embeddings=32, **WIDE),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(max_position_embeddings=32, **WIDE),
    "bert": lambda: transformers.BertConfig(max_position_embeddings=32, **WIDE),
}
SEEDS = (0, 1)
LEVEL, PAIRS = 0.05, 30


def untrained(family: str, seed: int) -> headspan.Model:
    torch.manual_seed(seed)
    config = CONFIGS[family]()
    kind = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    return headspan.open(kind.from_config(config))


def discoveries(model: headspan.Model, pairs: Path, seed: int) -> Iterator[bool]:
    """Of every family of tests that is corrected together, whether anything in it is significant."""
    result = headspan.channels(model, seed=seed, vocabulary=False)
    yield from (int(result[pairing].n_significant[0]) > 0 for pairing in ("OQ", "OK", "OV"))
    result = headspan.wiring(model)
    yield from (int(result[name].n_significant[0]) > 0 for name in relations(result) if int(result[name].n_edges))
    result = headspan.vocabulary(model, relations=pairs, draws=300, seed=seed)
    yield from ((result[kind].top_mass_q < LEVEL).any() for kind in ("OV", "QK", "MLP", "W_U") if kind in result)
    yield from ((result["copying"][f"{name}_q"] < LEVEL).any() for name in ("copying", "matching"))
    yield from ((result["relations"][f"{name}_q"] < LEVEL).any() for name in ("relation_score", "beyond"))


def test_untrained_models_give_nothing_beyond_the_false_discovery_rate(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("relation,left,right\n" + "".join(f"shift,#{k + 5},#{k + 105}\n" for k in range(PAIRS)))
    found = {
        (family, seed): [bool(one) for one in discoveries(untrained(family, seed), pairs, seed)]
        for family in CONFIGS
        for seed in SEEDS
    }
    every = np.concatenate(list(found.values()))
    assert len(every) > 100
    # Each family of tests has a discovery with probability 5 % at most: more than this many in one of 1,000 such tests.
    assert every.sum() <= stats.binom.ppf(0.999, len(every), LEVEL), found
