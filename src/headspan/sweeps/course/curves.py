"""Every lens over steps: each quantity of a lens's result, averaged over layers and heads, as one curve.

A quantity is a variable of floats that is neither derived from another (expected value, spread, p-value), the end of an
interval nor a place on a map of heads, whose mean says nothing. What is expected of it under the null, where the lens
says so, becomes a second curve beside it. Quantities that never change are left out, and of equal ones all but one.

The axis of time is the steps as they are, or their logarithm where checkpoints were kept ever more rarely. Change
points are fitted on this axis (`headspan.statistics.abrupt_changes`) and told in steps.

Drift between steps and spectra over time, as tables over steps for figures and sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import xarray as xr

from headspan.dims import ROLES, head_axis
from headspan.lenses.catalog import lenses
from headspan.schema import DERIVED, NULL_DIM
from headspan.statistics.abrupt_changes import WALKS, change_points
from headspan.statistics.change_points import FEWEST

NOT_A_QUANTITY = re.compile(
    r"(_s[de](_|$)|_z(_|$)|_[pq](_[QKVO])?$|log_p|expected|unrelated|typical|density|histogram|_low$|_high$|n_pairs|"
    r"_reverse$|identical_to|previous_step|_before|_after|^edge|^sigma|direction_|cluster$|^linkage$|^mds$|tsne|"
    r"^random_change$)"
)
WIDENING = 8.0
"""From this ratio of the last gap between steps to the first on, time is taken by its logarithm."""
AT_ONCE = 64_000_000
"""Bytes of a variable that are read at a time."""


@dataclass(frozen=True)
class Axis:
    """Between training steps and places on the axis on which curves are fitted and drawn."""

    logarithmic: bool

    @classmethod
    def of(cls, steps: np.ndarray) -> Axis:
        gaps = np.diff(np.asarray(steps, dtype=float))
        return cls(bool(len(gaps) > 1 and gaps[-1] >= WIDENING * gaps[0]))

    @property
    def name(self) -> str:
        return "log" if self.logarithmic else "linear"

    def places(self, steps: np.ndarray) -> np.ndarray:
        """Where steps lie; log(1 + step) on a logarithmic axis, since series begin at step 0."""
        values = np.asarray(steps, dtype=float)
        return np.log1p(values) if self.logarithmic else values

    def step(self, place: float) -> float:
        """The step at a place."""
        return float(np.expm1(place)) if self.logarithmic else float(place)


def step_changes(values: np.ndarray, steps: np.ndarray, walks: int = WALKS, seed: int = 0) -> xr.Dataset:
    """`change_points` of curves [curve, step] over ascending training steps, over `curve`.

    `change` in steps with its interval `low`..`high`, `change_kind`, `before`, `after`, `explained`, `change_p` and
    `change_q`.
    """
    axis = Axis.of(steps)
    columns = change_points(values, axis.places(steps), walks, seed)
    for name in ("change", "low", "high"):
        columns[name] = np.array([axis.step(place) for place in columns[name]])
    attributes = {
        "axis": axis.name,
        "null": f"{walks} random walks on the same steps, with any drift",
        "least_steps": FEWEST,
    }
    table = xr.Dataset({name: ("curve", column) for name, column in columns.items()}, attrs=attributes)
    return table.rename(p_value="change_p", q_value="change_q", kind="change_kind")


@dataclass(frozen=True)
class Curve:
    """One quantity over steps; `null` is NaN where the lens has no expected value for it."""

    lens: str
    name: str
    words: str
    steps: np.ndarray
    values: np.ndarray
    null: np.ndarray


def lens_curves(trees: xr.DataTree, model: str) -> Iterator[Curve]:
    """The curves of all lenses of one model in a store."""
    for lens, tree in trees.children.items():
        for node in tree.subtree:
            dataset = node.to_dataset()
            if "step" in dataset.dims and dataset.sizes["step"] > 1:
                path = node.path.removeprefix(tree.path).strip("/")
                yield from distinct_curves(list(_node_curves(lens, path, dataset.sel(model=model))))


def distinct_curves(found: list[Curve]) -> list[Curve]:
    """Each curve once: a lens may hold a table and its mean. The one with an expected value stays, else the first."""
    kept: dict[int, Curve] = {}
    for place in sorted(range(len(found)), key=lambda place: bool(np.isnan(found[place].null).all())):
        values = found[place].values
        if not any(np.allclose(values, other.values, rtol=1e-9, atol=0, equal_nan=True) for other in kept.values()):
            kept[place] = found[place]
    return [kept[place] for place in sorted(kept)]


def _node_curves(lens: str, path: str, node: xr.Dataset) -> Iterator[Curve]:
    for key, variable in node.data_vars.items():
        name = str(key)
        if variable.dtype.kind != "f" or "step" not in variable.dims or not _is_quantity(name, node):
            continue
        values = mean_over_heads(variable)
        if np.isfinite(values).sum() < 2 or np.nanmax(values) == np.nanmin(values):
            continue
        words = quantity_words(name, variable, path)
        yield Curve(lens, f"{path} {name}".strip(), words, node["step"].values, values, _null(node, name))


def quantity_means(nodes: Mapping[str, xr.Dataset]) -> dict[str, float]:
    """The quantities of one result by node and name, each as its mean over layers and heads; the same as in curves."""
    found = {}
    for path, node in nodes.items():
        for key in node.data_vars:
            name, values = str(key), node.variables[key].values
            if values.dtype.kind == "f" and _is_quantity(name, node) and np.isfinite(values).any():
                found[f"{path}/{name}".lstrip("/")] = float(values[np.isfinite(values)].mean())
    return found


def _is_quantity(name: str, node: xr.Dataset) -> bool:
    derived = any(name.endswith(f"_{suffix}") and name.removesuffix(f"_{suffix}") in node for suffix in DERIVED)
    return not derived and NOT_A_QUANTITY.search(name) is None


def quantity_words(name: str, variable: xr.DataArray, node: str) -> str:
    """A quantity as a reader calls it: what its lens says it is, and the node it is from."""
    text = str(variable.attrs.get("long_name", name.replace("_", " ")))
    return f"{text[:1].upper()}{text[1:]}" + (f" ({node})" if node else "")


def mean_over_heads(variable: xr.DataArray) -> np.ndarray:
    """The mean over everything but steps, of what is defined; some steps at a time, since series may be long."""
    n_steps = variable.sizes["step"]
    together = max(1, AT_ONCE * n_steps // max(1, variable.nbytes))
    blocks = [variable.isel(step=slice(start, start + together)) for start in range(0, n_steps, together)]
    return np.concatenate([_mean_of_block(block) for block in blocks])


def _mean_of_block(variable: xr.DataArray) -> np.ndarray:
    rows = variable.transpose("step", ...).values.reshape(variable.sizes["step"], -1)
    known = np.isfinite(rows)
    total, count = np.where(known, rows, 0.0).sum(1), known.sum(1)
    mean: np.ndarray = np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)
    return mean


def _null(node: xr.Dataset, name: str) -> np.ndarray:
    """What is expected of a quantity, under the first null where there are several."""
    if f"{name}_null" not in node or "step" not in node[f"{name}_null"].dims:
        return np.full(node.sizes["step"], np.nan)
    found = node[f"{name}_null"]
    return mean_over_heads(found.isel({NULL_DIM: 0}) if NULL_DIM in found.dims else found)


def curve_dataset(found: list[Curve], steps: np.ndarray) -> xr.Dataset:
    """All curves on one axis of steps, NaN where a curve has none: `value` and `value_null`, [quantity, step]."""
    places = {int(step): place for place, step in enumerate(steps)}
    values = np.full((2, len(found), len(steps)), np.nan)
    for row, curve in enumerate(found):
        at = [places[int(step)] for step in curve.steps]
        values[0, row, at], values[1, row, at] = curve.values, curve.null
    names = [f"{curve.lens} {curve.name}" for curve in found]
    often = Counter(curve.words for curve in found)
    words = [
        curve.words if often[curve.words] == 1 else f"{curve.words} [{name}]"
        for name, curve in zip(names, found, strict=True)
    ]
    return xr.Dataset(
        {"value": (("quantity", "step"), values[0]), "value_null": (("quantity", "step"), values[1])},
        coords={
            "quantity": names,
            "lens": ("quantity", [curve.lens for curve in found]),
            "words": ("quantity", words),
            "step": np.asarray(steps),
        },
    )


MOVEMENTS = ("grassmann", "grassmann_null", "grassmann_unrelated", "relative_change")
SHAPES = ("stable_rank", "effective_rank", "ks", "energy_ratio", "spikes")
LEVEL = 0.05


def tree_with_table(trees: xr.DataTree, name: str, key: str, subjects: int = 1) -> xr.DataTree | None:
    """The results of the lens whose first table has that name and key, if one was swept."""
    for lens, tree in trees.children.items():
        known = lenses().get(lens)
        tables = () if known is None or known.subjects != subjects else known.schema.tables[:1]
        if any((table.name, table.key) == (name, key) for table in tables):
            return tree
    return None


def movement_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
    """Medians over heads of how far subspaces moved since the step before, [role, step]; None without such a lens.

    `grassmann` in [0, sqrt(r) pi/2] beside `grassmann_null`, what a random change of the same size does, and
    `grassmann_unrelated`; `relative_change` |dW| / |W|; `moved_share` of heads that turned further than a random change
    would turn them (q <= 0.05), 0 under the null; `previous_step`.
    """
    tree = tree_with_table(trees, "heads", "role", subjects=2)
    if tree is None or not set(ROLES) <= set(tree.children):
        return None
    nodes = {role: tree[role].to_dataset().sel(model=model) for role in ROLES}
    variables = {
        name: (("role", "step"), np.stack([node[name].median(head_axis(role)).values for role, node in nodes.items()]))
        for name in MOVEMENTS
    }
    beyond = [
        ((node["grassmann_q"] <= LEVEL) & (node["grassmann_z"] > 0)).mean(head_axis(role)).values
        for role, node in nodes.items()
    ]
    root = tree.to_dataset().sel(model=model)
    return xr.Dataset(
        {
            **variables,
            "moved_share": (("role", "step"), np.stack(beyond)),
            "previous_step": ("step", root["previous_step"].values),
        },
        coords={"role": list(ROLES), "step": root["step"].values},
    )


def matrix_summary(trees: xr.DataTree, model: str) -> xr.Dataset | None:
    """What sums up spectra, means over layers and heads with their nulls, [kind, step]; None without such a lens."""
    tree = tree_with_table(trees, "matrices", "matrix")
    if tree is None:
        return None
    schema = lenses()[tree.name or ""].schema
    pattern = schema.tables[0].nodes
    kinds = [kind for kind in schema.nodes if kind in tree.children and fnmatchcase(kind, pattern)]
    if not kinds:
        return None
    nodes = [tree[kind].to_dataset().sel(model=model) for kind in kinds]
    variables = {}
    for name in (*SHAPES, *(f"{name}_null" for name in SHAPES)):
        if all(name in node for node in nodes):
            rows = [node[name].mean([dim for dim in node[name].dims if dim != "step"]).values for node in nodes]
            variables[name] = (("kind", "step"), np.stack(rows))
    return xr.Dataset(variables, coords={"kind": kinds, "step": nodes[0]["step"].values})
