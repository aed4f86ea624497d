"""`headspan claims`: every claim of the five documents, checked again."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headspan.atomic import check_writable, refuse_existing, written_whole
from headspan.cli import options as shared
from headspan.cli.delivery import print_json
from headspan.errors import ArgumentError

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint
    from headspan.ledger import Claim, Examination


FAILED = 1
IN_FULL = 12
SHOWN = {"fail": "FAIL", "skipped": "-"}


def claims(
    document: Annotated[
        str | None, typer.Option("--document", help="One of the documents: 000, 001, 002, 003 (the thesis) or 004.")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help="One claim, or all whose id begins so: 6.33, 5.2.")] = None,
    status: Annotated[str | None, typer.Option(help="holds, asymptotic, approximate, wrong, observational ...")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model that claims are about: gpt2=PATH; also minilm, mistral, stories, lab."),
    ] = None,
    random_seed: Annotated[int, typer.Option(min=0, help="Fixes the random numbers of the checks.")] = 0,
    as_json: shared.AsJSON = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of a table.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the ledger as a page with figures.")] = None,
    force: shared.Force = False,
) -> None:
    """Check the claims of the documents headspan is built on; exit code 1 if a check fails."""
    from headspan.ledger import all_claims, select_claims
    from headspan.ledger.examination import markdown, summary

    if as_json and as_markdown:
        raise ArgumentError("--json and --markdown are two forms of one page: choose one")
    if html is not None:
        check_writable(html, (".html",))
        refuse_existing(html, force)
    models = open_models(model or [])
    rows = select_claims(all_claims(), document=document, name=name, status=status)
    results = _examine(rows, random_seed, models)
    if html is not None:
        _write_page(results, html)
    if as_json:
        records = [result.record() for result in results]
        page = {"schema": "headspan.claims/1", "random_seed": random_seed, "claims": records}
        print_json(page)
    elif as_markdown:
        typer.echo(markdown(results))
    else:
        _print(results)
        typer.echo(summary(results))
    if any(result.verdict == "fail" for result in results):
        raise typer.Exit(FAILED)


def _write_page(results: list[Examination], path: Path) -> None:
    from headspan.explorer.claims_page import claims_page

    with written_whole(path) as temporary:
        temporary.write_text(claims_page(results), encoding="utf-8")
    typer.echo(f"Page written to {path}", err=True)


def open_models(given: list[str]) -> dict[str, Checkpoint]:
    """Open checkpoints by the names that claims use, from `name=PATH`."""
    from headspan.checkpoint import open_checkpoint
    from headspan.ledger.claim import MODELS

    models = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not (equals and source):
            raise ArgumentError(f"--model takes NAME=PATH, such as gpt2=folder, not {text!r}")
        if name not in MODELS:
            raise ArgumentError(f"no claim is about a model {name!r}; claims are about {', '.join(MODELS)}")
        models[name] = open_checkpoint(source)
        if models[name].family != MODELS[name]:
            raise ArgumentError(f"{name} is a {MODELS[name]}, but '{source}' is a {models[name].family}")
    return models


def _examine(rows: list[Claim], random_seed: int, models: dict[str, Checkpoint]) -> list[Examination]:
    """Every claim checked, with a bar on stderr while a person is looking."""
    from headspan.ledger import examine_all
    from headspan.progress import progress_bar

    results = []
    with progress_bar(len(rows), "Checking claims") as step:
        for result in examine_all(rows, random_seed, models):
            results.append(result)
            step(result.claim.id, done=len(results))
    return results


def _shown(result: Examination) -> str:
    """The verdict, with the model that was used."""
    used = f" [{result.on}]" if result.on in result.claim.models else ""
    return SHOWN.get(result.verdict, result.verdict) + used


def _stand_ins(results: list[Examination]) -> dict[str, list[str]]:
    """What claims rest on that were not tried on a model, with their ids."""
    found: dict[str, list[str]] = {}
    for result in results:
        if result.on and result.on not in result.claim.models:
            found.setdefault(result.on, []).append(result.claim.id)
    return found


def _print(results: list[Examination]) -> None:
    """A few claims in full; many as a line each, document by document."""
    from headspan.cli.delivery import print_facts, print_table
    from headspan.ledger.examination import evidence_text, facts

    if len(results) <= IN_FULL:
        for result in results:
            print_facts(facts(result).items(), f"Claim {result.claim.id}")
        return
    for document, group in groupby(results, key=lambda result: result.claim.document):
        rows = list(group)
        lines = [(row.claim.id, row.claim.status, _shown(row), row.claim.statement) for row in rows]
        print_table(f"Document {document}, {len(rows)} claims", ("id", "status", "check", "claim"), lines)
    for on, ids in _stand_ins(results).items():
        typer.echo(f"Without a model, on {on}: {', '.join(ids)}")
    for result in results:
        if result.verdict == "fail":
            evidence = "" if result.evidence is None else evidence_text(result.evidence)
            print_facts([("check", result.reason), ("evidence", evidence)], f"Claim {result.claim.id} FAILED")
