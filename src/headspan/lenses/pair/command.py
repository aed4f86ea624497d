"""`headspan pair`: everything about one pair of heads."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import print_json


def pair(
    model: shared.Model,
    src: Annotated[str, typer.Argument(metavar="SOURCE", help="A head such as L4H11.")],
    dst: Annotated[str, typer.Argument(metavar="DESTINATION", help="A head of a later layer, such as L5H1.")],
    pairing: Annotated[str, typer.Option(help="Pairings such as OQ,OK,OV, or all.")] = "all",
    fold: shared.Fold = "none",
    delta: shared.Delta = 0,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Show every score, angle, null and rank of one pair of heads."""
    from headspan.checkpoint import open_checkpoint
    from headspan.lenses.affinity.pair import pair_report
    from headspan.lenses.saving import without_nan

    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    found = pair_report(heads, src, dst, pairing, delta)
    if as_json:
        print_json(without_nan(found))
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    """A row per pairing and score, then what the numbers depend on."""
    from headspan.cli.tables import p_text, print_facts, print_table

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
