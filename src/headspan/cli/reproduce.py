"""`headspan reproduce`: figures of a document with verdicts, or published numbers beside computed ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import options as shared
from headspan.errors import ArgumentError, HeadspanError

if TYPE_CHECKING:
    from headspan.ledger.reproduction import AtHand

DISAGREES = 1


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT", help="000, 001, 002, 003 or 004: its figures and verdicts. 2601.10266: its numbers."
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A checkpoint; repeatable. A figure takes the first that has what it needs."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the page and for finished figures.")
    ] = Path("reproduced"),
    only: Annotated[list[str] | None, typer.Option("--only", help='A figure by name: "Figure 1"; repeatable.')] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute finished figures again.")] = False,
    text: Annotated[
        Path | None, typer.Option("--text", help="A text of some hundred words or more, for what is fitted to text.")
    ] = None,
    seed: shared.Seed = 0,
    config: shared.ConfigFile = None,
) -> None:
    """Draw every figure of a document from the models given, with a verdict on what it is said to show.

    Finished figures are kept in the folder: an interrupted run goes on where it stopped. For 2601.10266, every
    published value is printed beside the computed one; exit code 1 if one disagrees.
    """
    from headspan.dims import check_seed
    from headspan.input_files import file_text
    from headspan.ledger.claim import DOCUMENTS
    from headspan.ledger.reproduction import AtHand

    if paper not in DOCUMENTS:
        _numbers(paper, model or [], config)
        return
    check_seed(seed)
    at_hand = AtHand(model or [], seed, text="" if text is None else file_text(text))
    _figures(paper, at_hand, output, only or [], fresh)


def _figures(paper: str, at_hand: AtHand, output: Path, only: list[str], fresh: bool) -> None:
    """The page of a document, and its verdicts as a table."""
    from headspan.atomic import written_whole
    from headspan.cli.delivery import print_table
    from headspan.explorer.reproductions import reproduction_page, shown_exhibits
    from headspan.ledger.claim import DOCUMENTS
    from headspan.ledger.reproduction import exhibits_of

    if not exhibits_of(paper).listed:
        raise ArgumentError(f"no figure of document {paper} can be drawn yet; try `headspan claims --document {paper}`")
    exhibits_of(paper).chosen(only)
    _make_folder(output)
    told = lambda name: typer.echo(f"{name} ...", err=True)  # noqa: E731
    found = shown_exhibits(paper, at_hand, output, only=only, fresh=fresh, progress=told)
    path = output / f"document-{paper}.html"
    with written_whole(path) as temporary:
        temporary.write_text(reproduction_page(paper, found), encoding="utf-8")
    rows = [(exhibit.name, shown.outcome, shown.number, shown.model) for exhibit, shown in found]
    print_table(f"Document {paper}: {DOCUMENTS[paper]}", ("figure", "verdict", "number and null", "model"), rows)
    typer.echo(f"Page written to {path}", err=True)


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        name = str(output)[:80]
        raise HeadspanError(f"cannot make the folder '{name}': {reason}; choose another with -o") from problem


def _numbers(paper: str, models: list[str], config: Path | None) -> None:
    """Each published value beside the computed one."""
    from headspan.checkpoint import open_checkpoint
    from headspan.cli.delivery import print_table
    from headspan.ledger.models import PAPER, reproduction

    if paper != PAPER:
        raise HeadspanError(f"headspan reproduces documents 000 to 004 and {PAPER}, not {paper!r}")
    if len(models) != 1:
        raise ArgumentError(f"{PAPER} takes one --model, GPT-2 small; found {len(models)}")
    lines = reproduction(paper, open_checkpoint(models[0], config).heads())
    rows = [(line.statement, line.published, line.computed, "yes" if line.agrees else "NO") for line in lines]
    print_table(f"arXiv {paper}", ("what", "published", "computed", "agrees"), rows)
    if not all(line.agrees for line in lines):
        raise typer.Exit(DISAGREES)
