"""Importing large libraries without collecting garbage in between.

torch, `transformers` and xarray are some 4,000 modules and half a million objects, none of which is garbage. Python
walks through all of them again and again while they arrive: a quarter of the time of the first call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the block, which only imports, nothing is collected; afterwards everything is as it was.

    What was imported counts as old then: the next collections of young objects do not walk through it either.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what somebody has frozen stays frozen
            gc.freeze()
            gc.unfreeze()
        gc.enable()
