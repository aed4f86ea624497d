"""The negative control of a report's first screen: untrained models of three families, on which nothing stands out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import headspan
from headspan.explorer.findings_section import NOTHING
from headspan.explorer.reports import write_report

SHAPE = {"vocab_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 128}
WIDE = {**SHAPE, "intermediate_size": 256, "max_position_embeddings": 128}


def untrained(family: str, seed: int) -> transformers.PreTrainedModel:
    """A model as its library initializes it: 4 layers of 8 heads."""
    torch.manual_seed(seed)
    if family == "gpt2":
        config = transformers.GPT2Config(**SHAPE, n_positions=128, bos_token_id=1, eos_token_id=2)
        return transformers.GPT2LMHeadModel(config).eval()
    if family == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**WIDE, num_key_value_heads=4)).eval()
    return transformers.BertForMaskedLM(transformers.BertConfig(**WIDE)).eval()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_nothing_stands_out_of_untrained_weights(family: str, tmp_path: Path) -> None:
    page = write_report(headspan.open(untrained(family, 0)), tmp_path / "untrained.html").read_text(encoding="utf-8")
    opening = page[page.index('<section class="opening"') : page.index("</section>")]
    assert NOTHING in opening
    assert "<li>" not in opening
