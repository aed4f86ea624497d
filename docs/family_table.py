"""The table of families, made from the code when the pages are built."""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from headspan.checkpoint.families import catalog

COLUMNS = ("`model_type`", "stacks", "query, key, value", "grouped heads", "norm", "positions", "besides")


class FamilyTable(SphinxDirective):
    """`{family-table}`: one row per family."""

    def run(self) -> list[nodes.Node]:
        rows = [COLUMNS, ("---",) * len(COLUMNS)]
        for family in catalog():
            facts = (family.stacks, family.layout, family.grouped, family.norm, family.positions, family.besides)
            rows.append((f"`{family.model_type}`", *facts))
        lines = StringList([f"| {' | '.join(row)} |" for row in rows], source="catalog")
        holder = nodes.container(classes=["wide-table"])
        self.state.nested_parse(lines, self.content_offset, holder)
        return [holder]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("family-table", FamilyTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
