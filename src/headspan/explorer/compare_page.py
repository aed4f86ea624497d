"""Two checkpoints on one page: what stands out, what moved, which edges turned over, provenance of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headspan.atomic import written_whole
from headspan.explorer.figure_block import figure_blocks
from headspan.explorer.findings_section import finding_block, findings_list, top_findings
from headspan.explorer.html import Markup, element, facts, section, table
from headspan.explorer.page import Entry, View, linked_page
from headspan.explorer.page_tables import PageTable, downloads_section
from headspan.explorer.payload import STRONGEST_PAIRS, HeadGrid, PageData, Payload, payload
from headspan.explorer.store import Store
from headspan.finding import percent
from headspan.result import Result

SHOWN = 15
BESIDE = ("model", "revision", "file_hash", "stored_dtype")
SECTIONS = {
    "more-findings": "More findings",
    "moved": "What moved",
    "edges": "Edges gained and lost",
    "channel-changes": "Channels gained and lost",
    "change": "The change itself",
    "behavior": "Both models, run",
    "matrices": "Spectra",
    "provenance": "Where these numbers come from",
}
MATRICES = "Spectra of matrices"
FIGURES = {
    "edges": ("Edges gained and lost", "Kernels before and after"),
    "channel-changes": ("Channels gained and lost",),
    "change": ("Leading directions after, against all before", "Where changes lie"),
    "behavior": ("Attention against a random change",),
}
TOLD = ("heads", "pairings", "edges", "matrices")
"""Tables with a place of their own on the page."""
PLACED = {name for names in FIGURES.values() for name in names}


def write_compare_page(result: Result, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(compare_page(result), encoding="utf-8")


def compare_page(result: Result) -> str:
    """The page as one HTML document, its figures, tables and side panel linked as in a report."""
    drawn, store, attrs = result.figures, Store(), result.attrs
    later = Store(store)
    edges = _edges(result)
    record = _record(result, edges, store, later)

    def blocks(belongs: Callable[[str], bool]) -> list[Markup]:
        return figure_blocks({name: one for name, one in drawn.items() if belongs(name)}, later, result.lens.name)

    top = top_findings(result.findings)
    opening = [findings_list(top)]
    by_section = {
        "more-findings": [finding_block(one) for one in result.findings if not any(one is told for told in top)],
        "moved": blocks(lambda name: name not in PLACED and not name.startswith(MATRICES)),
        "edges": _wiring(result, edges, blocks(lambda name: name in FIGURES["edges"])),
        "channel-changes": _channels(result, blocks(lambda name: name in FIGURES["channel-changes"])),
        "change": [*blocks(lambda name: name in FIGURES["change"]), *_tokens(result)],
        "behavior": _behavior(result, blocks(lambda name: name in FIGURES["behavior"])),
        "matrices": blocks(lambda name: name.startswith(MATRICES)),
        "provenance": [_provenance(attrs)],
    }
    kept = {name: parts for name, parts in by_section.items() if parts}
    sections = [section(name, SECTIONS[name], *parts) for name, parts in kept.items()]
    sections.append(downloads_section(record["tables"]))
    title = f"{_short(attrs['before_model'])} and {_short(attrs['model'])}"
    subtitle = f"{attrs['family']}: {attrs['n_layers']} layers of {attrs['n_heads']} heads, before and after"
    contents = [Entry(name, SECTIONS[name]) for name in kept] + [Entry("downloads", "Downloads")]
    return linked_page(title, subtitle, [View(record, sections, contents, opening, store, later)])


def _record(result: Result, edges: pd.DataFrame, store: Store, later: Store) -> Payload:
    """What the scripts know: how far each head moved, for the side panel, and the tables to save."""
    name, heads = result.lens.name, result.table("heads")
    layers = sorted({int(layer) for layer in heads["head_layer"].dropna()})
    grid = HeadGrid(layers, int(result.attrs["n_heads"]), int(result.attrs["n_kv_heads"]))
    tables = [PageTable(f"{name}-heads", "How far every head moved, one row per role", heads)]
    if len(edges) and not int(result.attrs["identical"]):
        largest = edges[:STRONGEST_PAIRS]
        tables.append(PageTable(f"{name}-edges", "Edges before and after, largest changes first", largest))
    if not int(result.attrs["identical"]):
        others = [each for each in result.lens.schema.tables if each.name not in TOLD and each.name in result.tables]
        tables += [PageTable(f"{name}-{each.name}", each.title, result.table(each.name)) for each in others]
    spectra = result.table("matrices")
    tables.append(PageTable(f"{name}-matrices", "Spectra of every matrix before and after", spectra))
    return payload(PageData(grid, {name: result}, tables=tables), store, later)


def _edges(result: Result) -> pd.DataFrame:
    """Pairs with what became of them, largest change first; empty where wiring was not compared."""
    part = result.lens.part("parts")
    return pd.DataFrame() if part is None else part.edge_changes(result)


def _short(model: object) -> str:
    """The last two parts of a path or name: enough to tell two steps of a run apart."""
    return "/".join(str(model).rstrip("/").split("/")[-2:])


def _wiring(result: Result, edges: pd.DataFrame, figures: list[Markup]) -> list[Markup]:
    """Figures, then one table of the largest changes per pairing; why there are none where there are none."""
    if "wiring_left_out" in result.attrs:
        return [element("p", f"Left out: {result.attrs['wiring_left_out']}.")]
    if int(result.attrs["identical"]):
        return []
    if result.attrs["d_head"] >= result.attrs["d_model"]:
        return [element("p", "Left out: heads are as wide as the stream, so every pair shares all of it.")]
    blocks = [*figures]
    for counts in result.table("pairings").to_dict("records"):
        told = ", ".join(f"{counts[f'n_{name}']} {name}" for name in ("gained", "lost", "kept"))
        rows = edges[edges["pairing"] == counts["pairing"]][:SHOWN].to_dict("records")
        blocks += [element("h3", f"Largest changes, {counts['pairing']} ({told})"), _edge_table(rows)]
    return blocks


def _channels(result: Result, figures: list[Markup]) -> list[Markup]:
    """The figure, then the channels that were gained or lost; why there are none where they were not compared."""
    if "channels_left_out" in result.attrs:
        return [element("p", f"Left out: {result.attrs['channels_left_out']}.")]
    if int(result.attrs["identical"]):
        return []
    rows = result.table("channel_changes")
    found = [(what, rows[rows[name].astype(bool)]) for what, name in (("gain", "gained"), ("loss", "lost"))]
    cells = [
        [
            str(row["src"]),
            str(row["dst"]),
            str(row["pairing"]),
            "gained" if what == "gain" else "lost",
            f"{row['coupling_before']:.3f}",
            f"{row['coupling_after']:.3f}",
            f"{row[what]:.3f}",
            f"{row[f'{what}_null']:.3f}",
            f"{row[f'{what}_q']:.2g}",
        ]
        for what, some in found
        for row in some.sort_values(f"{what}_z", ascending=False)[:SHOWN].to_dict("records")
    ]
    header = ("From", "To", "Pairing", "", "Coupling before", "After", "Gain or loss", "Random change", "q")
    return [*figures, table(header, cells) if cells else element("p", "No channel was gained or lost.")]


def _tokens(result: Result) -> list[Markup]:
    """The directions of changes whose tokens are most concentrated; none where no table was read."""
    if "tokens" not in result.tables:
        return []
    rows = result.table("tokens").dropna(subset=["top_mass"]).sort_values("top_mass_p", kind="stable")[:SHOWN]
    header = ("Matrix", "Layer", "Direction", "Share of the change", "Highest tokens", "Lowest tokens", "q")
    cells = [
        [
            str(row["matrix"]),
            str(row["layer"]),
            str(row["direction"] + 1),
            percent(row["share"]),
            str(row["highest"]),
            str(row["lowest"]),
            f"{row['top_mass_q']:.2g}",
        ]
        for row in rows.to_dict("records")
    ]
    return [element("h3", "Tokens along the change, most concentrated first"), table(header, cells)] if cells else []


def _behavior(result: Result, figures: list[Markup]) -> list[Markup]:
    """The figure with what was run; why nothing was, where it was asked for."""
    if "behavior_left_out" in result.attrs:
        return [element("p", f"Left out: {result.attrs['behavior_left_out']}.")]
    return [element("p", f"Measured on {result.attrs['behavior_on']}."), *figures] if figures else []


def _edge_table(rows: Sequence[Mapping[Any, Any]]) -> Markup:
    header = ("From", "To", "Before", "After", "Random change", "z", "q of the change", "Edge")
    forms = {
        "kernel_before": "{:.3f}",
        "kernel_after": "{:.3f}",
        "change_null": "{:+.3f}",
        "change_z": "{:+.1f}",
        "change_q": "{:.2g}",
    }
    cells = [
        [
            str(row["src"]),
            str(row["dst"]),
            *("-" if row[name] != row[name] else form.format(row[name]) for name, form in forms.items()),
            str(row["status"]),
        ]
        for row in rows
    ]
    return table(header, cells)


def _provenance(attrs: Mapping[str, Any]) -> Markup:
    both = table(("", "Before", "After"), [[name, str(attrs[f"before_{name}"]), str(attrs[name])] for name in BESIDE])
    told = {*BESIDE, *(f"before_{name}" for name in BESIDE), "identical"}
    rest = facts((str(name), str(value)) for name, value in attrs.items() if name not in told and str(value))
    return element("div", both, rest)
