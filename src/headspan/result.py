"""A lens and its result: the record of one analysis, and what it found with everything a person does with it.

`Lens` says what an analysis needs and where its parts are. `Result` holds labeled data and its declaration; tables,
rankings, files and the notebook view follow from the schema. Findings and figures are imported when they are asked for.
This module loads nothing heavy by itself, because every lens's record does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headspan._version import __version__
from headspan.errors import ArgumentError, HeadspanError
from headspan.loading import uncollected

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import plotly.graph_objects as go
    import xarray as xr

    from headspan.checkpoint import StoredStack
    from headspan.finding import Finding
    from headspan.notebook_views import Gallery
    from headspan.schema import Schema

ENDINGS = (".nc", ".csv", ".parquet", ".json", ".html")
"""What every result can be written as."""
SHOWN = 3
"""How many findings stand in a result's short text."""


@dataclass(frozen=True)
class Lens:
    """One analysis: what it is, what it needs, and when it runs by itself."""

    name: str
    title: str
    summary: str
    package: str
    """The folder of the lens as a module, such as `headspan.lenses.affinity`."""
    chapter: str = "Further analyses"
    """Chapter of the report and, in the order of their first lenses, of its contents."""
    order: int = 100
    needs: frozenset[str] = frozenset()
    any_of: frozenset[str] = frozenset()
    """At least one of these; the lens says itself what it leaves out for lack of the others."""
    min_layers: int = 1
    one_stream: bool = False
    """Queries and keys are held against each other, so they must read the same stream."""
    runs: bool = False
    """The model is run: the work takes a RunnableModel in place of heads."""
    without_running: frozenset[str] = frozenset()
    """Parts that do in place of a run, for a lens that runs the model where it can: the work takes it as `running`."""
    run_option: str = ""
    """The option that asks to run every subject as well; the work takes them, or why they cannot run, as `running`."""
    subjects: int = 1
    """Two, for a lens that compares checkpoints."""
    on_request: str = ""
    """Why a report leaves it out unless it is asked for; empty where it does not."""
    fold: str = "none"
    """Fold state unless the call says one; weights as stored where the model cannot be folded."""
    in_series: bool = True
    """Whether sweeps and the lab follow it by default (where it reads weights alone)."""
    series_options: Mapping[str, Any] = field(default_factory=dict)
    """Options when it follows a series."""
    report_options: Mapping[str, Any] = field(default_factory=dict)
    """Options on a report's page where less arithmetic does for what is shown; its chapter names them."""
    work: str = "measurement:measure"
    """Module and function of the package that do the work. No module may bear the name of the public function."""

    def part(self, name: str) -> ModuleType | None:
        """A module of the lens's folder by name; None where it has none."""
        if find_spec(f"{self.package}.{name}") is None:
            return None
        with uncollected():
            return import_module(f"{self.package}.{name}")

    @cached_property
    def schema(self) -> Schema:
        """The declaration of its result."""
        declared: Schema = import_module(f"{self.package}.schema").SCHEMA
        return declared

    @property
    def function(self) -> Callable[..., Result]:
        """The public function, `headspan.<name>`."""
        found: Callable[..., Result] = getattr(import_module(self.package), self.name)
        return found

    @property
    def measure(self) -> Callable[..., Any]:
        """The function that does the work."""
        module, _, name = self.work.partition(":")
        found: Callable[..., Any] = getattr(import_module(f"{self.package}.{module}"), name)
        return found

    @property
    def reads_weights_alone(self) -> bool:
        return not (self.runs or self.without_running)

    def skip_reason(self, stored: StoredStack) -> str | None:
        """Why this lens does not apply to a stack, in one line; None where it does."""
        for part in sorted(self.needs - stored.parts):
            if part == "W_pos" and stored.stack.position_table is None:
                return f"needs a learned position table; this model has {stored.stack.positions} positions"
            return f"needs {part}, which this checkpoint does not have"
        if self.any_of and not self.any_of & stored.parts:
            return f"needs one of {', '.join(sorted(self.any_of))}; this checkpoint has none"
        # A layer that runs several times composes with itself at later passes.
        if max(len(stored.attention_layers), len(stored.stack.passes)) < self.min_layers:
            return f"needs at least {self.min_layers} layers; this model has {stored.stack.n_layers}"
        if self.one_stream and stored.stack.reads_memory:
            return "queries and keys of cross-attention read different streams"
        return None


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call to a lens's function, which asks for them first, with `locals()`.

    Everything but the subjects and how they are opened.
    """
    return {name: value for name, value in given.items() if name not in ("model", "before", "after", "opening")}


class Result:
    """What a lens found: labeled data with its declaration.

    Indexing goes to the data: `result["OK"]` is a node, `result["OK"].projection_kernel` a labeled array whose `attrs`
    say what it is. Made by the lens's function, or by `headspan.load`.

    >>> import headspan
    >>> result = headspan.ranks("demo")
    >>> int(result["rank_Q"].sel(head="L1H3"))
    16
    """

    def __init__(self, lens: Lens, data: xr.DataTree) -> None:
        self.lens = lens
        self.data = data

    @property
    def attrs(self) -> dict[str, Any]:
        """Where the result comes from and how it was made."""
        return {str(name): value for name, value in self.data.attrs.items()}

    def __getitem__(self, key: str) -> Any:
        try:
            return self.data[key]
        except KeyError as problem:
            names = [*self.data.children, *self.data.data_vars]
            raise ArgumentError(f"this {self.lens.name} result has no {key!r}; it has {', '.join(names)}") from problem

    def __contains__(self, key: str) -> bool:
        return key in self.data.children or key in self.data.variables

    def dataset(self, node: str = "") -> xr.Dataset:
        """One node's variables with labeled heads; the root's by default."""
        found: xr.Dataset = (self[node] if node else self.data).to_dataset()
        return found

    def grid(self, node: str = "") -> xr.Dataset:
        """One node's variables over grids of layers and heads, as whole numbers."""
        from headspan.labels import gridded

        return gridded(self.dataset(node))

    def table(self, name: str | None = None, *, null: str | None = None) -> pd.DataFrame:
        """One of the result's tables as a DataFrame; the first by default.

        Parameters
        ----------
        name
            Which table, where the lens has several (`result.tables` lists them).
        null
            Under which null, where there are several.
        """
        from headspan import frames

        known = {spec.name: spec for spec in self.lens.schema.tables}
        if not known:
            raise ArgumentError(f"the {self.lens.name} lens has no table; result.data holds its numbers")
        if name is not None and name not in known:
            raise ArgumentError(f"table {name!r} is not one of this result's: {', '.join(known)}")
        spec = next(iter(known.values())) if name is None else known[name]
        return frames.table(self.lens.schema, self.data, spec, null)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that this result has the numbers for."""
        from headspan import frames

        return tuple(spec.name for spec in self.lens.schema.tables if frames.has_table(self.data, spec))

    def top(
        self,
        n: int = 20,
        pairing: str | None = None,
        metric: str | None = None,
        by: str = "score",
        null: str | None = None,
    ) -> pd.DataFrame:
        """The strongest rows: `score` beside `expected`, `z`, `p` and `q` under the null.

        Parameters
        ----------
        n
            How many.
        pairing
            One pairing (or kind of matrix), where the result has several; all together by default.
        metric
            Which score, where there are several.
        by
            What to rank by: score, z, p or q.
        null
            Under which null, where there are several; the first by default.
        """
        from headspan import frames

        if n < 1:
            raise ArgumentError(f"n = {n} asks for no row; it is at least 1")
        found = frames.ranking(self.lens.schema, self.data, node=pairing, metric=metric, by=by, null=null)
        return found.head(n)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the result says, as sentences, strongest first."""
        part = self.lens.part("findings")
        found: list[Finding] = [] if part is None else self._made(lambda: list(part.findings(self)))
        return sorted(found, key=lambda finding: -finding.weight)

    @property
    def figures(self) -> Gallery:
        """Its figures by name, the same as in the report."""
        return self.draw()

    def draw(self, classes: Mapping[str, str] | None = None) -> Gallery:
        """Its figures; heads are colored by class (label to class) in those that can be."""
        from inspect import signature

        part = self.lens.part("figures")
        drawn: Mapping[str, go.Figure] = {}
        if part is not None:
            colored = classes is not None and "classes" in signature(part.figures).parameters
            drawn = self._made(lambda: part.figures(self, classes=classes) if colored else part.figures(self))
        from headspan.notebook_views import Gallery

        return Gallery(f"{len(drawn)} figures of {self.title}", drawn)

    def show(self, figure: str | None = None) -> Gallery | go.Figure:
        """All figures, or one by name; a notebook displays what this returns."""
        gallery = self.figures
        return gallery if figure is None else gallery[figure]

    def save(self, path: str | Path) -> Path:
        """Write the result; the ending says how: .nc (everything), .csv or .parquet (the first table), .json,
        .html (findings and figures).

        A lens may know more endings. The file is there whole or not at all.
        """
        from headspan.documents import write_result

        return write_result(self, Path(path))

    def to_json(self, top: int | None = None, null: str | None = None) -> dict[str, Any]:
        """The result as plain values, NaN as None: provenance, findings, single numbers, tables.

        Parameters
        ----------
        top
            Of the first table only the strongest rows of each metric and node; all rows by default.
        null
            Under which null, where there are several.
        """
        from headspan.documents import document

        return document(self, top, null)

    def to_pandas(self, name: str | None = None) -> pd.DataFrame:
        """The same as `table`, under the name that pandas' neighbors use."""
        return self.table(name)

    def to_networkx(self) -> nx.MultiDiGraph:
        """The result as a directed graph, for lenses that have one: heads and parts are nodes, scores attributes."""
        make = getattr(self.lens.part("command"), "graph", None)
        if make is None:
            raise ArgumentError(f"a {self.lens.name} result is not a graph; affinity, channels and wiring are")
        found: nx.MultiDiGraph = make(self)
        return found

    @property
    def title(self) -> str:
        """The lens and the model in a few words."""
        attrs = self.data.attrs
        of = attrs.get("model", "a model")
        both = f"{attrs['before_model']} and " if "before_model" in attrs else ""
        return f"{self.lens.name} of {both}{of}"

    def __repr__(self) -> str:
        found = self.findings
        lines = [f"<headspan {self.title}>", f"  {self._contents()}"]
        lines += [f"  - {finding.statement}" for finding in found[:SHOWN]]
        if len(found) > SHOWN:
            lines.append(f"  and {len(found) - SHOWN} more in .findings")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from headspan.notebook_views import figure_html, result_html

        drawn = self.figures
        return result_html(self) + (figure_html(next(iter(drawn.values()))) if drawn else "")

    def _ipython_display_(self) -> None:
        from headspan.notebook_views import show_result

        show_result(self)

    def _contents(self) -> str:
        if self.data.children:
            count = len(self.data.children)
            return f"{count} part{'s' * (count > 1)}: {', '.join(map(str, self.data.children))}"
        axes = ", ".join(f"{name} {size}" for name, size in self.data.sizes.items())
        return f"{len(self.data.data_vars)} variables over {axes}"

    def _made(self, make: Callable[[], Any]) -> Any:
        """What `make` returns; where the data lacks what it needs, one line that says which versions do not agree."""
        try:
            return make()
        except (KeyError, AttributeError) as problem:
            made_by = self.data.attrs.get("headspan_version", "an unknown version")
            if made_by == __version__:
                raise
            raise HeadspanError(
                f"this {self.lens.name} result was written by headspan {made_by} and lacks what headspan {__version__} "
                f"needs ({problem}); compute it again"
            ) from problem
