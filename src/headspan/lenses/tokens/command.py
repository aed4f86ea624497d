"""`headspan tokens`: which tokens live in what a head reads or writes."""

from __future__ import annotations

from typing import Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import print_json


def tokens(
    model: shared.Model,
    head: Annotated[str, typer.Argument(metavar="HEAD", help="A head such as L4H7.")],
    role: Annotated[str, typer.Option(help="Q, K or V (what the head reads) or O (what it writes).")] = "Q",
    table: Annotated[str | None, typer.Option(help="W_E or W_U; by default W_E for Q, K, V and W_U for O.")] = None,
    top: Annotated[int, typer.Option(help="How many tokens.")] = 20,
    fold: shared.Fold = "none",
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """List the tokens whose embeddings have most of their norm inside a head's subspace."""
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.tables import print_records
    from headspan.lenses.affinity.token_projection import token_shares
    from headspan.lenses.saving import without_nan

    heads = open_checkpoint(model, config).heads(stack=stack).refolded(fold)
    shares = token_shares(heads, head, role.upper(), table, top)
    if as_json:
        document = {
            "schema": "headspan.tokens/1",
            "provenance": heads.provenance(),
            "head": head,
            "role": role.upper(),
            "tokens": shares.to_dict("records"),
        }
        print_json(without_nan(document))
        return
    print_records(f"Tokens inside W_{role.upper()} of {head}", shares.to_dict("records"))
