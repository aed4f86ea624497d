"""What a lens's result holds: every variable declared once, with its dims, meaning, null and place in tables.

1. A `Schema` lists the variables of each node of the result's tree, and the tables that are made of them.
2. `Variable.family` spells out the variables that go with a score x: x_null (mean under the null), x_null_sd, x_z, x_p,
   x_log_p, x_q. Their dims are those of x, or fewer where they repeat along an axis, or one more, `null`, where there
   are several nulls.
3. From this declaration come attributes, coordinates, tables, JSON, the head card, methods and the reference page
   (`headspan.result`). It loads nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from headspan.errors import ArgumentError, SchemaError

DERIVED = {
    "null": "{}, mean under the null",
    "null_sd": "{}, standard deviation under the null",
    "z": "{}, standard deviations from the null's mean",
    "p": "{}, p-value",
    "log_p": "{}, natural logarithm of the p-value",
    "q": "{}, false-discovery rate (Benjamini-Hochberg)",
}
DERIVED_RANGES = {
    "z": "any number, 0 expected",
    "p": "[0, 1], uniform under the null",
    "log_p": "at most 0",
    "q": "[0, 1]",
}
NULL_DIM = "null"


@dataclass(frozen=True)
class Variable:
    """One variable of a result.

    Parameters
    ----------
    name, dims
        As in the result; dims are the public ones (`head`, `src`, `dst`, ...).
    long_name
        What it is, as an axis title or a column heading says it.
    range
        The values it can take, or its unit.
    null
        The null distribution and what is expected under it.
    formula, text, reference
        For the methods: the formula (written for `headspan.explorer.methods`), the formula in words, the source.
    derived
        Which of `DERIVED` go with it.
    optional
        It depends on options or on the model whether it is there.
    card
        Its title on a head's card; of a variable with one more axis than `head` a curve is drawn.
    of
        The variable that says out of how many.
    """

    name: str
    dims: tuple[str, ...]
    long_name: str
    range: str = ""
    null: str = ""
    formula: str = ""
    text: str = ""
    reference: str = ""
    derived: tuple[str, ...] = ()
    optional: bool = False
    card: str = ""
    of: str = ""

    def family(self) -> Iterator[Variable]:
        """The variable, then those derived from it."""
        yield self
        for suffix in self.derived:
            yield replace(
                self,
                name=f"{self.name}_{suffix}",
                long_name=DERIVED[suffix].format(self.long_name),
                range=DERIVED_RANGES.get(suffix, self.range),
                formula="",
                text="",
                card="",
                derived=(),
            )

    def attributes(self) -> dict[str, str]:
        """What the variable says of itself in a result."""
        told = {name: getattr(self, name) for name in ("long_name", "range", "null", "formula", "reference")}
        return {name: text for name, text in told.items() if text}


def variables(
    rows: Iterable[tuple[str, tuple[str, ...], str, str, str, tuple[str, ...]]], *, optional: bool = False
) -> tuple[Variable, ...]:
    """Variables that need few words, each as a row (name, dims, long name, range, null, derived)."""
    return tuple(
        Variable(name, dims, long_name, range=span, null=null, derived=derived, optional=optional)
        for name, dims, long_name, span, null, derived in rows
    )


@dataclass(frozen=True)
class Table:
    """One table of a result: a row for every cell of the axes of `like`, in every node that `nodes` matches.

    Parameters
    ----------
    name, title
        Its name in JSON and files, and what it shows.
    like
        Variables of which the first that is there gives the rows; a cell where all of them are NaN has no row.
    nodes
        Pattern of node names; the root by default.
    key
        The column that names the node, where there are several.
    also
        Variables with fewer axes that are columns too.
    without
        Variables over the same axes that are no columns.
    by
        The variable by whose size rows are ordered, largest first; in the order of the axes by default.
    most
        How many rows a JSON document holds; all by default.
    """

    name: str
    title: str
    like: tuple[str, ...]
    nodes: str = ""
    key: str = ""
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    by: str = ""
    most: int | None = None


@dataclass(frozen=True)
class Schema:
    """All variables of a lens's result by pattern of node name ("" is the root), its tables, and what `top` ranks."""

    version: int
    nodes: Mapping[str, tuple[Variable, ...]]
    tables: tuple[Table, ...] = ()
    metrics: tuple[str, ...] = ()
    """Variables that `top` can rank by, the default first; they are in the first table."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Short names of metrics."""
    two_sided: bool = False
    """Whether a z-score far below 0 is as remarkable as one far above."""
    arrays: tuple[str, ...] = ()
    """Variables that JSON holds whole, as nested lists: a row for every cell would be too long."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Variables of files of version 1 by their old names; one that was split along an axis becomes "{axis}_se"."""

    def declared(self, node: str) -> dict[str, Variable]:
        """Every variable that a node may hold, derived ones included, by name."""
        for pattern, variables in self.nodes.items():
            if fnmatchcase(node, pattern):
                return {one.name: one for variable in variables for one in variable.family()}
        raise SchemaError(f"the schema knows no node {node!r}; it declares {', '.join(map(repr, self.nodes))}")

    def metric(self, name: str | None) -> str:
        """A metric by its name or alias; the first by default."""
        chosen = self.metrics[0] if name is None else self.aliases.get(name, name)
        if chosen not in self.metrics:
            raise ArgumentError(f"metric {name!r} is not known here; metrics are {', '.join(self.metrics)}")
        return chosen

    def check(self, node: str, found: Mapping[str, tuple[str, ...]]) -> None:
        """Refuse variables (name to dims) that are not declared, lack, or have other axes than declared."""
        declared = self.declared(node)
        where = f"node {node!r}" if node else "the result"
        unknown = [name for name in found if name not in declared]
        if unknown:
            raise SchemaError(f"{where} holds {', '.join(unknown)}, which the schema does not declare")
        missing = [name for name, one in declared.items() if name not in found and not one.optional]
        if missing:
            raise SchemaError(f"{where} lacks {', '.join(missing)}, which the schema declares")
        for name, dims in found.items():
            own, is_derived = declared[name].dims, _is_derived(name, declared)
            fits = set(dims) <= {*own, NULL_DIM} if is_derived else set(dims) == set(own)
            if not fits:
                raise SchemaError(f"{name} of {where} has dims {dims}, and the schema declares {own}")


def _is_derived(name: str, declared: Mapping[str, Variable]) -> bool:
    return any(name.endswith(f"_{suffix}") and name.removesuffix(f"_{suffix}") in declared for suffix in DERIVED)
