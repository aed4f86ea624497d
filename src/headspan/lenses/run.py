"""The one way to run a lens on a subject. Python, the command line, the report, sweeps and the lab all call it.

1. The subject becomes a `Model`: a path, a Hub id, a checkpoint, heads, a loaded model, `(state_dict, config)`.
2. The lens must apply to it; what does not is said before anything is computed.
3. The lens's work measures, on heads or on the running model, within a time limit if there is one.
4. Its data gets labels, provenance and what the schema says of every variable, and is held against the schema.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict, cast

from headspan.dims import check_seed
from headspan.errors import (
    ArgumentError,
    DamagedFile,
    LongWork,
    NotRun,
    UnknownTokens,
    UnsupportedModel,
    UnverifiedFamily,
)
from headspan.loading import uncollected
from headspan.result import Lens, Result

with uncollected():  # torch and xarray come with these
    import xarray as xr

    from headspan.frames import nodes_of
    from headspan.labels import indexed, labeled
    from headspan.lenses.model import Model, open_model
    from headspan.progress import progress_bar
    from headspan.runtime.boundary import library_boundary
    from headspan.runtime.budget import cache_limit, memory_budget
    from headspan.threads import time_limit as limited

if TYPE_CHECKING:
    from headspan.heads import Heads


SAID = (UnknownTokens, UnverifiedFamily, LongWork, DamagedFile)
"""Warnings that go with a result, as its attribute `warnings`."""


class Opening(TypedDict, total=False):
    """How a lens opens its subject; the same for every lens.

    stack: which stack, for a model with several. fold: "none" or "layernorm". dtype, device: of the weights. config: of
    a source that has none. progress: a bar on a terminal and in notebooks. time_limit: seconds after which it stops.
    """

    stack: str | None
    fold: str
    dtype: str | None
    device: str
    config: Any
    progress: bool | None
    time_limit: float | None


class Budgeted(Opening, total=False):
    """The same for lenses that run a model or read a layer at a time, which no budget can cut into smaller work.

    memory: what the process may take; what needs more is refused with its size.
    """

    memory: int | str | None


def run(
    lens: Lens, subjects: Sequence[Any], options: Mapping[str, Any], opening: Opening, *, unasked: bool = False
) -> Result:
    """Run a lens.

    Parameters
    ----------
    lens, subjects
        Which, on one subject, or on two for a lens that compares.
    options
        Of the lens's work.
    opening
        How subjects are opened.
    unasked
        It runs because it applies, not because somebody named it: large models are not run then.
    """
    unknown = set(opening) - set(Budgeted.__annotations__)
    if unknown:
        known = ", ".join(dict.fromkeys([*options, *Budgeted.__annotations__]))
        raise ArgumentError(f"{lens.name} has no option {', '.join(sorted(unknown))}; its options are {known}")
    if "seed" in options:
        check_seed(options["seed"])
    with warnings.catch_warnings(record=True) as caught:
        result = _run(lens, subjects, options, opening, unasked)
    for one in caught:
        warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    said = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, SAID))
    if said:
        result.data.attrs["warnings"] = "\n".join(said)
    return result


def _run(lens: Lens, subjects: Sequence[Any], options: Mapping[str, Any], opening: Opening, unasked: bool) -> Result:
    models = [open_model(subject, opening.get("config")) for subject in subjects]
    for model in models:
        _check(lens, model, opening.get("stack"))
    watched = opening.get("progress") is not False and not unasked
    boundary = library_boundary(f"'{models[0].source}'")
    budget = memory_budget(cast("Budgeted", opening).get("memory"))
    with budget, limited(opening.get("time_limit")), progress_bar(title=lens.title, shown=watched), boundary:
        if lens.runs:
            running = models[0].running(
                stack=opening.get("stack"),
                dtype=opening.get("dtype") or "float32",
                device=opening.get("device", "cpu"),
                unasked=unasked,
            )
            return labeled_result(lens, lens.measure(running, **options), running.heads(), running.provenance())
        heads = [_heads(lens, model, opening) for model in models]
        given = dict(options)
        if lens.without_running:
            given["running"] = _running(models[0], opening, unasked)
        if lens.run_option and given.pop(lens.run_option):
            given["running"] = [_running(model, opening, unasked) for model in models]
        if opening.get("dtype") is not None and "dtype" in signature(lens.measure).parameters:
            given["dtype"] = opening["dtype"]
        return labeled_result(lens, lens.measure(*heads, **given), heads[-1])


def _check(lens: Lens, model: Model, stack: str | None) -> None:
    reason = lens.skip_reason(model.stored(stack))
    if reason is not None:
        raise UnsupportedModel(f"{lens.name} does not apply to '{model.source}': it {reason}")


def _heads(lens: Lens, model: Model, opening: Opening) -> Heads:
    own = "dtype" in signature(lens.measure).parameters
    found = model.heads(
        stack=opening.get("stack"),
        fold=opening["fold"] if "fold" in opening else model.allowed_fold(lens.fold, opening.get("stack")),
        dtype=None if own else opening.get("dtype"),
        device=opening.get("device", "cpu"),
    )
    found.cache.limit = cache_limit(found.cache.limit)
    return found


def _running(model: Model, opening: Opening, unasked: bool) -> Any:
    """The running model for a lens that can do without; the reason, where it cannot be run."""
    reason = model.run_obstacle(opening.get("stack"))
    if reason is not None:
        return reason
    try:
        return model.running(stack=opening.get("stack"), device=opening.get("device", "cpu"), unasked=unasked)
    except (NotRun, UnsupportedModel) as problem:
        return str(problem)


def labeled_result(
    lens: Lens, found: xr.Dataset | xr.DataTree, heads: Heads, provenance: Mapping[str, Any] | None = None
) -> Result:
    """What a lens measured, with labels, provenance and the schema's attributes; refused where the two disagree."""
    group = heads.n_heads // heads.n_kv_heads
    tree = xr.DataTree.from_dict({"/": found}) if isinstance(found, xr.Dataset) else found
    shape = {name: getattr(heads, name) for name in ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head")}
    attrs: dict[str, Any] = {
        **(heads.provenance() if provenance is None else provenance),
        **shape,
        **{str(name): value for name, value in tree.attrs.items()},
        "lens": lens.name,
        "schema": f"headspan.{lens.name}/{lens.schema.version}",
    }
    nodes = {name: _declared(lens, name, labeled(dataset, group)) for name, dataset in nodes_of(tree).items()}
    return Result(lens, joined(nodes, attrs))


def joined(nodes: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> xr.DataTree:
    """Nodes by path as one tree, the root with these attributes."""
    root = nodes.get("", xr.Dataset()).assign_attrs(attrs)
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": node for name, node in nodes.items() if name}})


def _declared(lens: Lens, node: str, dataset: xr.Dataset) -> xr.Dataset:
    """A node with the attributes that the schema gives its variables."""
    # Plain variables: to make a DataArray of each would take longer than many a measurement.
    variables = {str(name): dataset.variables[name] for name in dataset.data_vars}
    lens.schema.check(node, {name: tuple(map(str, one.dims)) for name, one in variables.items()})
    declared = lens.schema.declared(node)
    for name, variable in variables.items():
        variable.attrs = {**declared[name].attributes(), **variable.attrs}
    return dataset


def reopened(lens: Lens, nodes: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> Result:
    """A result out of nodes that were kept: its labels understand every spelling of a head again."""
    group = int(attrs.get("n_heads", 1)) // max(int(attrs.get("n_kv_heads", 1)), 1)
    return Result(lens, joined({name: indexed(node, group) for name, node in nodes.items()}, attrs))
