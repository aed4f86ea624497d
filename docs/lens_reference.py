"""The reference of every lens, made from its schema: `{lens-reference}` on a page.

1. A section per lens: its summary, the public function with its docstring, where its results lie.
2. Variables by node, as the schema declares them: name (with those derived from it), dims, meaning, range, null. Nodes
   with the same variables share a table.
3. Definitions: formula, words and source of the variables that have them, as in the report's methods.
4. The tables that `Result.table` and files hold, and the metrics that `Result.top` ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from headspan.explorer.methods import formula
from headspan.lenses.catalog import lenses
from headspan.result import Lens
from headspan.schema import Schema, Variable

HEADINGS = ("variable", "dims", "meaning", "range", "null")
Cell = nodes.Node | str


def node_groups(schema: Schema) -> Iterator[tuple[list[str], tuple[Variable, ...]]]:
    """Patterns of node names with the variables they share; formulas may stand at one of them only."""
    groups: dict[object, tuple[list[str], tuple[Variable, ...]]] = {}
    for pattern, variables in schema.nodes.items():
        shared = tuple((one.name, one.dims, one.long_name, one.range, one.null, one.derived) for one in variables)
        groups.setdefault(shared, ([], variables))[0].append(pattern)
    yield from groups.values()


def definitions(schema: Schema) -> list[Variable]:
    """The variables that say how they are defined, each once."""
    found = {
        one.long_name: one
        for variables in reversed(schema.nodes.values())
        for one in reversed(variables)
        if one.formula or one.text
    }
    return list(reversed(found.values()))


class LensReference(SphinxDirective):
    """`{lens-reference}`: every lens of headspan itself."""

    def run(self) -> list[nodes.Node]:
        own = [lens for lens in lenses().values() if lens.package.startswith("headspan.")]
        return [self._section(lens) for lens in own]

    def _section(self, lens: Lens) -> nodes.section:
        section = _titled(lens.name, nodes.literal("", lens.name))
        section += _paragraph(f"{lens.summary[0].upper()}{lens.summary[1:]}.")
        signature = ["```{eval-rst}", f".. autofunction:: headspan.{lens.name}", "```"]
        self.state.nested_parse(StringList(signature, source=lens.package), self.content_offset, section)
        for patterns, variables in node_groups(lens.schema):
            section += _where(patterns)
            section += _table(HEADINGS, map(_row, variables))
        defined = definitions(lens.schema)
        if defined:
            section += _subtitle("Definitions")
            section += nodes.definition_list("", *map(_definition, defined))
        section += _tables(lens.schema)
        return section


def _where(patterns: Sequence[str]) -> nodes.Node:
    """The line above a table of variables: in which nodes they are."""
    if list(patterns) == [""]:
        return _subtitle("Variables of the result")
    named = _joined([nodes.literal("", f"result[{one!r}]") if one else nodes.Text("result") for one in patterns])
    return nodes.paragraph("", "", nodes.strong("", "", nodes.Text("Variables of "), *named))


def _row(variable: Variable) -> tuple[Cell, ...]:
    name = nodes.paragraph("", "", nodes.literal("", variable.name))
    for suffix in variable.derived:
        name += [nodes.Text(" "), nodes.literal("", f"_{suffix}")]
    if variable.optional:
        name += nodes.Text(" (optional)")
    return name, ", ".join(variable.dims) or "none", variable.long_name, variable.range, variable.null


def _definition(variable: Variable) -> nodes.definition_list_item:
    body = nodes.definition()
    if variable.formula:
        body += nodes.raw("", str(formula(variable.formula)), format="html")
    told = [variable.text, f"Reference: {variable.reference}." if variable.reference else ""]
    body += _paragraph(" ".join(part for part in told if part))
    return nodes.definition_list_item("", nodes.term("", variable.long_name), body)


def _tables(schema: Schema) -> list[nodes.Node]:
    """The tables of a result, and what `top` ranks."""
    found: list[nodes.Node] = []
    if schema.tables:
        found.append(_subtitle("Tables"))
        rows = [
            (
                nodes.paragraph("", "", nodes.literal("", table.name)),
                table.title,
                nodes.paragraph("", "", *_joined([nodes.literal("", name) for name in table.like])),
            )
            for table in schema.tables
        ]
        found.append(_table(("table", "shows", "a row for every cell of"), rows))
    if schema.metrics:
        names = _joined([nodes.literal("", name) for name in schema.metrics])
        found.append(
            nodes.paragraph(
                "", "", nodes.Text("Metrics that "), nodes.literal("", "top"), nodes.Text(" ranks: "), *names
            )
        )
    return found


def _table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> nodes.container:
    group = nodes.tgroup(cols=len(headings))
    group += [nodes.colspec(colwidth=1) for _ in headings]
    group += nodes.thead("", _table_row(headings))
    group += nodes.tbody("", *map(_table_row, rows))
    return nodes.container("", nodes.table("", group), classes=["wide-table"])


def _table_row(cells: Sequence[Cell]) -> nodes.row:
    filled = [_paragraph(cell) if isinstance(cell, str) else cell for cell in cells]
    return nodes.row("", *(nodes.entry("", cell) for cell in filled))


def _joined(parts: Sequence[nodes.Node]) -> list[nodes.Node]:
    """Parts with commas between them."""
    return [each for part in parts for each in (nodes.Text(", "), part)][1:]


def _titled(name: str, title: nodes.Node) -> nodes.section:
    section = nodes.section(ids=[f"lens-{nodes.make_id(name)}"], names=[f"lens {name}"])
    section += nodes.title("", "", title)
    return section


def _subtitle(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.strong("", text))


def _paragraph(text: str) -> nodes.paragraph:
    return nodes.paragraph("", text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("lens-reference", LensReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
