"""The options of a command, read from the command line itself when pages are built: `{command-options} affinity`."""

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from headspan.cli.main import app

SHARED = {"--help", "--json", "--output", "--figures", "--figure-format", "--dark", "--force", "--time-limit"}
"""What every command has; the quick start tells of it once."""


def rows(name: str) -> list[tuple[str, str, str]]:
    """Option, default and meaning of every option of a command that not all have."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    found = []
    for one in command.params:
        if one.param_type_name == "option" and not SHARED & set(one.opts) and not getattr(one, "hidden", False):
            plain = one.default not in (None, False, (), []) and not callable(one.default)
            found.append(
                (f"`{one.opts[0]}`", f"`{one.default}`" if plain else "", (one.help or "").replace("|", "\\|"))
            )
    return found


class CommandOptions(SphinxDirective):
    """A table, one row per option."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        cells = [("option", "default", "meaning"), ("---", "---", "---"), *rows(self.arguments[0])]
        lines = StringList([f"| {' | '.join(row)} |" for row in cells], source=self.arguments[0])
        holder = nodes.container(classes=["wide-table"])
        self.state.nested_parse(lines, self.content_offset, holder)
        return [holder]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
