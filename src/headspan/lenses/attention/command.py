"""`headspan attention`: what every head attends to on a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery, figures_page
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

    from headspan.runtime import RunnableModel

SHOWN = 10

FewShot = Annotated[Path | None, typer.Option("--few-shot", help="A CSV file of word;clue pairs, shown as shots.")]
Targets = Annotated[
    str | None,
    typer.Option("--target", help="Few-shot: words to ask for, separated by commas; by default those not shown."),
]
Template = Annotated[
    str | None, typer.Option("--template", help="Few-shot: text with {word} and {clue}, in place of the chat template.")
]


def attention(
    model: shared.Model,
    prompt: shared.PromptText = None,
    prompt_file: shared.PromptFile = None,
    tokens: shared.TokenIds = None,
    few_shot: FewShot = None,
    shots: Annotated[int, typer.Option(help="Few-shot: how many pairs to show.")] = 3,
    target: Targets = None,
    template: Template = None,
    length: Annotated[int, typer.Option(help="Few-shot: tokens of a written clue.")] = 24,
    temperature: Annotated[float, typer.Option(help="Few-shot: 0 writes the likeliest clue.")] = 0.0,
    level: Annotated[str, typer.Option(help="Maps between tokens (token) or words (word).")] = "token",
    pooling: Annotated[str, typer.Option(help="Words: mean over queries (rows sum to 1), or sum.")] = "mean",
    special: Annotated[str, typer.Option(help="Special tokens in the maps: keep or drop.")] = "keep",
    words: Annotated[str | None, typer.Option(help="Only these words in the maps, separated by commas.")] = None,
    truncate: shared.Truncate = False,
    permutations: Annotated[int, typer.Option(help="Of the test of angles; 0 leaves it out.")] = 200,
    seed: shared.Seed = 0,
    output: shared.OutputOrPage = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Attention maps of a running model on a prompt, with entropies and other statistics of every head."""
    from headspan.cli.prompts import chosen_prompt
    from headspan.errors import ShapeError
    from headspan.lenses import attention as lens
    from headspan.runtime import open_runnable

    images = image_files(figures, figure_format, dark)
    to = delivery("attention", output, images, as_json, more=figures_page("attention"))
    if few_shot is not None and any(each is not None for each in (prompt, prompt_file, tokens)):
        raise ShapeError("give one of --prompt, --prompt-file, --tokens and --few-shot")
    running = open_runnable(model, config=config, stack=stack)
    shown = None if words is None else _listed(words)
    options = {"level": level, "pooling": pooling, "special": special, "words": shown, "permutations": permutations}
    result: xr.Dataset | xr.DataTree
    if few_shot is None:
        given = chosen_prompt(running, prompt, prompt_file, tokens, truncate)
        result = lens.compute(running, given, seed=seed, **options)  # type: ignore[arg-type]  # checked by compute
    else:
        asked = {"shots": shots, "targets": _listed(target or ""), "template": template, "seed": seed}
        result = _few_shot(running, few_shot, {**asked, "length": length, "temperature": temperature, **options})
    to.deliver(result, lens, _print)


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _few_shot(model: RunnableModel, path: Path, options: dict[str, Any]) -> xr.DataTree:
    from headspan.lenses.attention.few_shot import few_shot
    from headspan.lenses.attention.pairs import read_pairs

    return few_shot(model, read_pairs(path), **options)


def _print(result: xr.Dataset | xr.DataTree) -> None:
    """Heads that attend most narrowly, layers, and for a few-shot prompt its shots and clues."""
    from headspan.cli.tables import print_records, print_table
    from headspan.lenses import attention as lens

    document = lens.as_json(result)
    about, heads = document["provenance"], document["heads"]
    first = heads[0]
    known = sorted((row for row in heads if row["entropy"] is not None), key=lambda row: row["entropy"])
    columns = ("effective_positions", "self_mass", "previous_mass", "first_mass", "sink_mass")
    print_table(
        f"{about['n_tokens']} tokens; narrowest heads, {min(SHOWN, len(known))} of {len(heads)}, uniform below",
        ["head", *(name.replace("_", " ") for name in columns), "write share"],
        [
            *(
                [row["head"], *(f"{row[name]:.2f}" for name in columns), f"{row['write_share']:.2f}"]
                for row in known[:SHOWN]
            ),
            ["uniform", *(_number(first[f"{name}_chance"]) for name in columns), _number(first["write_share_chance"])],
        ],
    )
    if about["dropped"]:
        typer.echo(f"The last {about['dropped']} tokens exceeded the context and were cut.")
    print_records("Layers", document["layers"])
    if "few_shot" in document:
        found = document["few_shot"]
        shown = ("head", "within", "within_chance", "within_p_value", "own_word", "other_word")
        first_rows = found["within"][:SHOWN]
        known_names = [name for name in shown if any(row[name] is not None for row in first_rows)]
        rows = [{name: row[name] for name in known_names} for row in first_rows]
        print_records("Within shots, heads furthest above moved boundaries", rows)
        print_records("Clues", found["clues"])
        print_records("Held-out clues, log-likelihood per token", found["likelihood"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
