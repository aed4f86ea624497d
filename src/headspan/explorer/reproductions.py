"""A document reproduced: every exhibit in turn, what is finished kept on disk, one HTML page at the end.

1. An exhibit that was finished before, by the same code on the same models, is read back; any other is shown and its
   record written, sealed and whole, before the next begins. An interrupted run goes on where it stopped.
2. What cannot be shown on the models at hand gets the verdict "cannot be tested here", with the reason.
3. The page has a table of verdicts, then for every exhibit the sentence, the verdict with its number, the figures, the
   rule and the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import plotly.io

from headspan.atomic import written_whole
from headspan.errors import HeadspanError
from headspan.explorer.figure_block import drawing_scripts, figure_blocks, figure_id
from headspan.explorer.html import Markup, element, section, table
from headspan.explorer.kept_results import source_digest
from headspan.explorer.page import page
from headspan.ledger.claim import DOCUMENTS, all_claims
from headspan.ledger.reproduction import AtHand, Exhibit, Shown, exhibits_of
from headspan.ledger.reproduction.exhibit import UNTESTED
from headspan.seal import sealed, unsealed

KEPT = "kept"
"""The folder of finished exhibits, beside the pages."""
NO_SEAL = b"\0"
"""There are no records of an older version, without a seal."""


@dataclass(frozen=True)
class KeptExhibits:
    """Finished exhibits of one document in a folder, by everything that they depend on."""

    folder: Path
    document: str
    identity: str

    @classmethod
    def of(cls, folder: Path, document: str, at_hand: AtHand) -> KeptExhibits:
        """Those of these models and of this code."""
        models = [(model.source, _weights(model.checkpoint.source)) for model in at_hand.models]
        facts = json.dumps([models, at_hand.seed, at_hand.text, source_digest()])
        return cls(folder / KEPT, document, sha256(facts.encode()).hexdigest()[:16])

    def read(self, exhibit: Exhibit) -> Shown | None:
        """A finished exhibit; None where there is none, or none that can be read."""
        try:
            record = json.loads(unsealed(self._path(exhibit).read_bytes(), NO_SEAL))
            drawn = {name: plotly.io.from_json(text) for name, text in record.pop("figures").items()}
            return Shown(figures=drawn, **record)
        except (OSError, HeadspanError, ValueError, TypeError, KeyError):
            return None

    def keep(self, exhibit: Exhibit, shown: Shown) -> None:
        """Write a finished exhibit, whole or not at all."""
        record: dict[str, Any] = {"outcome": shown.outcome, "number": shown.number, "model": shown.model}
        record |= {"figures": {name: figure.to_json() for name, figure in shown.figures.items()}}
        record |= {"table": [list(row) for row in shown.table]}
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_whole(self._path(exhibit)) as temporary:
            temporary.write_bytes(sealed(json.dumps(record).encode()))

    def _path(self, exhibit: Exhibit) -> Path:
        return self.folder / f"{figure_id(self.document, exhibit.name)}-{self.identity}.json"


def _weights(source: str) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the files that a model was opened from: other weights give another identity."""
    place = Path(source)
    files = sorted(place.iterdir()) if place.is_dir() else [place] if place.is_file() else []
    return [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.is_file()]


def shown_exhibits(
    document: str,
    at_hand: AtHand,
    folder: Path,
    *,
    only: Sequence[str] = (),
    fresh: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> list[tuple[Exhibit, Shown]]:
    """Every exhibit of a document, or those named, with what came out; finished ones are taken from the folder.

    Parameters
    ----------
    document, at_hand, folder
        Which document, the models, and where finished exhibits are kept.
    only, fresh
        Names of exhibits; whether to compute finished ones again.
    progress
        Called with the name of each exhibit before it is computed.
    """
    kept, found = KeptExhibits.of(folder, document, at_hand), []
    for exhibit in exhibits_of(document).chosen(only):
        shown = None if fresh else kept.read(exhibit)
        if shown is None:
            progress(exhibit.name)
            shown = _shown(exhibit, at_hand)
            kept.keep(exhibit, shown)
        found.append((exhibit, shown))
    return found


def _shown(exhibit: Exhibit, at_hand: AtHand) -> Shown:
    try:
        return exhibit.show(at_hand)
    except HeadspanError as reason:
        return Shown(UNTESTED, f"{reason}.")


def command_of(exhibit: Exhibit, shown: Shown) -> str:
    """The command that repeats an exhibit, with the model that was used."""
    return exhibit.command.replace("{model}", shown.model.split("; ")[0] or "MODEL")


def reproduction_page(document: str, found: Sequence[tuple[Exhibit, Shown]]) -> str:
    """The page of one document."""
    names = {exhibit.name: figure_id("exhibit", exhibit.name) for exhibit, _ in found}
    rows = [(exhibit.name, shown.outcome, shown.number, shown.model) for exhibit, shown in found]
    told = "Every figure of the document, drawn from the model that is named beside it. Sentences are in our own words."
    summary = section(
        "verdicts", "Verdicts", element("p", told), table(("figure", "verdict", "number and null", "model"), rows)
    )
    body = [summary, *(_section(exhibit, shown, names[exhibit.name]) for exhibit, shown in found)]
    contents = {"verdicts": "Verdicts", **{identifier: name for name, identifier in names.items()}}
    return page(f"Document {document}", DOCUMENTS[document], contents, body, drawing_scripts())


def _section(exhibit: Exhibit, shown: Shown, identifier: str) -> Markup:
    on = f" On {shown.model}." if shown.model else ""
    verdict = element(
        "div",
        element("p", element("strong", f"{shown.outcome[0].upper()}{shown.outcome[1:]}.")),
        element("p", f"{shown.number}{on}"),
        element("p", f"Rule: {exhibit.rule}", class_="evidence"),
        class_="finding",
    )
    statements = {claim.id: claim for claim in all_claims()}
    claims = [
        element("p", f"Claim {name} ({statements[name].status}): {statements[name].correction}", class_="evidence")
        for name in exhibit.claims
        if statements[name].correction
    ]
    tables = [table(shown.table[0], shown.table[1:])] if shown.table else []
    command = element("p", "Repeat it: ", element("code", command_of(exhibit, shown)))
    blocks = figure_blocks(shown.figures, prefix=identifier)
    return section(
        identifier, exhibit.name, element("p", exhibit.sentence), verdict, *tables, *blocks, command, *claims
    )
