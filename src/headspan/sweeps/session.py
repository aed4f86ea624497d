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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headspan.errors import ArgumentError, StoreError
from headspan.sweeps.checkpoints import Description, Settings, check_same_shape, describe, kept_description
from headspan.sweeps.cluster import DONE, NOT_RUN, TO_RUN, Outcome, check_cluster, connect, outcomes, require
from headspan.sweeps.contents import group_origin, is_intact
from headspan.sweeps.groups import Gathering, write_group
from headspan.sweeps.progress import progress_view
from headspan.sweeps.specification import Series, parse_series
from headspan.sweeps.store import Store, join_series
from headspan.sweeps.tasks import Plan, Task, choose_lenses, perform, plan, tasks_to_do


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
    skipped: Mapping[str, Mapping[str, str]]
    """By model, the lenses that do not apply to it, with the reason."""
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {"schema": "headspan.sweep/2", **asdict(self), "store": str(self.store)}


@dataclass
class Session:
    """A sweep under way."""

    store: Store
    client: Any
    settings: Settings
    progress: bool | None = None
    say: Callable[[str], None] | None = None
    failures: list[Failure] = field(default_factory=list)

    def run(self, title: str, function: Callable[..., Any], items: Sequence[Any], *more: Any) -> list[Outcome]:
        """Outcomes of a function on many items; those that are not done are kept as failures."""
        ended = []
        with progress_view(title, len(items), self.client, self.progress, self.say) as view:
            for outcome in outcomes(self.client, function, items, *more):
                label = _label(outcome.item)
                view.ended(label, outcome.reason)
                if outcome.state != DONE:
                    self.failures.append(Failure(label, outcome.state, outcome.reason))
                ended.append(outcome)
        return ended

    def describe(self, asked: Sequence[Series]) -> dict[str, Description]:
        """What is known of every source; those asked for are looked at, as far as they can be opened now."""
        sources = list(dict.fromkeys(source for each in asked for source in each.sources.values()))
        ended = self.run("checkpoints", describe, sources, self.settings, str(self.store.checkpoints))
        found = {outcome.item: outcome.value for outcome in ended if outcome.state == DONE}
        for source in {source for each in (*self.store.series(), *asked) for source in each.sources.values()}:
            known = kept_description(source, self.settings, self.store.checkpoints)
            if source not in found and known is not None:
                found[source] = known
        for text in sorted({text for source in sources if source in found for text in found[source].warnings}):
            warnings.warn(text, stacklevel=2)
        return found

    def plans(self, series: Sequence[Series], asked: Sequence[Series], lenses: Sequence[str]) -> list[Plan]:
        """What there is to do on every model; a series of mixed shapes is refused."""
        described, plans = self.describe(asked), []
        for each in series:
            known = {step: described[source] for step, source in each.sources.items() if source in described}
            check_same_shape(each.model, known)
            plans.append(plan(each.model, known, lenses, self.settings))
        return plans

    def gather(self, plans: Sequence[Plan], lenses: Sequence[str]) -> list[str]:
        """Write the groups whose parts are new; returns what to tell the user."""
        if any(failure.state == NOT_RUN for failure in self.failures):
            return [
                "groups were not written, since the sweep was cut short; open_store reads what is finished all the same"
            ]
        stale = []
        for each in plans:
            for lens in lenses:
                gathering, place = each.gathering(lens, self.store.parts), self.store.group(each.model, lens)
                if gathering.parts and (group_origin(place) != gathering.made_from or not is_intact(place)):
                    stale.append((gathering, str(place)))
        ended = self.run("groups", _write_group, stale)
        return [f"{_label(one.item)} {note}" for one in ended if one.state == DONE for note in one.value]


def _write_group(pair: tuple[Gathering, str]) -> list[str]:
    return write_group(*pair)


def _label(item: Any) -> str:
    if isinstance(item, Task):
        return item.label()
    if isinstance(item, tuple):
        return f"the group {item[0].lens} of {item[0].model}"
    return f"'{item}'"


def sweep(
    specs: str | Path | Sequence[str | Path],
    store: str | Path,
    *,
    lenses: str | Sequence[str] | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    client: Any = None,
    fold: str = "none",
    stack: str | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> Summary:
    """Run lenses over many checkpoints and keep the results in a store.

    Parameters
    ----------
    specs
        Checkpoints: a folder of them by step, `repo@{step1,step2}`, a YAML list, or several names
        (`headspan.sweeps.specification`).
    store
        Folder of the results; the same call on it resumes an interrupted sweep.
    lenses
        Names, separated by commas or listed; by default all that read weights alone. A lens of two subjects runs on
        consecutive steps.
    scheduler, workers, client
        Where to run: address of a Dask scheduler, number of local processes (by default one per core), or a client.
    fold, stack
        In which state to read the weights, and which stack of a model with several.
    time_limit
        Seconds that each lens may take on a checkpoint. One that takes longer has failed there, and the others go on;
        a later sweep with more time computes it.
    progress, say
        False shows nothing, None a bar where somebody watches, True also lines where nobody does; `say` is a function
        that is told the lines.

    Returns
    -------
    Summary
        How many results were computed and found, what failed and why. `headspan.sweeps.open_store` reads the results.

    Examples
    --------
    >>> import headspan, tempfile
    >>> from distributed import Client
    >>> with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
    ...     summary = headspan.sweep("demo", tempfile.mkdtemp(), lenses="ranks", client=client)
    >>> summary.done, summary.failures
    (1, [])
    """
    require(TO_RUN)
    check_cluster(scheduler, workers)
    if time_limit is not None and not time_limit > 0:
        raise ArgumentError(f"time_limit = {time_limit} leaves no time; give seconds above 0")
    names, series = choose_lenses(lenses), parse_series(specs)
    settings = Settings(fold, stack)
    claimed = Store.claim(Path(store), settings)
    with claimed.lock():
        claimed.remove_leftovers()
        with nullcontext(client) if client is not None else connect(scheduler, workers) as used:
            return _run(Session(claimed, used, settings, progress, say), series, names, time_limit)


def _run(session: Session, asked: Sequence[Series], lenses: Sequence[str], time_limit: float | None) -> Summary:
    store = session.store
    series = join_series(store.series(), asked)
    plans = session.plans(series, asked, lenses)
    kept = list(dict.fromkeys([*store.manifest()["lenses"], *lenses]))
    store.make_folders(lenses)
    store.write_manifest(series, kept, session.settings)
    now = {each.model for each in asked}
    sources = {source for each in asked for source in each.sources.values()}
    tasks = [task for each in plans for task in each.tasks if task.sources <= sources]
    waiting = tasks_to_do(tasks, store.parts)
    damaged = [task for task in waiting if task.file(store.parts).exists()]
    ended = session.run("tasks", perform, waiting, str(store.parts), time_limit)
    store.remove_leftovers()
    notes = [f"the kept result {task.label()} was damaged and is computed anew" for task in damaged]
    notes += _not_applicable(ended) + session.gather([each for each in plans if each.model in now], lenses)
    store.remove_leftovers()
    try:
        store.write_manifest(series, kept, session.settings, session.failures)
    except StoreError as problem:  # said here all the same: on a full disk the list is what the user needs
        notes.append(f"this list of failures is not in the store: {problem}")
    return Summary(
        store=store.path,
        done=sum(outcome.state == DONE for outcome in ended),
        reused=len({task.name for task in tasks}) - len(waiting),
        failures=session.failures,
        identical=_identical(plans),
        skipped={each.model: each.skipped for each in plans if each.skipped},
        notes=notes,
    )


def _not_applicable(ended: Sequence[Outcome]) -> list[str]:
    """Which lenses did not apply to which steps, and why, as sentences."""
    steps: dict[tuple[str, str, str], set[int]] = {}
    for outcome in ended:
        if outcome.state == DONE and outcome.value:
            steps.setdefault((outcome.item.lens, outcome.item.model, outcome.value), set()).add(outcome.item.step)
    return [
        f"{lens} does not apply to {model} at step {', '.join(map(str, sorted(at)))}: {reason}"
        for (lens, model, reason), at in steps.items()
    ]


def _identical(plans: Sequence[Plan]) -> list[str]:
    """Every pair of steps of a model with the same weights, as sentences."""
    return [
        f"{each.model}: step {step} has the same weights as step {each.identical_to(step):.0f}"
        for each in plans
        for step in sorted(each.described)
        if each.identical_to(step) < step
    ]
