"""Geometry held against behavior: what algebra forces is found, what chance gives is not taken for more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from transformers import AutoConfig, AutoModelForCausalLM
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import ArgumentError
from headspan.lenses.catalog import lenses
from headspan.lenses.validate import validate
from headspan.lenses.validate.invariance import invariances, pattern_divergences
from headspan.result import Result
from headspan.runtime import RunnableModel, forward, open_runnable
from headspan.runtime.buffers import token_buffers
from headspan.runtime.forward_pass import full_logs
from headspan.storage import write_netcdf
from tests.families.tiny_models import CASES, TOKENS
from tests.runtime.test_forward import runnable

BY_NAME = {case.name: case for case in CASES}
FEW = {"count": 1, "length": 10, "strong": 2, "random": 2, "group": 4, "permutations": 99}


def random_model(seed: int) -> RunnableModel:
    """A model of three layers whose weights are independent of one another."""
    torch.manual_seed(seed)
    size = {"vocab_size": 50, "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 32}
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **size, bos_token_id=0, eos_token_id=None))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return open_runnable(module)


@pytest.fixture(scope="module")
def result() -> Result:
    return validate(random_model(0), buffers="repeated", **FEW)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gpt2", "bloom", "llama", "falcon-new-grouped", "bert", "qwen3", "gpt_neox"])
def test_heads_are_blind_to_their_null_spaces_and_to_nothing_else(name: str) -> None:
    model = runnable(BY_NAME[name])
    found = invariances(model, TOKENS, 0, lambda step: None)
    for role in ("query", "key"):
        assert found[f"{role}_null"].max() < 1e-6, role
        assert found[f"{role}_read"].min() > 1e-2, role
    # A common shift survives the softmax only where keys are turned or normed before they are used.
    turned = model.stack.positions == "rotary" or model.stack.key_norm is not None
    assert (found["key_common_softmax"].max() > 1e-3) == turned
    assert found["key_common"].min() > 1e-3


def test_divergences_of_patterns_are_those_of_scipy() -> None:
    from scipy.spatial.distance import jensenshannon

    run = forward(runnable(BY_NAME["gpt2"]), TOKENS)
    ours = pattern_divergences(run, 1)
    rows = full_logs(run.runs[1]).exp().numpy()[:, :, 1:]
    theirs = (jensenshannon(rows[:, 0], rows[:, 2], axis=-1) ** 2).mean()
    assert float(ours[0, 2]) == pytest.approx(float(theirs), rel=1e-6)
    assert torch.equal(ours, ours.T)


def test_tests_of_cause_come_with_the_untrained_value_beside_them(result: Result) -> None:
    for name, value in (("contrasts", "ratio"), ("rankings", "spearman")):
        table = result.table(name)
        known = table.dropna(subset=value)
        assert known[f"{value}_untrained"].notna().all()
        assert ((known["null_low"] <= known[value]) | (known[f"{value}_p"] < 0.1)).all()
        assert table[(table["pairing"] == "OV") & (table["outcome"] == "pattern_change")][value].isna().all()
    for finding in result.findings:
        if "read energy" in finding.statement:
            assert "(untrained " in finding.statement
    ours, twin = (result[node] for node in ("cause", "untrained"))
    assert set(ours.data_vars) == set(twin.data_vars)
    assert not np.isin(ours["projection_kernel"], twin["projection_kernel"]).any()


@pytest.mark.slow
def test_random_weights_are_told_to_have_no_effect() -> None:
    """The former control took away what the target cannot read, and every model "responded" 4 to 9 times as much."""
    found = validate(random_model(2), buffers="repeated", **FEW)  # type: ignore[arg-type]
    told = [finding.statement for finding in found.findings if "read energy" in finding.statement]
    assert len(told) == 6
    assert all("does not" in statement for statement in told)


def test_causes_of_older_files_are_left_out(result: Result, tmp_path: Path) -> None:
    tree = result.data.copy()
    cause = tree["cause"].to_dataset().assign(pattern_control=tree["cause"]["pattern_change"])
    nodes = {"/": tree.to_dataset().assign_attrs(schema="headspan.validate/2"), "/cause": cause}
    write_netcdf(xr.DataTree.from_dict({**nodes, "/distance": tree["distance"].to_dataset()}), tmp_path / "old.nc")
    old = headspan.load(tmp_path / "old.nc")
    assert set(old.data.children) == {"distance"}
    assert old.findings


def test_the_same_seed_gives_the_same_result(result: Result) -> None:
    again = validate(random_model(0), buffers="repeated", **FEW)  # type: ignore[arg-type]
    for name in ("invariance", "distance", "cause", "untrained", "contrast", "ranking"):
        xr.testing.assert_identical(again.dataset(name), result.dataset(name))


def test_what_does_not_apply_is_said_and_the_rest_is_done() -> None:
    found = validate(runnable(BY_NAME["bert"]), **FEW)  # type: ignore[arg-type]
    assert set(found.data.children) == {"invariance", "distance"}
    assert "reads no norm" in found.attrs["cause_obstacle"]
    assert found.attrs["buffers"] == "repeated"
    latent = validate(runnable(BY_NAME["deepseek_v2"]), buffers="repeated", **FEW)  # type: ignore[arg-type]
    assert "latent" in latent.attrs["invariance_obstacle"]
    assert set(latent.data.children) == {"distance"}
    assert all(finding.statement for each in (found, latent) for finding in each.findings)
    assert set(found.figures) == {"Distance against behavior"}


def test_findings_and_figures_tell_every_question(result: Result) -> None:
    said = " ".join(finding.statement for finding in result.findings)
    for words in ("12 of 12 heads are blind", "invisible after the softmax", "attend more alike", "equal read energy"):
        assert words in said
    drawn = result.figures
    assert list(drawn) == ["Distance against behavior", "Affinity against causal effect", "How scores rank effects"]
    first = drawn["Distance against behavior"].data[0]
    np.testing.assert_allclose(first.y[0], float(result["distance"]["pattern_divergence"].sel(head="L0H0", peer=1)))


def test_json_holds_everything(result: Result) -> None:
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["schema"] == "headspan.validate/3"
    assert {"pairs", "contrasts", "rankings", "untrained", "heads", "layers", "provenance"} <= set(document)
    assert len(document["pairs"]) == result["cause"].sizes["pair"]
    assert document["heads"][0]["head"] == "L0H0"


def test_sampled_buffers_follow_the_model_and_never_end_early(stories: Path) -> None:
    model = open_runnable(stories)
    kind, tokens = token_buffers(model, None, 3, 24, seed=1)
    assert (kind, tuple(tokens.shape)) == ("sampled", (3, 24))
    assert not bool((tokens[:, 1:] == 2).any())
    assert forward(model, tokens).loss() < 3.0
    assert torch.equal(token_buffers(model, "sampled", 3, 24, seed=1)[1], tokens)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"buffers": "nonsense"}, "it is sampled or repeated"),
        ({"count": 0}, "count = 0 is too few"),
        ({"length": 2}, "length = 2 is at least 4"),
        ({"group": 1}, "group = 1 is too few; it is at least 2"),
        ({"permutations": 3}, "permutations = 3 at least 99"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        validate(random_model(0), **options)


def test_the_command_prints_findings_and_json(tmp_path: Path) -> None:
    options = ["--buffers", "repeated", "--count", "1", "--length", "16", "--strong", "2", "--random", "1"]
    options += ["--group", "3", "--permutations", "99"]
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["validate", "demo", *options, "-o", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "heads are blind" in shown.output
    assert page.stat().st_size > 10_000
    told = CliRunner().invoke(app, ["validate", "demo", *options, "--json"])
    assert json.loads(told.stdout)["schema"] == "headspan.validate/3"


def test_a_report_leaves_it_out_unless_asked() -> None:
    assert lenses()["validate"].on_request == "takes minutes"
