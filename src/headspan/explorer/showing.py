"""Results in a notebook: their figures, and a few lines that say what they are.

`headspan.show(result)` gives the figures that the report shows, `headspan.describe(result)` a short text. Once either
has been used, every Dataset and DataTree also has them as `result.headspan`, through xarray's own way of extending its
classes; xarray's representation of a result stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from headspan._version import __version__
from headspan.errors import HeadspanError, ShapeError
from headspan.finding import Finding
from headspan.findings import findings_of
from headspan.lenses import LENSES

Result = xr.Dataset | xr.DataTree
SHOWN = 5
TWO_CHECKPOINTS = ("drift", "compare")


class Gallery(dict[str, go.Figure]):
    """Figures by name; in a notebook all of them are shown, one below the other."""

    def __init__(self, title: str, figures: Mapping[str, go.Figure]) -> None:
        super().__init__(figures)
        self.title = title

    def __missing__(self, name: str) -> go.Figure:
        raise ShapeError(f"there is no figure {name!r} of {self.title}; figures are {', '.join(self)}")

    def __repr__(self) -> str:
        return f"{self.title}: {', '.join(self)}"

    def _ipython_display_(self) -> None:
        for figure in self.values():
            figure.show()


class Description(str):
    """A text that a notebook shows as it is, not as a quoted string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show(result: Result, figure: str | None = None) -> Gallery | go.Figure:
    """The figures of any result of headspan, the same as in the report.

    Parameters
    ----------
    result
        A Dataset or DataTree that a lens has computed, also one read from a file.
    figure
        The name of one figure; all of them by default.
    """
    lens = lens_of(result)
    if not _draws(lens):
        raise HeadspanError(f"the {lens} lens draws nothing; headspan.describe(result) says what it found")
    drawn = _made(result, lambda: import_module(f"headspan.lenses.{lens}.figures").figures(result))
    gallery = Gallery(f"{len(drawn)} figures of {_title(result)}", drawn)
    return gallery if figure is None else gallery[figure]


def describe(result: Result) -> Description:
    """What a result is and what stands out in it, in a few lines of text."""
    lens = lens_of(result)
    found: list[Finding] = _made(result, lambda: findings_of(lens, result))
    lines = [_title(result), f"  {_contents(result)}"]
    lines += [f"  {number}. {finding.statement}" for number, finding in enumerate(found[:SHOWN], start=1)]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more findings")
    if _draws(lens):
        lines.append("  headspan.show(result) draws it")
    return Description("\n".join(lines))


def lens_of(result: Any) -> str:
    """The lens that a result says it comes from; refused where it says none, or none that this version knows."""
    if not isinstance(result, xr.Dataset | xr.DataTree):
        raise ShapeError(f"a result is a Dataset or DataTree of xarray, found {type(result).__name__}")
    lens = str(result.attrs.get("lens", ""))
    if not lens:
        raise ShapeError("this dataset does not say which lens made it (attribute 'lens'); only results can be shown")
    if not re.fullmatch(r"[a-z_]+", lens) or find_spec(f"headspan.lenses.{lens}.findings") is None:
        known = ", ".join((*LENSES, *TWO_CHECKPOINTS))
        made_by = result.attrs.get("headspan_version", "an unknown version")
        raise HeadspanError(
            f"this result is of the lens {lens!r}, written by headspan {made_by}; headspan {__version__} knows {known}"
        )
    return lens


def _draws(lens: str) -> bool:
    return find_spec(f"headspan.lenses.{lens}.figures") is not None


def _made(result: Result, make: Callable[[], Any]) -> Any:
    """What `make` returns; where the result lacks what it needs, one line that says which versions do not agree."""
    try:
        return make()
    except (KeyError, AttributeError, ValueError) as problem:
        made_by = result.attrs.get("headspan_version", "an unknown version")
        raise HeadspanError(
            f"this {result.attrs['lens']} result was written by headspan {made_by} and lacks what headspan "
            f"{__version__} needs ({problem}); compute it again"
        ) from problem


def _title(result: Result) -> str:
    attrs = result.attrs
    of = f"{attrs['before_model']} to {attrs['model']}" if "before_model" in attrs else attrs.get("model", "a model")
    return f"{attrs['lens']} of {of} (headspan {attrs.get('headspan_version', '?')})"


def _contents(result: Result) -> str:
    """Parts of a tree, or variables and axes of a dataset."""
    if isinstance(result, xr.DataTree) and result.children:
        return f"{len(result.children)} parts: {', '.join(map(str, result.children))}"
    axes = ", ".join(f"{name} {size}" for name, size in result.sizes.items())
    return f"{len(result.data_vars)} variables over {axes}"


class Accessor:
    """What `result.headspan` offers."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __repr__(self) -> str:
        return describe(self._result)

    def show(self, figure: str | None = None) -> Gallery | go.Figure:
        """As `headspan.show`."""
        return show(self._result, figure)

    @property
    def findings(self) -> list[Finding]:
        """What the result says, strongest first."""
        return findings_of(lens_of(self._result), self._result)


for _register in (xr.register_dataset_accessor, xr.register_datatree_accessor):
    _register("headspan")(Accessor)  # type: ignore[no-untyped-call]
