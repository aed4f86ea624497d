"""`headspan inspect`: what a checkpoint is, from its headers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headspan.cli import arguments as shared
from headspan.cli.delivery import print_json

if TYPE_CHECKING:
    from headspan.checkpoint import Summary


def inspect(model: shared.Model, config: shared.ConfigFile = None, as_json: shared.AsJSON = False) -> None:
    """Say what a checkpoint is: family, shape, positions, norm, what is missing, which analyses apply.

    Reads headers only: it takes a moment for a model of any size.
    """
    from headspan.checkpoint import open_checkpoint, summary
    from headspan.lenses import obstacles

    checkpoint = open_checkpoint(model, config)
    about, hindered = summary(checkpoint), {name: obstacles(checkpoint, name) for name in checkpoint.stacks}
    if as_json:
        print_json(_document(about, hindered))
        return
    from headspan.cli.tables import print_facts
    from headspan.explorer.model_section import analyses_rows, model_facts, stack_facts

    print_facts([*model_facts(about), *(row for stack in about.stacks for row in stack_facts(stack))])
    for name, reasons in hindered.items():
        print_facts(analyses_rows(reasons), title="Analyses" if len(hindered) == 1 else f"Analyses of the {name} stack")


def _document(about: Summary, hindered: dict[str, dict[str, str | None]]) -> dict[str, Any]:
    """The JSON answer: which analyses apply to each stack and, where there is only one, to the model."""
    document = about.as_json()
    for stack in document["stacks"]:
        stack["analyses"] = {
            name: {"applies": reason is None, "reason": reason} for name, reason in hindered[stack["name"]].items()
        }
    if len(document["stacks"]) == 1:
        document["analyses"] = document["stacks"][0]["analyses"]
    return document
