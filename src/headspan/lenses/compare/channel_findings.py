"""What became of channels, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from headspan.finding import Finding, significance
from headspan.lenses.compare.parts import COMPOSITION
from headspan.result import Result

LENS = "compare"
FIGURE = "Channels gained and lost"


def channel_findings(result: Result) -> Iterator[Finding]:
    """How many channels appeared and vanished, and the clearest of each; one line where none did."""
    if "channels" not in result:
        return
    rows = result.table("channel_changes")
    gained, lost = (rows[rows[name].astype(bool)] for name in ("gained", "lost"))
    before, after = (int(rows[f"channel_{side}"].sum()) for side in ("before", "after"))
    evidence = (
        f"Leading channels of {len(rows):,} pairs; {before} stand out before and {after} after (q < "
        f"{float(result.attrs['level']):g}, {result.attrs['channel_null']} null). Null of gains and losses: "
        f"{result.attrs['change_null']}."
    )
    if gained.empty and lost.empty:
        yield Finding(
            LENS,
            "No channel between heads was gained or lost.",
            value=0.0,
            evidence=evidence,
            weight=0.1,
            figure=FIGURE,
        )
        return
    yield Finding(
        LENS,
        f"{len(gained)} channels between heads were gained and {len(lost)} lost, beyond a random change of the same "
        "size.",
        value=float(len(gained) + len(lost)),
        expected=0.0,
        evidence=evidence,
        weight=0.6,
        figure=FIGURE,
    )
    for what, some in (("gain", gained), ("loss", lost)):
        if len(some):
            yield _clearest(some.loc[some[f"{what}_z"].idxmax()], what, evidence)


def _clearest(row: pd.Series, what: str, evidence: str) -> Finding:
    own = float(row["coupling_after" if what == "gain" else "coupling_before"])
    other, (moved, then) = own - float(row[what]), ("gained", "before") if what == "gain" else ("lost", "after")
    return Finding(
        LENS,
        f"{row['src']} → {row['dst']}: the leading {COMPOSITION[row['pairing']]} channel was {moved}: coupling "
        f"{own:.2f}, and {other:.2f} along the same directions {then} (a random change: {row[f'{what}_null']:.3f} ± "
        f"{row[f'{what}_null_sd']:.3f}; {significance('q', float(row[f'{what}_q']))}).",
        value=float(row[what]),
        expected=float(row[f"{what}_null"]),
        p=float(row[f"{what}_p"]),
        q=float(row[f"{what}_q"]),
        evidence=evidence,
        weight=0.68,
        figure=FIGURE,
    )
