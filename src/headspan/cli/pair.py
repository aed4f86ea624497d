"""`headspan pair`: everything about one pair of heads."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Delta, Fold, Model, Stack


def pair(
    model: Model,
    src: Annotated[str, typer.Argument(metavar="SOURCE", help="A head such as L4H11.")],
    dst: Annotated[str, typer.Argument(metavar="DESTINATION", help="A head of a later layer, such as L5H1.")],
    pairing: Annotated[str, typer.Option(help="Pairings such as OQ,OK,OV, or all.")] = "all",
    fold: Fold = "none",
    delta: Delta = 0,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Show every score, angle, null and rank of one pair of heads."""
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.tables import p_text, print_facts, print_table
    from headspan.lenses.affinity.pair import pair_report
    from headspan.lenses.saving import without_nan

    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    found = pair_report(heads, src, dst, pairing, delta)
    if as_json:
        typer.echo(json.dumps(without_nan(found), indent=2, allow_nan=False))
        return
    rows = []
    for name, scores in found["pairings"].items():
        for metric in ("pk", "cs"):
            if metric in scores:
                one, angles = scores[metric], scores["angles"]["degrees"]
                shown = f"{angles[0]:.1f} to {angles[-1]:.1f}" if metric == "pk" and angles else ""
                p_values = [one["nulls"][null]["p_value"] for null in ("haar", "anticausal")]
                rows.append(
                    (
                        f"{name} {metric}",
                        f"{one['score']:.4f}",
                        f"{one['chance_mean']:.4f}",
                        f"{one['rank']:,} of {one['n_pairs']:,}",
                        *map(p_text, p_values),
                        shown,
                    )
                )
    columns = ("pairing", "score", "chance", "rank", "p (haar)", "p (anticausal)", "angles, degrees")
    print_table(f"{found['src']} -> {found['dst']}", columns, rows)
    provenance = found["provenance"]
    facts = [(name, str(provenance[name])) for name in ("model", "file_hash", "fold", "dtype", "delta")]
    print_facts([*facts, ("reproduce with", found["command"])])
