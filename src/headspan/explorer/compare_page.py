"""Two checkpoints on one page: what stands out, what moved, which edges turned over, provenance of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
import xarray as xr

from headspan.atomic import written_whole
from headspan.explorer.compare_record import compare_record
from headspan.explorer.downloads import downloads_section
from headspan.explorer.figure_block import figure_blocks
from headspan.explorer.findings_section import finding_block
from headspan.explorer.html import Markup, element, facts, section, table
from headspan.explorer.page import linked_page
from headspan.explorer.store import Store
from headspan.figures import figures_of
from headspan.finding import Finding
from headspan.findings import findings_of
from headspan.lenses.compare import edge_changes, wiring_pairings
from headspan.lenses.compare.tables import turnover

SHOWN = 15
BESIDE = ("model", "revision", "file_hash", "stored_dtype")
SECTIONS = {
    "findings": "What stands out",
    "drift": "What moved",
    "wiring": "Edges gained and lost",
    "spectra": "Spectra",
    "provenance": "Where these numbers come from",
}
SPECTRA = "Spectra of matrices"
WIRING_FIGURES = ("Edges gained and lost", "Kernels before and after")


def write_compare_page(result: xr.DataTree, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(compare_page(result), encoding="utf-8")


def compare_page(result: xr.DataTree) -> str:
    """The page as one HTML document, its figures, tables and side panel linked as in a report."""
    drawn, found, store = figures_of("compare", result), findings_of("compare", result), Store()
    record = compare_record(result, store)
    by_section = {
        "findings": [_ranked(found)],
        "drift": _blocks({name: figure for name, figure in drawn.items() if _of_drift(name)}, store),
        "wiring": _wiring(result, drawn, store),
        "spectra": _blocks({name: figure for name, figure in drawn.items() if name.startswith(SPECTRA)}, store),
        "provenance": [_provenance(result)],
    }
    kept = {name: blocks for name, blocks in by_section.items() if blocks}
    sections = [section(name, SECTIONS[name], *blocks) for name, blocks in kept.items()]
    sections.append(downloads_section(record, str(result.attrs["model"])))
    title = f"{_short(result.attrs['before_model'])} and {_short(result.attrs['model'])}"
    layers = result["drift"].sizes["layer"]
    subtitle = f"{result.attrs['family']}: {layers} layers of {result.attrs['n_heads']} heads, before and after"
    contents = {name: SECTIONS[name] for name in kept} | {"downloads": "Downloads"}
    return linked_page(title, subtitle, contents, sections, record, store)


def _blocks(figures: Mapping[str, go.Figure], store: Store) -> list[Markup]:
    return figure_blocks(figures, store, "compare")


def _short(model: object) -> str:
    """The last two parts of a path or name: enough to tell two steps of a run apart."""
    return "/".join(str(model).rstrip("/").split("/")[-2:])


def _of_drift(name: str) -> bool:
    return name not in WIRING_FIGURES and not name.startswith(SPECTRA)


def _ranked(found: Sequence[Finding]) -> Markup:
    if not found:
        return element("p", "Nothing to remark on.")
    return element("div", *map(finding_block, found))


def _wiring(result: xr.DataTree, drawn: Mapping[str, go.Figure], store: Store) -> list[Markup]:
    """Figures, then one table of the largest changes per pairing; why there are none where there are none."""
    if "wiring_left_out" in result.attrs:
        return [element("p", f"Left out: {result.attrs['wiring_left_out']}.")]
    if int(result.attrs["identical"]):
        return []
    if result.attrs["d_head"] >= result.attrs["d_model"]:
        return [element("p", "Left out: heads are as wide as the stream, so every pair shares all of it.")]
    blocks = _blocks({name: drawn[name] for name in WIRING_FIGURES if name in drawn}, store)
    for pairing in wiring_pairings(result):
        counts = turnover(result, pairing)
        told = ", ".join(f"{counts[name]} {name}" for name in ("gained", "lost", "kept"))
        rows = edge_changes(result, pairing)[:SHOWN].to_dict("records")
        blocks += [element("h3", f"Largest changes, {pairing} ({told})"), _edge_table(rows)]
    return blocks


def _edge_table(rows: Sequence[dict[str, object]]) -> Markup:
    header = ("From", "To", "Before", "After", "Random change", "z", "q of the change", "Edge")
    numbers = ("kernel_before", "kernel_after", "change_chance", "change_z", "q_value")
    forms = ("{:.3f}", "{:.3f}", "{:+.3f}", "{:+.1f}", "{:.2g}")
    cells = [
        [
            str(row["src"]),
            str(row["dst"]),
            *(
                "-" if row[name] != row[name] else form.format(row[name])
                for name, form in zip(numbers, forms, strict=True)
            ),
            str(row["status"]),
        ]
        for row in rows
    ]
    return table(header, cells)


def _provenance(result: xr.DataTree) -> Markup:
    attrs = result.attrs
    both = table(("", "Before", "After"), [[name, str(attrs[f"before_{name}"]), str(attrs[name])] for name in BESIDE])
    told = {*BESIDE, *(f"before_{name}" for name in BESIDE), "identical"}
    rest = facts((str(name), str(value)) for name, value in attrs.items() if name not in told and str(value))
    return element("div", both, rest)
