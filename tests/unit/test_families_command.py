"""`headspan families`."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from headspan.checkpoint.families import FAMILIES, catalog
from headspan.cli.main import app


def test_every_family_is_listed_once() -> None:
    result = CliRunner().invoke(app, ["families", "--json"])
    document = json.loads(result.stdout)
    assert document["schema"] == "headspan.families/1"
    assert [row["model_type"] for row in document["families"]] == sorted(FAMILIES)


def test_the_list_says_what_sets_families_apart() -> None:
    facts = {row.model_type: row for row in catalog()}
    assert facts["gpt2"].layout == "fused, side by side"
    assert facts["gpt_neox"].layout == "fused, head by head"
    assert facts["codegen"].layout == "fused, 4 blocks"
    assert facts["deepseek_v3"].layout == "latent"
    assert facts["llama"].layout == "separate"
    assert (facts["llama"].grouped, facts["gpt2"].grouped, facts["falcon"].grouped) == ("yes", "no", "yes")
    assert facts["gemma2"].norm == "RMSNorm before and after"
    assert facts["olmo"].norm == "LayerNorm, bare, before"
    assert facts["gptj"].positions == "rotary, 64 of 256, neighbors"
    assert facts["gemma3_text"].positions == "rotary, by layer"
    assert facts["gpt_oss"].besides == "sinks, experts"
    assert facts["t5"].stacks == "encoder, decoder, cross"


def test_the_table_on_a_terminal_names_every_family() -> None:
    result = CliRunner().invoke(app, ["families"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert all(model_type in result.stdout for model_type in FAMILIES)
