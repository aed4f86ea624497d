"""headspan: the geometry of transformer weights.

>>> import headspan as hs
>>> model = hs.open("demo")
>>> hs.affinity(model, pairings="OK").top(3)[["src", "dst"]].values.tolist()
[['L0H3', 'L1H6'], ['L0H3', 'L1H1'], ['L0H3', 'L1H3']]
"""

from __future__ import annotations

from typing import Any

from headspan._version import __version__
from headspan.errors import HeadspanError

VERBS = {
    "open": "headspan.lenses.model:open_model",
    "load": "headspan.lenses.files:load",
    "table": "headspan.lenses.overview:table",
    "report": "headspan.explorer.reports:report",
    "explore": "headspan.explorer.widget:explore",
    "sweep": "headspan.sweeps:sweep",
    "synthetic": "headspan.checkpoint.synthetic:synthetic",
    "register_family": "headspan.checkpoint.families:register",
    "Checkpoint": "headspan.checkpoint:Checkpoint",
    "Heads": "headspan.heads:Heads",
    "Layout": "headspan.checkpoint.families:Layout",
    "Model": "headspan.lenses.model:Model",
    "Result": "headspan.result:Result",
}
"""What the package offers beside one function per lens: name -> module and name there."""


def __getattr__(name: str) -> Any:
    """Load the heavy parts (torch among them) only when they are used."""
    from importlib import import_module

    from headspan.loading import uncollected

    if name in VERBS:
        module, _, attribute = VERBS[name].partition(":")
        with uncollected():
            return getattr(import_module(module), attribute)
    if not name.startswith("_"):
        from headspan.lenses.catalog import lenses

        if name in lenses():
            return lenses()[name].function
    raise AttributeError(f"module 'headspan' has no attribute {name!r}")


def __dir__() -> list[str]:
    from headspan.lenses.catalog import lenses

    return sorted({*VERBS, *lenses(), "HeadspanError", "__version__"})
