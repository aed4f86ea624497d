"""`headspan affinity`, `pair` and `reproduce`: what they print, what they write, how they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pandas as pd
import pytest
from typer.testing import CliRunner

import headspan
from headspan.cli.main import app
from headspan.errors import HeadspanError
from headspan.result import Result
from headspan.storage import without_nan
from tests.conftest import Program


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_json_file_holds_what_is_printed_as_json_and_every_pair(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text("classes: {listener: [L1H6]}\n")
    options = ["affinity", "demo", "--labels", str(tmp_path / "classes.yaml"), "--sensitivity"]
    printed = json.loads(run(*options, "--json", "-o", str(tmp_path / "affinity.json")))
    written = json.loads((tmp_path / "affinity.json").read_text(encoding="utf-8"))
    assert {name: part for name, part in written.items() if name != "pairs"} == {
        name: part for name, part in printed.items() if name != "pairs"
    }
    assert len(written["pairs"]) == 3 * 64 > len(printed["pairs"])
    assert all(row in written["pairs"] for row in printed["pairs"])
    assert {"classes", "detection", "class_hubs", "sensitivity"} <= set(printed)


def test_json_has_the_documented_form(stories: Path) -> None:
    found = json.loads(run("affinity", str(stories), "--json", "--top", "3", "--null", "reverse"))
    assert found["schema"] == "headspan.affinity/2"
    assert found["provenance"]["model"] == str(stories)
    assert set(found["pairings"]) == {"OQ", "OK", "OV"}
    ok = found["pairings"]["OK"]
    names = ("n_pairs", "mean", "mean_low", "mean_high", "mean_null", "sd", "sd_null", "direction", "direction_p")
    for metric in ("projection_kernel", "composition_score"):
        assert {f"{metric}_{name}" for name in names} <= set(ok)
    assert ok["n_pairs"] == 10 * 8 * 4
    assert ok["projection_kernel_mean_null"] == pytest.approx(1.0)
    assert "projection_kernel_kl" in ok
    assert "composition_score_kl" not in ok
    whole = headspan.affinity(stories, null="reverse")
    best = [row for row in found["pairs"] if row["pairing"] == "OK"]
    assert 3 <= len(best) <= 6
    for row, expected in zip(best, whole.top(3, pairing="OK").to_dict("records"), strict=False):
        assert (row["src"], row["dst"]) == (expected["src"], expected["dst"])
        assert row["projection_kernel_null"] == expected["expected"]
        assert row["projection_kernel_q"] == expected["q"]
    assert len(found["hubs"]) == 40
    assert {"head", "inlet", "outlet", "hub_score", "hub_rank"} <= set(found["hubs"][0])
    assert found["hubs"][0]["hub_score"] is None


def test_what_a_pairing_does_not_define_is_absent_or_null(stories: Path) -> None:
    found = json.loads(run("affinity", str(stories), "--json", "--pairing", "qq", "--metric", "both"))
    assert "composition_score_mean" not in found["pairings"]["QQ"]
    assert found["pairings"]["QQ"]["projection_kernel_direction"] is None
    assert "hubs" not in found


def test_every_file_format_holds_the_same_scores(stories: Path, tmp_path: Path) -> None:
    for ending in ("nc", "csv", "parquet", "json", "graphml"):
        run("affinity", str(stories), "-o", str(tmp_path / f"out.{ending}"), "--top", "5")
    table = pd.read_csv(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(table, pd.read_parquet(tmp_path / "out.parquet"))
    best = table[table["pairing"] == "OK"].nlargest(1, "projection_kernel").iloc[0]
    result = headspan.load(tmp_path / "out.nc")
    assert float(result["OK"].projection_kernel.max()) == pytest.approx(best["projection_kernel"])
    assert result.attrs["lens"] == "affinity"
    assert result["OK"].projection_kernel.sel(src=best["src"], dst=best["dst"]) == pytest.approx(
        best["projection_kernel"]
    )
    document = json.loads((tmp_path / "out.json").read_text())
    assert max(row["projection_kernel"] for row in document["pairs"] if row["pairing"] == "OK") == pytest.approx(
        best["projection_kernel"]
    )
    graph = nx.read_graphml(tmp_path / "out.graphml", force_multigraph=True)
    assert graph.number_of_edges() == 15
    assert best["src"] in graph
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"out.{e}" for e in ("nc", "csv", "parquet", "json", "graphml")
    )


def test_an_unknown_ending_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(HeadspanError, match=r"cannot write 'out\.xlsx': its ending is none of \.nc, \.csv"):
        headspan.ranks("demo").save(tmp_path / "out.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> pd.DataFrame:
        raise RuntimeError("half way")

    result = headspan.ranks("demo")
    monkeypatch.setattr(Result, "table", broken)
    with pytest.raises(RuntimeError, match="half way"):
        result.save(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_nan_becomes_null_at_any_depth() -> None:
    assert without_nan({"a": [1.0, float("nan"), {"b": float("inf")}], "c": "x"}) == {
        "a": [1.0, None, {"b": None}],
        "c": "x",
    }


def test_tables_name_the_null_and_the_expected_score(stories: Path) -> None:
    shown = run("affinity", str(stories), "--top", "2", "--robustness")
    plain = " ".join(shown.split())
    assert "expected (reverse)" in plain
    assert ", random 1; q < 0.05 in 0 of 640 pairs" in plain
    assert "Null: reverse; the two-way null needs 3 layers, 1,000 pairs of different layers and 32 partners" in plain
    assert "Hubs" in shown
    assert "RMSNorm, which keeps the mean" in shown.replace("\n", " ")


def test_sensitivity_shows_that_the_basis_does_not_matter(stories: Path) -> None:
    found = json.loads(run("affinity", str(stories), "--json", "--pairing", "OK", "--sensitivity"))
    full = next(row for row in found["sensitivity"] if row["directions"] == 8)
    assert full["largest_change"] < 1e-12
    assert full["top_overlap"] == 20


def test_tokens_are_listed_with_their_text_and_the_expected_share(stories: Path) -> None:
    found = json.loads(run("vocabulary", str(stories), "--head", "L2H5", "--projection", "o", "--count", "4", "--json"))
    assert found["schema"] == "headspan.vocabulary/1"
    assert [set(row) for row in found["projection"]] == [{"token", "text", "share", "share_null"}] * 4
    assert all(0.125 == row["share_null"] < row["share"] <= 1 for row in found["projection"])
    assert "share" in run("vocabulary", str(stories), "--head", "L2H5", "--projection", "Q")


def test_labels_add_counts_and_detection(stories: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.yaml"
    labels.write_text("source: mine\nclasses: {a: [L0H1, L1H2, L2H3], b: [L3H3, L4H0]}\n")
    found = json.loads(run("affinity", str(stories), "--json", "--labels", str(labels)))
    assert found["provenance"]["labels"] == "mine"
    assert {row["metric"] for row in found["classes"]} == {"projection_kernel", "composition_score"}
    row = next(row for row in found["detection"] if row["target"] == "a")
    assert row["base_rate"] == pytest.approx(3 / 40)


def test_pair_prints_the_command_that_reproduces_it(stories: Path) -> None:
    found = json.loads(run("pair", str(stories), "L1H2", "3.5", "--json"))
    about = found["provenance"]
    assert len(found["pairings"]) == 16
    assert (about["src"], about["dst"]) == ("L1H2", "L3H5")
    again = json.loads(run(*about["command"].split()[1:], "--json"))
    assert again == found
    assert "reproduce with" in run("pair", str(stories), "L1H2", "L3H5")


BAD = [
    (["affinity", "MODEL", "--pairing", "OX"], "'OX' is not a pairing"),
    (["affinity", "MODEL", "--metric", "both", "--top", "0"], "top=0, "),
    (["affinity", "MODEL", "--null", "uniform"], "nulls are two-way, reverse, haar"),
    (["affinity", "MODEL", "--fold", "rms"], "fold='rms' is unknown"),
    (["affinity", "MODEL", "--labels", "ioi"], "labels 'ioi' are for another model"),
    (["affinity", "MODEL", "-o", "out.xlsx"], "its ending is none of"),
    (["pair", "MODEL", "L3H5", "L1H2"], "do not compose: the source must be in an earlier layer"),
    (["pair", "MODEL", "L3H9", "L4H2"], "L3H9 does not exist"),
    (["pair", "MODEL", "L3K1", "L4H2"], "is a kv head; name one of the query heads"),
    (["pair", "MODEL", "first", "L4H2"], "'first' is not a head"),
    (["vocabulary", "MODEL", "--head", "L0H8", "--projection", "Q"], "L0H8 does not exist"),
    (["vocabulary", "MODEL", "--head", "L0H0", "--projection", "X"], "projection='X' is unknown"),
    (["reproduce", "2601.10266", "--model", "MODEL"], "is about GPT-2 small"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_a_request_that_makes_no_sense_is_one_line(arguments: list[str], message: str, stories: Path) -> None:
    with pytest.raises(HeadspanError, match=re.escape(message)):
        CliRunner().invoke(app, [a.replace("MODEL", str(stories)) for a in arguments], catch_exceptions=False)


def test_the_command_exits_with_2(stories: Path, program: Program) -> None:
    done = program("affinity", str(stories), "--pairing", "OX")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("headspan: 'OX' is not a pairing")
    assert done.stderr.count("\n") == 1


def test_reproduce_exits_with_1_if_a_number_disagrees(gpt2_attention: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headspan.ledger import models

    lines = [models.Line("mean", "1.0", "1.0"), models.Line("kl", "2.0", "2.1")]
    monkeypatch.setattr(models, "reproduction", lambda *_: lines)
    done = CliRunner().invoke(app, ["reproduce", "2601.10266", "--model", str(gpt2_attention)])
    assert done.exit_code == 1
    assert "NO" in done.stdout


def test_a_plan_is_printed_and_nothing_computed() -> None:
    text = run("affinity", "synthetic:mistral-7b", "--explain")
    assert re.search(r"projector +6\.\de\+13", text)
    assert "Chosen: projector (all pairs exactly, by the fewer operations)" in text
    document = json.loads(run("affinity", "synthetic:llama-70b", "--explain", "--memory", "6GB", "--json"))
    assert document["schema"] == "headspan.affinity-plan/1"
    assert document["chosen"] == "sketch"
    assert [cost["algorithm"] for cost in document["costs"]] == ["gram", "projector", "sketch"]


def test_a_sketch_is_printed_and_written_like_other_results(tmp_path: Path) -> None:
    model = "synthetic:tiny?seed=1&planted=2"
    text = run("affinity", model, "--sketch", "--top", "2", "--confidence", "0.95", "-o", str(tmp_path / "out.nc"))
    assert len(re.findall(r"the top 2 are exact with confidence 95 %", text)) == 3
    result = headspan.load(tmp_path / "out.nc")
    assert result.attrs["algorithm"] == "sketch"
    assert result["OQ/top"].projection_kernel.dims == ("pair",)
    document = json.loads(run("affinity", model, "--sketch", "--top", "2", "--json"))
    assert "projection_kernel_mean_low" not in document["pairings"]["OK"]
    assert len([row for row in document["pairs"] if row["pairing"] == "OK"]) == 2


def test_a_budget_smaller_than_the_program_is_refused() -> None:
    with pytest.raises(HeadspanError, match=r"the program itself takes .* allow at least"):
        run("affinity", "synthetic:tiny", "--memory", "1MB")


@pytest.mark.parametrize("option", [("--metric", "cs"), ("--robustness",), ("--sensitivity",), ("--delta", "1")])
def test_what_a_sketch_cannot_do_is_refused_rather_than_left_out(option: tuple[str, ...]) -> None:
    with pytest.raises(HeadspanError, match=r"\(--sketch\) finds pairs by the projection kernel: it goes without"):
        run("affinity", "demo", "--sketch", *option)


def test_a_wrong_metric_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for option in (("--metric", "foo"), ("--metrics", "cs", "--labels", "2601.10266"), ("--null", "x", "--explain")):
        with pytest.raises(HeadspanError, match=r"is unknown|which need the metric projection_kernel"):
            run("affinity", str(tmp_path / "no-model"), *option)


def test_aliases_and_old_spellings_mean_the_same() -> None:
    old = json.loads(run("affinity", "demo", "--pairing", "OK", "--metric", "pk", "--json"))
    new = json.loads(run("affinity", "demo", "--pairings", "OK", "--metrics", "projection_kernel", "--json"))
    assert old == new


def test_heavy_libraries_are_loaded_where_they_are_used() -> None:
    """Computing and ranking pairs needs neither scikit-learn nor networkx, plotly or netCDF4."""
    code = (
        "import sys, headspan; headspan.affinity('demo', pairings='OK', draws=2).top(3); "
        "print([name for name in ('sklearn', 'networkx', 'plotly', 'netCDF4') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
