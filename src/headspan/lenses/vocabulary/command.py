"""`headspan vocabulary`: directions of heads and MLPs in tokens, copying, relations, and tokens inside a subspace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.command import Command, Form, Option, Rows, p_text
from headspan.finding import percent

if TYPE_CHECKING:
    import pandas as pd

    from headspan.result import Result

COMMAND = Command(
    help="Read what heads and MLPs respond to and write as tokens; find heads that copy or relate words.",
    options={
        "head": Option("One head such as L4H7, or several with commas; all by default.", names=("--head", "--heads")),
        "matrices": Option("Of OV,QK,MLP,W_U; all by default.", names=("--matrices", "--matrix")),
        "neurons": Option("Neurons of MLPs such as L3N1024,L0N5.", names=("--neurons", "--neuron")),
        "leading": Option("How many singular directions of each matrix.", int),
        "count": Option("Tokens at each end of a direction, or inside a projection.", int),
        "relations": Option("A CSV file with the columns relation, left, right, in place of the own lists.", Path),
        "projection": Option("Q, K, V or O: list the tokens with most of their norm inside this space of --head."),
        "table": Option("W_E or W_U for --projection; by default W_E for Q, K, V and W_U for O."),
        "all_tokens": Option("Also show special, unused and byte tokens.", bool),
        "top": Option("How many rows of each table.", int),
    },
    python_only=frozenset({"tokenizer"}),
)
MATRIX: dict[str, tuple[str, Form]] = {
    "place": ("", "{}"),
    "side": ("side", "{}"),
    "energy": ("energy", partial(percent, digits=1)),
    "top_mass": ("top 10", partial(percent, digits=1)),
    "top_mass_null": ("expected", partial(percent, digits=1)),
    "q": ("q", "{}"),
    "tokens_high": ("highest", "{}"),
    "tokens_low": ("lowest", "{}"),
}


def show(result: Result, *, top: int = 20) -> Iterator[str | Rows]:
    """The most concentrated directions, copying heads, relations, neurons; or the tokens of a projection."""
    if "projection" in result:
        made = result.attrs
        rows = result.table("projection").rename(columns={"share_null": "expected"})
        yield Rows.of_records(f"Tokens inside W_{made['role']} of {made['head']}", rows.to_dict("records"))
        return
    yield _tables(result)
    if "directions" in result.tables:
        rows = result.table("directions").sort_values("top_mass_p", kind="stable").head(top)
        yield Rows.of_columns("Directions in tokens, most concentrated first", MATRIX, _placed(rows))
    if "neurons" in result.tables:
        rows = result.table("neurons").assign(energy=float("nan"))
        columns = {name: form for name, form in MATRIX.items() if name != "energy"}
        yield Rows.of_columns("Neurons in tokens", columns, _placed(rows))
    if "copying" in result.tables:
        yield _copying(result, top)
    if "relations" in result.tables:
        rows = result.table("relations").sort_values("relation_score_p", kind="stable").head(top)
        records = [
            {
                "relation": row["relation"],
                "head": row["head"],
                "pairs": row["pairs"],
                "z": row["relation_score_z"],
                "hits": row["hits"],
                "q": p_text(row["relation_score_q"]),
            }
            for row in rows.to_dict("records")
        ]
        yield Rows.of_records("Relations: heads that map left words to right ones", records)
    yield from (finding.statement for finding in result.findings)


def _tables(result: Result) -> str:
    """Which tables tokens were read through, and which tokens are left out."""
    made = result.attrs
    left_out = [
        f"{made[f'{name}_tokens']:,} {name}" for name in ("special", "unused", "byte") if made[f"{name}_tokens"]
    ]
    action = "left out" if made["filtered"] else "shown too"
    which = f"; {action}: {', '.join(left_out)}" if left_out else ""
    return (
        f"Read through {made['read_table']}, written through {made['write_table']}, fold {made['fold']}: "
        f"{made['tokens_kept']:,} of {made['tokens']:,} tokens{which}."
    )


def _placed(rows: pd.DataFrame) -> list[dict[str, object]]:
    return [
        {**row, "place": _place(row), "q": p_text(row["top_mass_q"])}
        for row in rows.to_dict("records")
        if row["top_mass"] == row["top_mass"]
    ]


def _place(row: dict[str, object]) -> str:
    """Where a direction is from: `L4H7 OV 1`, `L3 MLP 2`, `W_U 1`, `L3N1024`."""
    if "neuron" in row:
        return str(row["neuron"])
    head, layer = row.get("head"), row.get("layer")
    where = head if isinstance(head, str) else f"L{layer}" if row["matrix"] == "MLP" else ""
    return f"{where} {row['matrix']} {row['direction']}".strip()


def _copying(result: Result, top: int) -> Rows:
    rows = result.table("copying")
    names = [name for name in ("copying", "matching") if name in rows]
    order = rows[f"{names[0]}_z"].abs().sort_values(ascending=False, kind="stable").index
    records = []
    for row in rows.loc[order].head(top).to_dict("records"):
        record = {"head": row["head"]}
        for name in names:
            record |= {name: row[name], f"{name} z": row[f"{name}_z"], f"{name} q": p_text(row[f"{name}_q"])}
        records.append(record)
    return Rows.of_records("Copying (OV) and matching (QK) of equal tokens, from -1 to 1, expected 0", records)
