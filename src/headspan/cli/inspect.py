"""`headspan inspect`: what a checkpoint is, from its headers alone.

`headspan families`: every kind of model that is described, and how it stores its attention.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headspan.cli import options as shared
from headspan.cli.delivery import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headspan.checkpoint import Summary


def inspect(model: shared.Model, config: shared.ConfigFile = None, as_json: shared.AsJSON = False) -> None:
    """Say what a checkpoint is: family, shape, positions, norm, what is missing, which analyses apply.

    Reads headers only: it takes a moment for a model of any size.
    """
    from headspan.checkpoint import summary
    from headspan.lenses.model import open_model

    opened = open_model(model, config)
    about, reasons = summary(opened.checkpoint), {name: opened.skip_reasons(name) for name in opened.stacks}
    if as_json:
        print_json(_document(about, reasons))
        return
    from headspan.cli.delivery import print_facts
    from headspan.explorer.model_section import analyses_rows, model_facts, stack_facts

    print_facts([*model_facts(about), *(row for stack in about.stacks for row in stack_facts(stack))])
    for name, found in reasons.items():
        print_facts(analyses_rows(found), title="Analyses" if len(reasons) == 1 else f"Analyses of the {name} stack")


def _document(about: Summary, reasons: Mapping[str, Mapping[str, str | None]]) -> dict[str, Any]:
    """The JSON answer: which analyses apply to each stack and, where there is only one, to the model."""
    document = about.as_json()
    for stack in document["stacks"]:
        stack["analyses"] = {
            name: {"applies": reason is None, "reason": reason} for name, reason in reasons[stack["name"]].items()
        }
    if len(document["stacks"]) == 1:
        document["analyses"] = document["stacks"][0]["analyses"]
    return document


def families(as_json: shared.AsJSON = False) -> None:
    """List every supported model type with its layout, grouped heads, norm and position scheme."""
    from headspan.checkpoint.families import catalog

    rows = list(catalog())
    if as_json:
        document = {"schema": "headspan.families/1", "families": [asdict(row) for row in rows]}
        print_json(document)
        return
    from headspan.cli.delivery import print_table

    columns = ("type", "stacks", "layout", "grouped", "norm", "positions", "besides")
    print_table(f"{len(rows)} families", columns, [tuple(asdict(row).values()) for row in rows])
