"""Many checkpoints: lenses over series of them on Dask, a store that survives, and what changes along training."""

from headspan.sweeps.reading import open_store
from headspan.sweeps.session import Failure, Summary, run_sweep

__all__ = ["Failure", "Summary", "open_store", "run_sweep"]
