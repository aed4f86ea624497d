"""Many checkpoints: lenses over series of them on Dask, a store that survives, and what changes along training."""

from headspan.sweeps.contents import open_store
from headspan.sweeps.course import evolution
from headspan.sweeps.session import Failure, Summary, sweep

__all__ = ["Failure", "Summary", "evolution", "open_store", "sweep"]
