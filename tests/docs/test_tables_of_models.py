"""Tables and sentences about real models on the pages of lenses: the lens says the same today."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import headspan
from headspan.result import Result
from tests.docs.pages import DOCS, agree

pytestmark = pytest.mark.slow

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.fixture(scope="module")
def models(stories: Path, minilm: Path, gpt2_attention: Path) -> dict[str, str]:
    """Where the models of the pages are, by the names that they have there."""
    real = {"stories260K": str(stories), "MiniLM": str(minilm), "GPT-2 attention": str(gpt2_attention)}
    return {"demo": "demo", **real}


def rows(page: str, header: str) -> Iterator[list[str]]:
    """The cells of every row of the first table whose header begins so; minus signs and emphasis as in Python."""
    _, found, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"| {header}")
    assert found, f"{page} has no table with the header {header}"
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip().replace("\N{MINUS SIGN}", "-").replace("**", "") for cell in line.strip("|").split("|")]


def listed(values: Sequence[float], decimals: int = 2) -> str:
    return ", ".join(f"{value:.{decimals}f}" for value in values)


def same(cell: str, computed: str) -> None:
    """Words equal, numbers within one unit of the last digit shown."""
    assert agree(cell, computed), f"the page has {cell}; computed: {computed}"


def best(result: Result, detector: str) -> str:
    """The leading head of a detector as the page writes it: `L3H6 0.868 ± 0.008 and eight more` labeled ones."""
    found = result.dataset().isel(prompt=0)
    place = int(found[detector].values.argmax())
    told = f"{found['head'].values[place]} {found[detector].values[place]:.3f}"
    told += f" ± {found[f'{detector}_se'].values[place]:.3f}"
    more = int(found[f"{detector}_label"].sum()) - 1
    return told + (f" and {NUMBERS[more] if more < len(NUMBERS) else more} more" if more > 0 else "")


def test_the_best_heads_of_every_detector_are_those_of_the_page(models: dict[str, str]) -> None:
    table = list(rows("detectors.md", "| demo | stories260K | MiniLM |"))
    for column, name in enumerate(("demo", "stories260K", "MiniLM"), start=1):
        result = headspan.detect(models[name])
        for row in table[:5]:
            same(row[column], best(result, row[0].strip("`")))
        weights = result.dataset()["identity_weights"]
        low, high = (str(weights["head"].values[place]) for place in (weights.values.argmin(), weights.values.argmax()))
        sd = float(result["identity_weights_null_sd"])
        same(table[5][column], f"{low} {weights.min():.2f}, {high} {weights.max():+.2f} ({sd:.3f})")


def attention_column(result: Result) -> list[str]:
    found = result.dataset()
    by_layer = found["relative_entropy"].groupby("head_layer").mean().values
    state = found["state_correlation"].where(found["state_correlation_p"] <= 0.05)
    differ = (abs(found["mean_map"] - found["write_map"]).sum("key") / 2).mean("query").values
    ranks = listed(found["effective_rank"].values[[0, -1]], 1)
    return [
        str(found.sizes["key"]),
        listed(by_layer),
        listed(found["mean_map_relative_entropy"].values),
        listed(found["mean_cosine"].values[[0, -1]]),
        f"{ranks} ({float(np.mean(found['effective_rank_null'])):.1f})",
        f"{listed(found['mean_map_rank'].values, 0)} ({float(np.max(found['map_rank_null'])):.0f})",
        f"{int((found['sink_mass'] > 0.3).sum())} of {found.sizes['head']}",
        f"{int((state > 0).sum())} ({int((state < 0).sum())}) of {found.sizes['head']}",
        listed(differ) if len(differ) < 3 else f"{differ.min():.2f} to {differ.max():.2f}",
    ]


def test_statistics_of_attention_are_those_of_the_page(models: dict[str, str]) -> None:
    table = list(rows("attention.md", "| demo | stories260K | MiniLM |"))
    for column, name in enumerate(("demo", "stories260K", "MiniLM"), start=1):
        for row, computed in zip(table, attention_column(headspan.attention(models[name])), strict=True):
            same(row[column], computed)


def test_the_gaussian_prediction_is_as_good_as_the_page_says(models: dict[str, str]) -> None:
    table = list(rows("gaussian.md", "model | layer | self | neighbor | unrelated | entropy |"))
    for name in dict.fromkeys(row[0] for row in table):
        found = headspan.gaussian(models[name]).dataset()
        for _, layer, *cells in (row for row in table if row[0] == name):
            here = found.sel(layer=int(layer))
            values = [*here["logit_sd_r2"].values, float(here["entropy_r2"]), float(here["entropy_ratio"])]
            same(" ".join(cells), listed(values).replace(",", ""))


def test_settings_of_interventions_do_what_the_page_says(models: dict[str, str]) -> None:
    table = headspan.intervene(models["stories260K"], length=0).table("settings").set_index("setting")
    names = {
        r"$\alpha = 1/4$": "alpha 0.25",
        r"$\alpha = 1/2$": "alpha 0.5",
        r"$\alpha = 2$": "alpha 2",
        r"$\alpha = 4$": "alpha 4",
    }
    columns = ("relative_entropy", "averaged_relative_entropy", "self_mass", "argmax_mass", "jsd")
    shown = list(rows("interventions.md", "setting | relative entropy |"))
    assert len(shown) == 7
    for row in shown:
        here = table.loc[names.get(row[0], row[0] if row[0] == "unmodified" else f"{row[0]} (seed 0)")]
        computed = [f"{here[f'mean_{name}']:.3f}" for name in columns]
        computed[-1] = "0" if row[5] == "0" else computed[-1]
        digits = len(row[6].partition(".")[2])
        same(" ".join(row[1:]), " ".join([*computed, f"{here['perplexity']:.{digits}f}"]))


@pytest.mark.parametrize(("row", "name"), [(0, "GPT-2 attention"), (1, "stories260K")])
def test_mixing_is_that_of_the_page(row: int, name: str, models: dict[str, str]) -> None:
    cells = list(rows("mixing.md", "model | tokens | attention alone |"))[row]
    result = headspan.mixing(models[name])
    last = result.dataset().isel(depth=-1)
    for cell, (skip, factor) in zip(
        cells[2:6],
        [("attention alone", 1.0), ("attention alone", 0.1), ("attention alone", 2.0), ("with skips", 1.0)],
        strict=True,
    ):
        here = last.sel(skip=skip, inverse_temperature=factor)
        same(cell, f"{float(here['cosine']):.3f} ({float(here['cosine_null']):.3f})")
    if "run" in result.data:
        run = result["run"].isel(depth=-2)
        same(cells[6], f"{float(run['cosine']):.3f} ({float(run['cosine_null']):.3f}) entering the last layer")


def test_what_the_wiring_answers_is_quoted_as_it_is_printed(models: dict[str, str]) -> None:
    questions = list(rows("wiring.md", "question | model | answer |"))
    options = [
        {"src": "W_E", "dst": "heads"},
        {"src": "heads", "dst": "logits"},
        {"src": "mlp", "dst": "heads"},
        {"neurons": "L1H1"},
        {"src": "W_pos"},
    ]
    for (_, model, answer), asked in zip(questions, options, strict=True):
        told = " ".join(one.statement for one in headspan.wiring(models[model], **asked).findings)
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", answer.strip("*")):
            assert sentence in told, f"{sentence}\nis not in\n{told}"


def test_pairs_and_classes_of_gpt2_are_those_of_the_page(models: dict[str, str]) -> None:
    result = headspan.affinity(models["GPT-2 attention"], labels="2601.10266")
    for row in rows("affinity.md", "`null=` | the question |"):
        null = row[0].split('"')[1]
        tops = (result.top(10_000, pairing, null=null) for pairing in ("OQ", "OK", "OV"))
        same(row[2], ", ".join(f"{100 * (top['q'] < 0.05).mean():.1f} %" for top in tops))
    found = result.table("detection")
    found = found[found["score"] != "mean"]
    targets = ["any class", "Induction", "Previous Token", "Previous Token -> Induction (OK)"]
    for row, target in zip(rows("affinity.md", "question | kernel |"), targets, strict=True):
        for cell, metric in zip(row[1:3], ("projection_kernel", "composition_score"), strict=True):
            here = found[(found["target"] == target) & (found["metric"] == metric)].iloc[0]
            same(cell, f"{here['average_precision']:.2f} [{here['low']:.2f}, {here['high']:.2f}]")
        same(row[3], f"{here['base_rate']:.{len(row[3]) - 2}f}")


def test_spectra_of_gpt2_are_those_of_the_page(models: dict[str, str]) -> None:
    result = headspan.spectra(models["GPT-2 attention"], init="0.02", matrices="W_Q,W_K,W_V,W_O")
    table = list(rows("spectra.md", "| $W_Q$ | $W_K$ |"))
    for row, name in zip(table, ("energy_ratio", "stable_rank", "effective_rank", "ks", "spikes"), strict=True):
        for cell, matrix in zip(row[1:5], ("W_Q", "W_K", "W_V", "W_O"), strict=True):
            same(cell, f"{float(result[matrix][name].mean()):.{len(cell.partition('.')[2])}f}")


def test_what_smollm2_shows_in_its_keys_is_what_the_page_says(smollm2_file: Path) -> None:
    page = {row[0]: row for row in rows("smollm2.md", "question | found |")}
    weights = headspan.detect(smollm2_file, weights_only=True).dataset()["identity_weights"]
    low, high = weights.isel(head=int(weights.values.argmin())), weights.isel(head=int(weights.values.argmax()))
    same(page["signed identity"][1], f"{low['head'].item()} {low:.2f}, {high['head'].item()} {high:+.2f}")
    result = headspan.affinity(smollm2_file, pairings="OK", metrics="pk", draws=2)
    second = result.top(2, "OK").iloc[1]
    told = f"yes: {second['src']} → {second['dst']}, {second['score']:.1f} of 64 dimensions, second of 11,745 K-pairs"
    same(page["does wiring join them?"][1], told)
    counts = result.to_json()["pairings"]["OK"]
    assert f"{counts['n_significant']} and" in page["pairs that stand out"][1]
    assert f"{counts['n_significant_reverse']} and" in page["pairs that stand out"][2]
    direction = float(result["OK"].projection_kernel_direction)
    assert f"OK {direction:+.2f} dimensions" in page["causal order"][1]
