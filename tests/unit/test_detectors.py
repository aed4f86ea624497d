"""Detectors find heads made to be found, score chance at chance, and read identity off the weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
import xarray as xr
from typer.testing import CliRunner

import headspan
from headspan.cli.affinity import affinity as affinity_command
from headspan.cli.detect import detect as command
from headspan.demo import demo_folder
from headspan.errors import HeadspanError, ShapeError
from headspan.figures import figures_of
from headspan.findings import findings_of
from headspan.lenses import detect
from headspan.lenses.saving import save_result
from headspan.runtime import RunnableModel, encoded, forward, open_runnable
from headspan.runtime.detectors import (
    DETECTORS,
    repeated_tokens,
    surrounding_tokens,
    target_mass,
    uniform_mass,
)
from headspan.runtime.detectors import detect as scores_of
from tests.families.tiny_models import CASES
from tests.unit.running_models import TEXT, fresh, running

TOKENS = torch.tensor([[5, 3, 5, 3, 7, 5, 5]])


@pytest.fixture(scope="module")
def demo() -> xr.Dataset:
    return detect.compute(open_runnable("demo"))


@pytest.fixture(scope="module")
def encoder() -> xr.Dataset:
    return detect.compute(running("word-piece", causal=False), texts=[TEXT * 12], length=10, seeds=3)


def naive_targets(name: str, tokens: list[int], causal: bool) -> np.ndarray:
    """The definitions, pair by pair."""
    n = len(tokens)
    found = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for j in range(n):
            other = j < i if causal else j != i
            before = (j - 1 < i if causal else j - 1 != i) and j > 0
            found[i, j] = {
                "previous_token": j == i - 1,
                "duplicate_token": other and tokens[i] == tokens[j],
                "induction": before and tokens[j - 1] == tokens[i],
                "identity": i == j > 0,
                "first_token": i > 0 and j == 0,
            }[name]
    return found


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("causal", [True, False])
def test_targets_are_their_definitions(name: str, causal: bool) -> None:
    found = DETECTORS[name](TOKENS, causal)[0].numpy()
    np.testing.assert_array_equal(found, naive_targets(name, TOKENS[0].tolist(), causal))


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("causal", [True, False])
def test_uniform_attention_scores_chance(name: str, causal: bool) -> None:
    n = TOKENS.shape[1]
    allowed = torch.ones(n, n, dtype=torch.float64).tril() if causal else torch.ones(n, n, dtype=torch.float64)
    uniform = (allowed / allowed.sum(-1, keepdim=True))[None, None]
    targets = DETECTORS[name](TOKENS, causal)
    assert float(target_mass(uniform, targets)[0]) == pytest.approx(uniform_mass(targets, causal))


@pytest.mark.parametrize("name", DETECTORS)
def test_a_head_that_only_looks_at_its_targets_scores_one(name: str) -> None:
    targets = DETECTORS[name](TOKENS, True)
    pattern = targets.double() / targets.sum(-1, keepdim=True).clamp(min=1)
    assert float(target_mass(pattern[:, None], targets)[0]) == pytest.approx(1)


def test_nothing_to_look_at_is_undefined_not_zero() -> None:
    distinct = torch.arange(6)[None]
    targets = DETECTORS["induction"](distinct, True)
    assert math.isnan(float(target_mass(torch.eye(6, dtype=torch.float64)[None, None], targets)[0]))
    assert math.isnan(uniform_mass(targets, True))


def test_segments_are_said_twice_between_the_special_tokens() -> None:
    model = running("byte-level")
    tokens = repeated_tokens(model, length=10, batch=3, seed=1)
    bos = model.tokenizer.bos_token_id  # type: ignore[union-attr]
    assert tokens.shape == (3, 21)
    assert (tokens[:, 0] == bos).all()
    assert torch.equal(tokens[:, 1:11], tokens[:, 11:])
    assert (tokens[:, 1:] != bos).all()
    assert all(len(set(row[1:11].tolist())) == 10 for row in tokens)
    assert torch.equal(tokens, repeated_tokens(model, 10, 3, 1))
    assert not torch.equal(tokens, repeated_tokens(model, 10, 3, 2))


def test_special_tokens_around_a_text_are_the_tokenizers(minilm: Path) -> None:
    assert surrounding_tokens(open_runnable(minilm)) == ([101], [102])
    assert surrounding_tokens(open_runnable("demo")) == ([], [])
    assert surrounding_tokens(open_runnable(CASES[0].model(head=True).float())) == ([], [])


@pytest.mark.parametrize(("length", "batch"), [(1, 4), (33, 4), (8, 0)])
def test_segments_that_do_not_fit_are_refused(length: int, batch: int) -> None:
    with pytest.raises(ShapeError, match="segments have a length of at least 2 and at most 32 for this model"):
        repeated_tokens(open_runnable("demo"), length, batch, 0)


# The demo model, whose heads are known


def test_the_demo_models_previous_token_and_induction_heads_are_found(demo: xr.Dataset) -> None:
    known = json.loads((demo_folder() / "scores.json").read_text())
    labelled = detect.labelled_heads(demo)[detect.REPEATED]
    assert labelled["previous_token"] == known["previous_token_heads"] == ["L0H3"]
    assert set(labelled["induction"]) >= set(known["induction_heads"])
    assert all(label.startswith("L1") for label in labelled["induction"])


def test_scores_agree_with_those_the_demo_model_was_published_with(demo: xr.Dataset) -> None:
    """There periods vary and only the repeats count, so agreement is rough."""
    known = json.loads((demo_folder() / "scores.json").read_text())["previous_token_score"]
    ours = demo["score"].sel(prompt=detect.REPEATED, detector="previous_token").values.ravel()
    np.testing.assert_allclose(ours, [each["value"] for each in known.values()], atol=0.1)


def test_an_untrained_model_has_no_labels_and_scores_chance() -> None:
    model = fresh()
    with torch.no_grad():
        for layer in (0, 1):
            model.linear("Q", layer).get_parameter("weight").mul_(1e-4)
            model.linear("Q", layer).get_parameter("bias").mul_(1e-4)
    found = detect.compute(model, length=12, seeds=3)
    assert not found["label"].any()
    np.testing.assert_allclose(found["score"] - found["chance"], 0, atol=0.005)
    with pytest.raises(HeadspanError, match=r"no head scores above 0.4 for any detector"):
        detect.detected_classes(found)


def test_a_score_is_the_mean_over_seeds_with_its_standard_error(demo: xr.Dataset) -> None:
    model = open_runnable("demo")
    values = np.stack([scores_of(forward(model, repeated_tokens(model, 32, 4, seed)))[0].numpy() for seed in range(10)])
    np.testing.assert_allclose(demo["score"][0], values.mean(axis=0))
    np.testing.assert_allclose(demo["standard_error"][0], values.std(axis=0, ddof=1) / math.sqrt(10))


def test_detected_labels_become_head_classes(demo: xr.Dataset) -> None:
    classes = detect.detected_classes(demo)
    assert classes.classes["previous_token"] == ("L0H3",)
    assert "above 0.4" in classes.source


# Text beside designed prompts


def test_text_is_scored_beside_random_tokens(encoder: xr.Dataset) -> None:
    assert encoder["prompt"].values.tolist() == [detect.REPEATED, detect.TEXT]
    assert encoder.attrs["pieces"] > 2
    assert np.isfinite(encoder["standard_error"].values).all()
    assert (encoder["chance"].sel(prompt=detect.TEXT, detector="identity") < 0.06).all()


def test_text_that_is_too_short_or_cannot_be_read_is_refused() -> None:
    with pytest.raises(ShapeError, match="the text holds no piece of 64 tokens"):
        detect.compute(running(), texts=["too short"], seeds=2)
    with pytest.raises(ShapeError, match="the text is empty"):
        detect.compute(running(), texts=[" "], seeds=2)
    with pytest.raises(ShapeError, match="so text cannot be read; leave out --text"):
        detect.compute(open_runnable(CASES[0].model(head=True).float()), texts=["a text"], seeds=2)


@pytest.mark.parametrize(
    ("given", "message"), [({"threshold": 0.0}, "threshold is a share"), ({"seeds": 1}, "at least 2 seeds")]
)
def test_bad_choices_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        detect.compute(running(), **given)  # type: ignore[arg-type]


# Identity from the weights


def test_identity_is_its_definition_also_for_grouped_heads(stories: Path) -> None:
    heads = headspan.open(stories).heads(dtype="float64")
    found = detect.identity_scores(heads)
    W_V, W_O = heads.per_query_head(heads.W_V), heads.W_O
    for layer in range(heads.n_layers):
        for head in range(heads.n_heads):
            M = W_V[layer, head] @ W_O[layer, head]
            expected = float(M.trace() / (math.sqrt(heads.d_head) * M.norm()))
            assert float(found[layer, head]) == pytest.approx(expected, abs=1e-12)


def test_identity_heads_of_gpt2_are_negative_and_the_lowest_is_l4h7(gpt2_attention: Path) -> None:
    scores = detect.identity_scores(headspan.open(gpt2_attention).heads())
    assert divmod(int(scores.argmin()), 12) == (4, 7)
    assert float(scores.min()) == pytest.approx(-0.8666, abs=1e-4)


def test_random_weights_score_zero_within_the_stated_deviation() -> None:
    model = next(case for case in CASES if case.name == "gpt2").model(head=True)
    heads = headspan.open(model).heads()
    W = torch.randn(4000, 24, 8, dtype=torch.float64), torch.randn(4000, 8, 24, dtype=torch.float64)
    products = W[0] @ W[1]
    scores = products.diagonal(dim1=-2, dim2=-1).sum(-1) / (math.sqrt(8) * products.flatten(1).norm(dim=1))
    sd = detect.identity_chance_sd(heads)
    assert sd == pytest.approx(1 / math.sqrt(24 * 8))
    assert abs(float(scores.mean())) < 4 * sd / math.sqrt(4000)
    assert float(scores.std()) == pytest.approx(sd, rel=0.05)


def test_a_copying_head_scores_one_and_a_zero_head_is_undefined() -> None:
    case = next(case for case in CASES if case.name == "llama-one-kv-head")
    model = case.model(head=True)
    with torch.no_grad():
        attention = model.model.layers[0].self_attn
        basis = torch.linalg.qr(torch.randn(24, 6, dtype=torch.float64)).Q
        attention.v_proj.weight.copy_(basis.T)
        attention.o_proj.weight[:, :6] = basis
        attention.o_proj.weight[:, 6:12] = -basis
        attention.o_proj.weight[:, 12:18] = 0
    scores = detect.identity_scores(headspan.open(model).heads())[0]
    assert float(scores[0]) == pytest.approx(1)
    assert float(scores[1]) == pytest.approx(-1)
    assert math.isnan(float(scores[2]))


# What is told


@pytest.mark.parametrize("ending", [".nc", ".csv", ".json", ".parquet"])
def test_a_result_survives_a_file(tmp_path: Path, ending: str, encoder: xr.Dataset) -> None:
    path = tmp_path / f"result{ending}"
    save_result(encoder, path, table=detect.table, as_json=detect.as_json)
    if ending == ".nc":
        with xr.open_dataset(path, engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), encoder)
    else:
        assert path.stat().st_size > 500


def test_findings_name_the_heads(demo: xr.Dataset) -> None:
    text = " ".join(finding.statement for finding in findings_of("detect", demo))
    assert "Previous-token heads, which look at the previous token: L0H3; 1 of 16." in text
    assert "Induction heads" in text
    assert "No head passes 0.4 for: duplicate token" in text
    assert "identity score -0.48 from the weights" in text
    assert all(finding.chance is not None for finding in findings_of("detect", demo))


def test_figures_show_the_scores(demo: xr.Dataset, encoder: xr.Dataset) -> None:
    drawn = figures_of("detect", demo)
    assert list(drawn) == ["Detector scores", "Identity from the weights"]
    panels = drawn["Detector scores"].data
    np.testing.assert_array_equal(panels[0].z, demo["score"].values[0, 0])
    assert [panels[1].x.tolist(), panels[1].y.tolist()] == [[3], [0]]
    np.testing.assert_array_equal(drawn["Identity from the weights"].data[0].z, demo["identity_weights"].values)
    assert len(figures_of("detect", encoder)["Detector scores"].data) == 2 * 5 * 2


app = typer.Typer()
app.command("detect")(command)
app.command("affinity")(affinity_command)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_heads_per_detector_and_identity(tmp_path: Path) -> None:
    text = run("detect", "demo", "--seeds", "2", "-o", str(tmp_path / "r.nc"))
    assert "L0H3" in text
    assert "previous_token" in text
    assert "Identity from the weights, lowest and highest of 16 heads" in text
    assert (tmp_path / "r.nc").is_file()


def test_the_command_reads_text_and_writes_json(stories: Path, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("Once upon a time, there was a little girl. She had a dog, and the dog had a ball. " * 8)
    document = json.loads(run("detect", str(stories), "--text", str(file), "--json", "--seeds", "2"))
    assert document["schema"] == "headspan.detect/1"
    assert set(document["labelled"]) == {"repeated random tokens", "text"}
    assert len(document["heads"]) == 40 * (2 * 5 + 1)


def test_weights_alone_suffice_for_identity(gpt2_attention: Path) -> None:
    document = json.loads(run("detect", str(gpt2_attention), "--weights-only", "--json"))
    lowest = min(document["heads"], key=lambda row: row["score"])
    assert lowest["head"] == "L4H7"
    with pytest.raises(HeadspanError, match="cannot be run: the checkpoint is partial"):
        run("detect", str(gpt2_attention))


def test_a_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadspanError, match="is not text in UTF-8"):
        run("detect", "demo", "--text", str(tmp_path / "bytes"))
    with pytest.raises(HeadspanError, match=r"cannot be read: No such file"):
        run("detect", "demo", "--text", str(tmp_path / "none"))


def test_affinity_uses_detected_labels() -> None:
    document = json.loads(run("affinity", "demo", "--labels", "detected", "--json"))
    assert document["labels"]["source"].startswith("detected on repeated random tokens")
    assert {row["target"] for row in document["detection"]} >= {"previous_token", "induction", "any class"}


def test_prompts_of_ids_are_scored_like_any(demo: xr.Dataset) -> None:
    model: RunnableModel = open_runnable("demo")
    scores, chance = scores_of(forward(model, encoded(model, [1, 2, 3, 1, 2, 3]).tokens))
    assert scores.shape == (5, 2, 8)
    assert chance[0] == pytest.approx(np.mean([1 / (i + 1) for i in range(1, 6)]))
