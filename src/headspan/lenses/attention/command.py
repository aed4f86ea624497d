"""`headspan attention`: what every head attends to on a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspan.command import RUN, Command, Option, Rows, cell

if TYPE_CHECKING:
    import xarray as xr

    from headspan.result import Result

SHOWN = 10
COLUMNS = ("effective_positions", "self_mass", "previous_mass", "first_mass", "sink_mass", "write_share")
SHOT_COLUMNS = ("head", "within", "within_null", "within_z", "within_p", "own_word", "other_word")
BATCH_COLUMNS = ["head", *(f"{name}_{end}" for name in ("relative_entropy", "previous_mass") for end in ("mean", "sd"))]

COMMAND = Command(
    "Attention maps of a running model on a prompt, with entropies and other statistics of every head.",
    RUN,
    options={
        "prompt": Option("The text to run the model on.", list[str]),
        "few_shot": Option(
            "A CSV file of word;clue pairs, shown as shots, or bundled for a list of our own; several for a batch.",
            list[Path],
        ),
        "shots": Option("Few-shot: how many pairs to show.", int),
        "targets": Option(
            "Few-shot: words to ask for, separated by commas; by default those not shown.",
            names=("--targets", "--target"),
        ),
        "template": Option("Few-shot: text with {word} and {clue}, in place of the chat template."),
        "preamble": Option("Few-shot: an instruction before the first shot."),
        "every_count": Option("Few-shot: write clues after 0, 1, ... shots too.", names=("--every-count",)),
        "length": Option("Few-shot: tokens of a written clue.", int),
        "temperature": Option("Few-shot: 0 writes the likeliest clue.", float),
        "level": Option("Maps between tokens (token) or words (word)."),
        "pooling": Option("Words: mean over queries (rows sum to 1), or sum."),
        "special": Option("Special tokens in the maps: keep or drop."),
        "words": Option("Only these words in the maps, separated by commas."),
        "permutations": Option("Of the test of angles; 0 leaves it out.", int),
    },
)


def prepare(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Repeated options as a batch, single ones as they are."""
    for name in ("prompt", "few_shot"):
        value = options.get(name)
        if isinstance(value, list) and given[name]:
            options[name] = value[0] if len(value) == 1 else value
        elif value == []:
            options[name] = None
    return options


def show(result: Result) -> Iterator[str | Rows]:
    """The heads that attend most narrowly, layers, and for a few-shot prompt its shots and clues."""
    if "batch" in result:
        prompts = result.table("prompts").to_dict("records")
        yield Rows.of_records(f"{len(prompts)} prompts; maps and layers are those of the first", prompts)
    data, heads = result.dataset(), result.table()
    known = heads[heads["entropy"].notna()].sort_values("entropy", kind="stable").head(SHOWN)
    rows = [[row["head"], *(_number(row[name]) for name in COLUMNS)] for row in known.to_dict("records")]
    yield Rows(
        f"{data.attrs['n_tokens']} tokens; narrowest heads, {len(known)} of {len(heads)}, uniform attention below",
        ["head", *(name.replace("_", " ") for name in COLUMNS)],
        [*rows, ["uniform", *(_number(float(data[f"{name}_null"])) for name in COLUMNS)]],
    )
    if data.attrs["dropped"]:
        yield f"The last {data.attrs['dropped']} tokens exceeded the context and were cut."
    yield Rows.of_records("Layers", result.table("layers").to_dict("records"))
    if "batch" in result:
        told = result.table("batch").sort_values("relative_entropy_mean", kind="stable").head(SHOWN)[BATCH_COLUMNS]
        yield Rows.of_records(f"All prompts, narrowest heads, {len(told)} of {len(heads)}", told.to_dict("records"))
    if "within" in data:
        best = heads.sort_values("within_z", ascending=False, kind="stable").head(SHOWN)
        columns = [name for name in SHOT_COLUMNS if best[name].notna().any()]
        yield Rows.of_records("Within shots, heads furthest above moved boundaries", best[columns].to_dict("records"))
        yield Rows.of_records("Clues", result.table("clues").drop(columns="target").to_dict("records"))
        if "clue_after" in data:
            yield _clues_by_count(data)
        yield Rows.of_records("Held-out clues, log-likelihood per token", result.table("likelihood").to_dict("records"))


def _clues_by_count(data: xr.Dataset) -> Rows:
    counts = [f"{int(count)} shots" for count in data["shots"].values]
    pairs = zip(data["target_word"].values, data["clue_after"].values, strict=True)
    rows = [[str(word), *map(str, row)] for word, row in pairs]
    return Rows("Clues by number of shots", ["word", *counts], rows)


def _number(value: float) -> str:
    return cell(value) if value != value else f"{value:.2f}"
