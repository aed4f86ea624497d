"""The sentence of a head agrees with the lists of its card."""

from __future__ import annotations

from pathlib import Path

import pytest

import headspan
from headspan.explorer import sentences
from headspan.explorer.sentences import pair_texts
from headspan.lenses.affinity.card import STANDING, phrases
from headspan.lenses.affinity.wiring import edges


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
    table = result.table()
    significant = table[table["coupling_q"] < 0.05]
    monkeypatch.setattr(sentences, "MOST_ROWS", len(significant))
    assert 0 < len(significant) < len(table)
    (limited,) = pair_texts({"channels": result})
    assert set(limited["of"]) == set(significant["src"] + "-" + significant["dst"] + "-" + significant["pairing"])
    assert all(whole["of"][pair] == lines for pair, lines in limited["of"].items())
    assert limited["rest"] == "None with q < 0.05."
