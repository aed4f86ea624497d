"""What the drift between two checkpoints says: what moved, how far, and whether a random change would have done it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from headspan.finding import Finding, percent
from headspan.lenses.drift.schema import SPACES, STEWART
from headspan.result import Result

LENS = "drift"
LEVEL = 0.05


def findings(result: Result) -> list[Finding]:
    """What changed at all, what moved furthest, what differs from the null on either side, where changes point."""
    rows = result.table("heads")
    rows = rows.assign(label=rows["head"].where(rows["head"].notna(), rows["kv_head"]))
    changed = rows[~rows["unchanged"]]
    if changed.empty:
        return [_identical(len(rows))]
    null = f"Null: {result.attrs['null']}, to the same head."
    found = [*_changed(rows, changed), *_furthest(changed, null), *_against_null(changed, null)]
    found += [*_outside(changed, null), *_growth(changed, null), *_ranks(rows)]
    if result.attrs["leading"] == "all":
        return found
    note = f" Of every head its {result.attrs['leading']} leading directions are followed."
    return [replace(finding, evidence=finding.evidence + note) for finding in found]


def _identical(count: int) -> Finding:
    return Finding(
        LENS,
        f"All {count} head matrices are the same in both checkpoints, bit for bit: nothing moved.",
        value=0.0,
        expected=0.0,
        evidence="Weights compared entry by entry, as read.",
        weight=1.0,
    )


def _named(row: pd.Series) -> str:
    return f"{row['label']} {row['role']}"


def _listed(rows: pd.DataFrame, most: int = 5) -> str:
    names = [_named(row) for _, row in rows[:most].iterrows()]
    return ", ".join(names) + (f" and {len(rows) - most} more" if len(rows) > most else "")


def _changed(rows: pd.DataFrame, changed: pd.DataFrame) -> Iterator[Finding]:
    """Which heads changed, where some did not."""
    if len(changed) == len(rows):
        return
    yield Finding(
        LENS,
        f"{len(changed)} of {len(rows)} head matrices changed, the rest are the same bit for bit: {_listed(changed)}.",
        value=float(len(changed)),
        expected=0.0,
        evidence=f"Largest relative change |W' - W| / |W|: {changed['relative_change'].max():.3g}.",
        weight=0.9,
    )


def _furthest(changed: pd.DataFrame, null: str) -> Iterator[Finding]:
    """The head that moved furthest, of what two unrelated spaces are apart."""
    known = changed[changed["grassmann"].notna() & (changed["grassmann_unrelated"] > 0)]
    if known.empty:
        return
    row = known.loc[(known["grassmann"] / known["grassmann_unrelated"]).idxmax()]
    yield Finding(
        LENS,
        f"The {SPACES[row['role']]} of {row['label']} moved furthest: Grassmann distance {row['grassmann']:.2f}, where "
        f"a random change of the same size gives {row['grassmann_null']:.2f} and unrelated spaces are "
        f"{row['grassmann_unrelated']:.2f} apart.",
        value=float(row["grassmann"]),
        expected=float(row["grassmann_null"]),
        p=_known(row["grassmann_p"]),
        evidence=f"Largest angle {row['largest_angle']:.1f}°, relative change {row['relative_change']:.3g}. {null}",
        reference=STEWART,
        weight=0.7,
    )


def _known(value: float) -> float | None:
    return None if value != value else float(value)


def _against_null(changed: pd.DataFrame, null: str) -> Iterator[Finding]:
    """How many moved further, and how many less, than a random change of their size would have moved them."""
    tested = changed[changed["grassmann_q"].notna()]
    if tested.empty:
        return
    certain = tested[tested["grassmann_q"] < LEVEL]
    further = certain[certain["grassmann_z"] > 0].sort_values("grassmann_z", ascending=False, kind="stable")
    less = certain[certain["grassmann_z"] < 0].sort_values("grassmann_z", kind="stable")
    further_text, less_text = (str(len(rows) or "none") for rows in (further, less))
    named = f" Most: {_listed(further, 3)}." if len(further) else ""
    named += f" Least: {_listed(less, 3)}." if len(less) else ""
    first = certain.loc[certain["grassmann_z"].abs().idxmax()] if len(certain) else None
    yield Finding(
        LENS,
        f"Of {len(tested)} changed head matrices, {further_text} moved significantly further than a random change of "
        f"the same size (q < {LEVEL:g}), {less_text} significantly less.{named}",
        value=float(len(certain)),
        expected=LEVEL * len(tested),
        p=None if first is None else _known(first["grassmann_p"]),
        evidence=f"False-discovery rate {LEVEL:g}; p of {_named(first)}, z = {first['grassmann_z']:.1f}. {null}"
        if first is not None
        else f"False-discovery rate {LEVEL:g}. {null}",
        weight=0.8 if len(certain) else 0.3,
    )


def _outside(changed: pd.DataFrame, null: str) -> Iterator[Finding]:
    """Whether changes point out of the spaces that heads had, or stay inside them."""
    known = changed[changed["outside_share"].notna() & (changed["outside_share_null"] > 0)]
    if known.empty:
        return
    share, expected = float(known["outside_share"].mean()), float(known["outside_share_null"].mean())
    departs = known["outside_share_p"] * len(known) < LEVEL
    inside = known[departs & (known["outside_share"] < known["outside_share_null"])]
    certain = int(departs.sum())
    statement = (
        f"Of {len(known)} changes, {len(inside)} stay inside the old subspaces more than random changes would, "
        f"{certain - len(inside)} less; on average {percent(share, 1)} of a change lies outside (expected "
        f"{percent(expected, 1)})."
        if certain
        else f"Changes point out of the old subspaces as random ones do: {percent(share, 1)} of a change lies outside "
        f"(expected {percent(expected, 1)})."
    )
    yield Finding(
        LENS,
        statement,
        value=share,
        expected=expected,
        evidence=f"Share of the squared norm, mean over {len(known)} head matrices; {certain} of them are significant "
        f"at {LEVEL:g} after correction for all. {null}",
        weight=0.5 if certain else 0.2,
    )


def _growth(changed: pd.DataFrame, null: str) -> Iterator[Finding]:
    """Heads whose weights grew or shrank along themselves; silent where none did, and for files that lack it."""
    if "growth_q" not in changed or not (changed["growth_q"] < LEVEL).any():
        return
    certain = changed[changed["growth_q"] < LEVEL]
    first = certain.loc[certain["growth_z"].abs().idxmax()]
    shrank = certain[certain["growth"] < 0]
    yield Finding(
        LENS,
        f"{len(shrank)} of {len(changed)} changed head matrices shrank along themselves significantly, "
        f"{len(certain) - len(shrank)} grew (q < {LEVEL:g}); the mean of all is "
        f"{percent(changed['growth'].mean(), 2, signed=True)} (expected 0).",
        value=float(changed["growth"].mean()),
        expected=0.0,
        p=_known(first["growth_p"]),
        q=_known(first["growth_q"]),
        evidence=f"<W' - W, W> / |W|^2. Most certain: {_named(first)}, {percent(first['growth'], 2, signed=True)}, "
        f"z = {first['growth_z']:.1f}. {null}",
        weight=0.55,
    )


def _ranks(rows: pd.DataFrame) -> Iterator[Finding]:
    """Heads whose rank is not what it was."""
    other = rows[rows["rank_before"] != rows["rank_after"]]
    if other.empty:
        return
    first = other.loc[(other["rank_before"] - other["rank_after"]).abs().idxmax()]
    yield Finding(
        LENS,
        f"{len(other)} head matrices changed their rank: {_listed(other)}.",
        value=float(len(other)),
        expected=0.0,
        evidence=f"{_named(first)} went from {first['rank_before']} to {first['rank_after']}.",
        weight=0.6,
    )
