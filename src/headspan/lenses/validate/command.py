"""`headspan validate`: whether the geometry of the weights predicts what the model does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headspan.command import RUN, Command, Facts, Option, Rows

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = 12
COMMAND = Command(
    "Test the geometry of a model on its behavior: null spaces, distances of heads, and messages between them.",
    RUN,
    options={
        "buffers": Option("Tokens to measure on: sampled from the model (default), or repeated random tokens."),
        "count": Option("How many buffers of tokens."),
        "length": Option("Tokens of a buffer."),
        "strong": Option("Pairs per pairing and score, strongest first; weak ones match."),
        "random": Option("Random pairs per pairing."),
        "controls": Option("Control removals per pair."),
        "permutations": Option("Of the Mantel test; also draws of bootstraps."),
    },
    python_only=frozenset({"tokens"}),
)


def show(result: Result) -> Iterator[str | Rows | Facts]:
    """What each question found, and why another was not asked."""
    yield Facts([("", finding.statement) for finding in result.findings], "Does geometry predict behavior?")
    if "distance" in result:
        rows = result.table("layers").to_dict("records")
        yield Rows.of_records("Distance of attention spaces against divergence of patterns", rows)
    if "cause" in result:
        found = _rankings(result.table("rankings").dropna(subset="spearman").to_dict("records"))
        yield Rows.of_records("How scores rank the effects of a removed message: Spearman, 95 % interval", found)
        pairs = result.table("pairs").sort_values("removed_share", ascending=False, na_position="last")
        rows = [_pair_row(row) for row in pairs.head(SHOWN).to_dict("records")]
        yield Rows.of_records(f"Pairs whose message is read most, {len(rows)} of {len(pairs)}; changes in nats", rows)
    for name in ("invariance", "distance", "cause"):
        reason = result.attrs[f"{name}_obstacle"]
        if reason:
            yield f"{name.capitalize()} does not apply to this model: {reason}."


def _rankings(ranking: list[dict[Any, Any]]) -> list[dict[str, str]]:
    """One row per pairing, sample and outcome, with both scores side by side."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in ranking:
        key = (row["pairing"], row["sample"], row["outcome"])
        named = {"pairing": key[0], "pairs": key[1], "effect": key[2].replace("_", " ")}
        rows.setdefault(key, {**named, "projection kernel": "-", "composition score": "-"})
        told = f"{row['spearman']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"
        rows[key][row["score"].replace("_", " ")] = told
    return list(rows.values())


def _pair_row(row: dict[Any, Any]) -> dict[str, str]:
    """A tested pair with names and numbers short enough for a terminal."""
    names = {"": "pairing", "from": "src", "to": "dst", "pair": "chosen"}
    numbers = {"kernel": "projection_kernel", "read": "removed_share", "pattern": "pattern_change"}
    numbers |= {"(control)": "pattern_control", "loss": "loss_change", "(its)": "loss_control"}
    told = {name: "-" if row[key] != row[key] else f"{row[key]:.2g}" for name, key in numbers.items()}
    return {**{name: str(row[key]) for name, key in names.items()}, **told}
