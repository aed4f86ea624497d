"""`headspan inspect`: what a checkpoint is, from its headers alone."""

from __future__ import annotations

import json

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Model


def inspect(model: Model, config: ConfigFile = None, as_json: AsJSON = False) -> None:
    """Say what a checkpoint is: family, shape, positions, norm, what is missing, which analyses apply.

    Reads headers only: it takes a moment for a model of any size.
    """
    from headspan.checkpoint import open_checkpoint, summary
    from headspan.lenses import obstacles

    checkpoint = open_checkpoint(model, config)
    about, hindered = summary(checkpoint), obstacles(checkpoint)
    if as_json:
        analyses = {name: {"applies": reason is None, "reason": reason} for name, reason in hindered.items()}
        typer.echo(json.dumps({**about.as_json(), "analyses": analyses}, indent=2, allow_nan=False))
        return
    from headspan.cli.tables import print_facts
    from headspan.report.model_section import analyses_rows, model_facts, stack_facts

    print_facts([*model_facts(about), *(row for stack in about.stacks for row in stack_facts(stack))])
    print_facts(analyses_rows(hindered), title="Analyses")
