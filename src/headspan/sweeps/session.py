"""A whole sweep: describe every checkpoint, do what is not yet done, gather the results.

1. Claim the store and its lock; remove what a killed sweep left unfinished.
2. Describe every checkpoint on the cluster: content hash, shape, lenses that apply. Series of mixed shapes are refused.
3. Run the tasks whose results are not in the store.
4. Gather each model and lens whose parts are new into its Zarr group.

Every step can be interrupted at any point and done again; what is finished is found by its name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headspan.errors import StoreError
from headspan.sweeps.cluster import connected
from headspan.sweeps.description import Description, Settings, check_same_shape, description_file, kept_description
from headspan.sweeps.gathering import Gathering, write_group
from headspan.sweeps.lock import locked
from headspan.sweeps.performing import perform, perform_describe
from headspan.sweeps.planning import Plan, chosen_lenses, identical_to, plan, unfinished
from headspan.sweeps.progress import progress_view
from headspan.sweeps.reading import made_from
from headspan.sweeps.requirements import TO_RUN, require
from headspan.sweeps.running import DONE, NOT_RUN, Outcome, outcomes
from headspan.sweeps.spec import Series, parsed_spec
from headspan.sweeps.store import Store, merged_series
from headspan.sweeps.task import Task


@dataclass(frozen=True)
class Failure:
    """A piece of work that failed, or was not run, and why."""

    what: str
    state: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """What a sweep did."""

    store: Path
    done: int
    reused: int
    failures: Sequence[Failure]
    identical: Sequence[str]
    obstacles: Mapping[str, Mapping[str, str]]
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "schema": "headspan.sweep/1",
            "store": str(self.store),
            "done": self.done,
            "reused": self.reused,
            "failed": [vars(failure) for failure in self.failures],
            "identical": list(self.identical),
            "left_out": {model: dict(reasons) for model, reasons in self.obstacles.items()},
            "notes": list(self.notes),
        }


@dataclass
class Sweep:
    """A sweep under way."""

    store: Store
    client: Any
    settings: Settings
    quiet: bool
    say: Callable[[str], None] | None = None
    failures: list[Failure] = field(default_factory=list)

    def run(self, title: str, function: Callable[..., Any], items: Sequence[Any], *more: Any) -> list[Outcome]:
        """Outcomes of a function on many items; those that are not done are kept as failures."""
        ended = []
        with progress_view(title, len(items), self.client, self.quiet, self.say) as view:
            for outcome in outcomes(self.client, function, items, *more):
                label = _label(outcome.item)
                view.ended(label, outcome.reason)
                if outcome.state != DONE:
                    self.failures.append(Failure(label, outcome.state, outcome.reason))
                ended.append(outcome)
        return ended

    def described(self, series: Sequence[Series]) -> dict[str, Description]:
        """A description of every source; of one that cannot be opened now, what was known of it before, if anything."""
        sources = list(dict.fromkeys(source for each in series for source in each.sources.values()))
        found: dict[str, Description] = {}
        for source in sources:
            known = kept_description(description_file(self.store.checkpoints, source, self.settings))
            if known is not None:
                found[source] = known
        folder = str(self.store.checkpoints)
        for outcome in self.run("checkpoints", perform_describe, sources, self.settings, folder):
            if outcome.state == DONE:
                found[outcome.item] = outcome.value
        for text in sorted({text for source in sources if source in found for text in found[source].warnings}):
            warnings.warn(text, stacklevel=2)
        return found

    def gather(self, plans: Sequence[Plan], lenses: Sequence[str]) -> list[str]:
        """Write the groups whose parts are new; returns what to tell the user."""
        if any(failure.state == NOT_RUN for failure in self.failures):
            return [
                "groups were not written, since the sweep was cut short; open_store reads what is finished all the same"
            ]
        stale = {}
        for each in plans:
            for lens in lenses:
                gathering, place = each.gathering(lens, self.store.parts), self.store.group(each.model, lens)
                if gathering.parts and made_from(place) != gathering.made_from:
                    stale[str(place)] = gathering
        pairs = [(gathering, place) for place, gathering in stale.items()]
        ended = self.run("groups", _write_group, pairs)
        return [f"{_label(one.item)} {note}" for one in ended if one.state == DONE for note in one.value]


def _write_group(pair: tuple[Gathering, str]) -> list[str]:
    return write_group(*pair)


def _label(item: Any) -> str:
    if isinstance(item, Task):
        return item.label()
    if isinstance(item, tuple):
        return f"the group {item[0].lens} of {item[0].model}"
    return f"'{item}'"


def run_sweep(
    specs: str | Path | Sequence[str | Path],
    store: str | Path,
    *,
    lenses: str | Sequence[str] | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    fold: str = "none",
    stack: str | None = None,
    client: Any = None,
    quiet: bool = True,
    say: Callable[[str], None] | None = None,
) -> Summary:
    """Run lenses over many checkpoints and keep the results in a store.

    Parameters
    ----------
    specs
        Checkpoints: see `headspan.sweeps.spec`.
    store
        Folder of the results; the same call on it takes an interrupted sweep up again.
    lenses
        Names, by default all that need no running model, and `drift` between consecutive steps.
    scheduler, workers, client
        Where to run: address of a Dask scheduler, number of local processes (by default one per core), or a client.
    fold, stack
        In which state to read the weights, and which stack of a model with several.
    quiet, say
        Show no progress; a function that is told lines of it.
    """
    require(TO_RUN)
    names, series = chosen_lenses(lenses), parsed_spec(specs)
    settings = Settings(fold, stack)
    claimed = Store.claim(Path(store), settings)
    with locked(claimed.lock_file):
        claimed.remove_leftovers()
        with nullcontext(client) if client is not None else connected(scheduler, workers) as used:
            return _swept(Sweep(claimed, used, settings, quiet, say), series, names)


def _swept(sweep: Sweep, asked: Sequence[Series], lenses: Sequence[str]) -> Summary:
    store = sweep.store
    series = merged_series(store.series(), asked)
    described = sweep.described(asked)
    plans = []
    for each in series:
        known = {step: _known(sweep, described, source) for step, source in each.sources.items()}
        whole = {step: one for step, one in known.items() if one is not None}
        check_same_shape(each.model, whole)
        plans.append(plan(each.model, whole, lenses, sweep.settings))
    kept = list(dict.fromkeys([*store.manifest()["lenses"], *lenses]))
    store.make_folders(lenses)
    store.write_manifest(series, kept, sweep.settings)
    now = {each.model for each in asked}
    sources = {source for each in asked for source in each.sources.values()}
    tasks = [task for each in plans for task in each.tasks if task.sources <= sources]
    waiting = unfinished(tasks, store.parts)
    ended = sweep.run("tasks", perform, waiting, str(store.parts))
    store.remove_leftovers()
    notes = _silent(ended) + sweep.gather([each for each in plans if each.model in now], lenses)
    store.remove_leftovers()
    try:
        store.write_manifest(series, kept, sweep.settings, sweep.failures)
    except StoreError as problem:  # said here all the same: on a full disk the list is what the user needs
        notes.append(f"this list of failures is not in the store: {problem}")
    return Summary(
        store=store.path,
        done=sum(outcome.state == DONE for outcome in ended),
        reused=len({task.name for task in tasks}) - len(waiting),
        failures=sweep.failures,
        identical=_identical(plans),
        obstacles={each.model: each.obstacles for each in plans if each.obstacles},
        notes=notes,
    )


def _silent(ended: Sequence[Outcome]) -> list[str]:
    """Which lenses had nothing to say of which steps, and why, as sentences."""
    steps: dict[tuple[str, str, str], set[int]] = {}
    for outcome in ended:
        if outcome.state == DONE and outcome.value:
            steps.setdefault((outcome.item.lens, outcome.item.model, outcome.value), set()).add(outcome.item.step)
    return [
        f"{lens} has nothing to say of {model} at step {', '.join(map(str, sorted(at)))}: {reason}"
        for (lens, model, reason), at in steps.items()
    ]


def _known(sweep: Sweep, described: Mapping[str, Description], source: str) -> Description | None:
    place = description_file(sweep.store.checkpoints, source, sweep.settings)
    return described.get(source) or kept_description(place)


def _identical(plans: Sequence[Plan]) -> list[str]:
    """Every pair of steps of a model with the same weights, as sentences."""
    found = []
    for each in plans:
        for step in sorted(each.described):
            other = identical_to(each.described, step)
            if other == other and other < step:
                found.append(f"{each.model}: step {step} has the same weights as step {other:.0f}")
    return found
