"""`headspan attention`: what every head attends to on a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headspan.cli.arguments import AsJSON, ConfigFile, Model, Output, Stack
from headspan.cli.figure_files import Dark, FigureFormat, Figures, check_figures, save_figures

if TYPE_CHECKING:
    import xarray as xr

    from headspan.runtime import RunnableModel

SHOWN = 10


def attention(
    model: Model,
    prompt: Annotated[str | None, typer.Option("--prompt", help="The text to run the model on.")] = None,
    prompt_file: Annotated[Path | None, typer.Option("--prompt-file", help="A file with the text.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help="Token ids such as 1,5,7 in place of text.")] = None,
    few_shot: Annotated[
        Path | None, typer.Option("--few-shot", help="A CSV file of word;clue pairs, shown as shots.")
    ] = None,
    shots: Annotated[int, typer.Option(help="Few-shot: how many pairs to show.")] = 3,
    target: Annotated[
        str | None, typer.Option(help="Few-shot: words to ask for, separated by commas; by default those not shown.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="Few-shot: text with {word} and {clue}, in place of the chat template.")
    ] = None,
    length: Annotated[int, typer.Option(help="Few-shot: tokens of a written clue.")] = 24,
    temperature: Annotated[float, typer.Option(help="Few-shot: 0 writes the likeliest clue.")] = 0.0,
    level: Annotated[str, typer.Option(help="Maps between tokens (token) or words (word).")] = "token",
    pooling: Annotated[str, typer.Option(help="Words: mean over queries (rows sum to 1), or sum.")] = "mean",
    special: Annotated[str, typer.Option(help="Special tokens in the maps: keep or drop.")] = "keep",
    words: Annotated[str | None, typer.Option(help="Only these words in the maps, separated by commas.")] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut a prompt that exceeds the context.")] = False,
    permutations: Annotated[int, typer.Option(help="Of the test of angles; 0 leaves it out.")] = 200,
    seed: Annotated[int, typer.Option(help="Fixes permutations, shots and draws.")] = 0,
    output: Output = None,
    figures: Figures = None,
    figure_format: FigureFormat = "svg",
    dark: Dark = False,
    as_json: AsJSON = False,
    config: ConfigFile = None,
    stack: Stack = None,
) -> None:
    """Attention maps of a running model on a prompt, with entropies and other statistics of every head."""
    from headspan.atomic import check_writable
    from headspan.cli.prompts import chosen_prompt
    from headspan.errors import ShapeError
    from headspan.lenses import attention as lens
    from headspan.lenses.saving import ENDINGS
    from headspan.runtime import open_runnable

    check_figures(figures, figure_format)
    if output is not None:
        check_writable(output, (*ENDINGS, ".html"))
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
    save_figures("attention", result, figures, figure_format, dark)
    _hand_out(result, output, as_json)


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _few_shot(model: RunnableModel, path: Path, options: dict[str, Any]) -> xr.DataTree:
    from headspan.lenses.attention.few_shot import few_shot
    from headspan.lenses.attention.pairs import read_pairs

    return few_shot(model, read_pairs(path), **options)


def _hand_out(result: xr.Dataset | xr.DataTree, output: Path | None, as_json: bool) -> None:
    from headspan.lenses import attention as lens
    from headspan.lenses.saving import save_result

    if output is not None:
        pages = {".html": lambda path: _write_page(result, path)}
        save_result(result, output, table=lens.table, as_json=lens.as_json, more=pages)
    if as_json:
        typer.echo(json.dumps(lens.as_json(result), indent=2, allow_nan=False))
        return
    _print(lens.as_json(result))
    if output is not None:
        typer.echo(f"Written to {output}")


def _write_page(result: xr.Dataset | xr.DataTree, path: Path) -> None:
    from headspan.report.figures_page import write_figures_page

    write_figures_page("attention", result, path)


def _print(document: dict[str, Any]) -> None:
    """Heads that attend most narrowly, layers, and for a few-shot prompt its shots and clues."""
    from headspan.cli.tables import print_records, print_table

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
    print_records(
        "Layers",
        [{key: value if value is not None else "-" for key, value in row.items()} for row in document["layers"]],
    )
    if "few_shot" in document:
        found = document["few_shot"]
        shown = ("head", "within", "within_chance", "within_p_value", "own_word", "other_word")
        rows = [{name: row[name] for name in shown if row[name] is not None} for row in found["within"][:SHOWN]]
        print_records("Within shots, heads furthest above moved boundaries", rows)
        print_records("Clues", found["clues"])
        print_records("Held-out clues, log-likelihood per token", found["likelihood"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
