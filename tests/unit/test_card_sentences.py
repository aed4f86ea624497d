"""The sentence of a head agrees with the lists of its card."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import headspan
from headspan.explorer import sentences
from headspan.explorer.sentences import pair_texts
from headspan.lenses.affinity.card import STANDING, phrases
from headspan.lenses.affinity.wiring import edges
from tests.browser.synthetic_results import random_affinity


@pytest.mark.slow
def test_a_head_reads_most_from_the_first_that_its_card_lists(gpt2_attention: Path) -> None:
    result = headspan.affinity(gpt2_attention)
    told = phrases(result)
    assert "reads most from L3H10 through its values (overlap 16.7 dimensions" in told["L4H11"]
    assert "writes most to the keys of L5H1 (overlap 39.3 dimensions" in told["L4H11"]
    tables = {pairing: edges(result, pairing) for pairing in ("OQ", "OK", "OV")}
    for label, phrase in told.items():
        standing = [one[(one["dst"] == label) & one["tier"].isin(STANDING)] for one in tables.values()]
        best = max((one.iloc[0] for one in standing if len(one)), key=lambda row: row["score"], default=None)
        assert (best is None) == ("reads most" not in phrase)
        assert best is None or f"reads most from {best['src']} " in phrase


def test_of_many_pairs_the_significant_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = headspan.channels("demo")
    (whole,) = pair_texts({"channels": result})
    assert whole["rest"] == ""
    assert len(whole["of"]) == 3 * 64
    significant = {
        f"{src}-{dst}-{pairing}"
        for pairing in ("OQ", "OK", "OV")
        for src, row in zip(result[pairing].src.values, result[pairing].coupling_q.isel(null=0).values, strict=True)
        for dst, q in zip(result[pairing].dst.values, row, strict=True)
        if q < 0.05
    }
    assert 0 < len(significant) < len(whole["of"])
    monkeypatch.setattr(sentences, "MOST_ROWS", len(significant))
    (limited,) = pair_texts({"channels": result})
    assert set(limited["of"]) == significant
    assert all(whole["of"][pair] == lines for pair, lines in limited["of"].items())
    assert limited["rest"] == "None with q < 0.05."


def test_a_head_that_shares_its_keys_reads_what_its_kv_head_reads() -> None:
    result = random_affinity(12, 6, 2)
    told = phrases(result)
    tables = pd.concat([edges(result, pairing).assign(pairing=pairing) for pairing in ("OQ", "OK", "OV")])
    standing = tables[tables["tier"].isin(STANDING)].sort_values("score", ascending=False, kind="stable")
    through = {"OQ": "queries", "OK": "keys", "OV": "values"}
    seen = set()
    for label in (f"L{layer}H{head}" for layer in range(12) for head in range(6)):
        kv = f"{label.split('H')[0]}K{int(label.split('H')[1]) // 3}"
        into = standing[standing["dst"].isin([label, kv])]
        if len(into):
            best = into.iloc[0]
            seen.add(best["pairing"])
            assert f"reads most from {best['src']} through its {through[best['pairing']]} " in told[label]
    assert seen & {"OK", "OV"}
