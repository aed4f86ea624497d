"""Downloads: every table that the page carries, to be saved as CSV, and the command that writes the rest."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from headspan.explorer.html import Markup, element, section


def downloads_section(record: Mapping[str, Any], model: str) -> Markup:
    """One row per table, with a button that makes the file in the browser.

    Parameters
    ----------
    record
        Of the page.
    model
        What the model was called when the report was made.
    """
    head = element("tr", *(element("th", name, scope="col") for name in ("Table", "Rows", "Columns", "")))
    rows = [_row(table) for table in record["tables"]]
    listed = element("div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll")
    about = "The numbers behind the figures, as CSV. Files are made by this page out of the data it carries."
    return section("downloads", "Downloads", element("p", about, class_="lead"), listed, *_rest(record, model))


def _row(table: Mapping[str, Any]) -> Markup:
    button = element("button", f"{table['name']}.csv", type_="button", data_csv=table["name"])
    names = ", ".join(column["name"] for column in table["columns"])
    return element(
        "tr",
        element("td", table["title"], element("div", names, class_="evidence columns-list")),
        element("td", f"{table['length']:,}", class_="number"),
        element("td", str(len(table["columns"])), class_="number"),
        element("td", button),
    )


def _rest(record: Mapping[str, Any], model: str) -> list[Markup]:
    """How to have every pair, where the page holds the strongest alone."""
    if not record["pairs"] or record["pairs"]["whole"]:
        return []
    command = f"headspan affinity {quote(model)} -o pairs.nc"
    words = "This model has too many pairs of heads for one page. All of them, with every p-value, are written by "
    return [element("p", words, element("code", command), ".", class_="note")]
