"""`headspan validate`: whether the geometry of the weights predicts what the model does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headspan.command import RUN, Command, Facts, Option, Rows

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = 12
TESTS = (
    ("contrasts", "ratio", "Effect of strong and weak pairs over what source and target lead to expect"),
    ("rankings", "spearman", "Rank correlation of scores with effects at equal read energy"),
)
COMMAND = Command(
    "Test the geometry of a model on its behavior: null spaces, distances of heads, and messages between them.",
    RUN,
    options={
        "buffers": Option("Tokens to measure on: sampled from the model (default), or repeated random tokens."),
        "count": Option("How many buffers of tokens."),
        "length": Option("Tokens of a buffer."),
        "strong": Option("Strongest pairs per pairing and score whose blocks are tested."),
        "random": Option("Random blocks per pairing."),
        "group": Option("Heads of a layer that are compared with one another, at most."),
        "permutations": Option("Of heads, in all tests; also draws of the bootstrap."),
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
        for table, value, title in TESTS:
            rows = [_test_row(row, value) for row in result.table(table).dropna(subset=value).to_dict("records")]
            yield Rows.of_records(title, rows)
        pairs = result.table("pairs")
        pairs = pairs[pairs["chosen"] == "strong"].sort_values("projection_kernel", ascending=False)
        rows = [_pair_row(row) for row in pairs.head(SHOWN).to_dict("records")]
        title = f"Strong pairs, {len(rows)} of {len(pairs)}; effects at equal read energy, in nats"
        yield Rows.of_records(title, rows)
    for name in ("invariance", "distance", "cause"):
        reason = result.attrs[f"{name}_obstacle"]
        if reason:
            yield f"{name.capitalize()} does not apply to this model: {reason}."


def _test_row(row: dict[Any, Any], value: str) -> dict[str, str]:
    """A test with the untrained twin's value beside it."""
    names = {
        name: str(row[name]).replace("_", " ") for name in ("pairing", "sample", "score", "outcome") if name in row
    }
    numbers = {value: row[value], "untrained": row[f"{value}_untrained"]}
    tested = {"p": f"{row[f'{value}_p']:.2g}", "q": f"{row[f'{value}_q']:.2g}"}
    return {**names, **{name: f"{number:.2f}" for name, number in numbers.items()}, **tested}


def _pair_row(row: dict[Any, Any]) -> dict[str, str]:
    """A tested pair with names and numbers short enough for a terminal."""
    names = {"": "pairing", "from": "src", "to": "dst"}
    numbers = {"kernel": "projection_kernel", "read": "read_share", "pattern": "pattern_change"}
    numbers |= {"(expected)": "pattern_expected", "loss": "loss_size", "(its)": "loss_expected"}
    told = {name: "-" if row[key] != row[key] else f"{row[key]:.2g}" for name, key in numbers.items()}
    return {**{name: str(row[key]) for name, key in names.items()}, **told}
