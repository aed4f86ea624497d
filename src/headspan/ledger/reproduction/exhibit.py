"""An exhibit: one figure or table of a document, drawn again, with the sentence it supports and a verdict.

A document's module lists its exhibits in order: `show` is a function of the models at hand, under `@exhibits.add(...)`.
It draws, compares a number with its value under the null by a rule that is written down beside it, and says what came
out. Rules were fixed before the numbers were seen, unless the rule itself says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headspan.errors import ArgumentError, HeadspanError, UnsupportedModel
from headspan.lenses.catalog import lens
from headspan.lenses.model import Model, open_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from headspan.result import Result

Outcome = Literal["holds", "holds in part", "does not hold", "cannot be tested here"]
UNTESTED: Outcome = "cannot be tested here"
DEMO = "demo"
VOCABULARY = 256
"""A model of fewer tokens is no language model of English."""


@dataclass(frozen=True)
class Shown:
    """What came out: the verdict, the number with its null in a sentence, figures, and a table (header first)."""

    outcome: Outcome
    number: str
    model: str = ""
    figures: Mapping[str, go.Figure] = field(default_factory=dict)
    table: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Exhibit:
    """One figure or table: what the document says with it in our words, the rule of the verdict, how to repeat it."""

    name: str
    sentence: str
    rule: str
    command: str
    """With `{model}` for the model that was used."""
    claims: tuple[str, ...]
    """Claims of the ledger that say the same."""
    show: Callable[[AtHand], Shown]


@dataclass(frozen=True)
class Exhibits:
    """The exhibits of one document, in order."""

    document: str
    listed: list[Exhibit] = field(default_factory=list)

    def add(
        self, name: str, *, sentence: str, rule: str, command: str, claims: tuple[str, ...] = ()
    ) -> Callable[[Callable[[AtHand], Shown]], Callable[[AtHand], Shown]]:
        """The decorator that lists a function as an exhibit."""

        def listed(show: Callable[[AtHand], Shown]) -> Callable[[AtHand], Shown]:
            self.listed.append(Exhibit(name, sentence, rule, command, claims, show))
            return show

        return listed

    def chosen(self, names: Sequence[str]) -> list[Exhibit]:
        """All, or those that are named."""
        known = {one.name.casefold(): one for one in self.listed}
        if unknown := [name for name in names if name.casefold() not in known]:
            listed = ", ".join(one.name for one in self.listed) or "none"
            raise ArgumentError(f"document {self.document} has no exhibit {unknown[0]!r}; it has {listed}")
        return [known[name.casefold()] for name in names] if names else list(self.listed)


class AtHand:
    """The models that were given, in order, and the demo model behind them; what was measured on them, once.

    Parameters
    ----------
    sources, seed
        What `headspan.open` takes, and the random seed of everything drawn.
    demo
        Whether the demo model stands in where no other suits.
    text
        A text of a few hundred words or more, for exhibits that need one.
    """

    def __init__(self, sources: Sequence[Any] = (), seed: int = 0, demo: bool = True, text: str = "") -> None:
        self.models = tuple(map(open_model, (*sources, DEMO) if demo else sources))
        self.seed, self._demo, self.text = seed, demo, text
        self._results: dict[tuple[Any, ...], Any] = {}

    @property
    def given(self) -> tuple[Model, ...]:
        """Without the demo model, unless nothing else was given."""
        return (self.models[:-1] if self._demo else self.models) or self.models

    def first(self, name: str, suits: Callable[[Model], str | None] = lambda model: None) -> Model:
        """The first model that a lens applies to and that suits; refused with the reasons where there is none."""
        reasons = []
        for model in self.models:
            reason = obstacle(name, model) or suits(model)
            if reason is None:
                return model
            reasons.append(f"{model.source}: {reason}")
        raise UnsupportedModel("; ".join(reasons))

    def once(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What `compute` gives, from memory where it was asked for before."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def result(self, name: str, model: Model, **options: Any) -> Result:
        """A lens's result on a model."""
        key = (name, id(model), tuple(sorted((option, repr(value)) for option, value in options.items())))
        found: Result = self.once(key, lambda: lens(name).function(model, progress=False, **options))
        return found


def graded(facts: Sequence[bool]) -> Outcome:
    """The verdict where all facts must be true, and some of them count in part."""
    return "holds" if all(facts) else "holds in part" if any(facts) else "does not hold"


def obstacle(name: str, model: Model) -> str | None:
    """Why a lens does not apply to a model, in one line."""
    about = lens(name)
    try:
        reason = about.skip_reason(model.stored())
        if reason is None and about.runs:
            reason = model.run_obstacle()
    except HeadspanError as problem:
        return str(problem)
    return reason


def reads(model: Model) -> str | None:
    """Why a model cannot read English, in one line."""
    running = model.running()
    if running.tokenizer is None or running.n_tokens < VOCABULARY:
        return f"it has a vocabulary of {running.n_tokens} tokens, which is no English"
    return None


def language(model: Model) -> str | None:
    """Why a model cannot write English, in one line."""
    return reads(model) if model.running().writes else "it has no language-model head"


def drawing(what: str) -> Callable[[AtHand], Shown]:
    """The verdict on a figure that shows how something is built: there is nothing to measure."""

    def show(at_hand: AtHand) -> Shown:
        return Shown(UNTESTED, f"{what} They say nothing that a measurement could contradict.")

    return show
