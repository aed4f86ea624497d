"""Decomposing many small matrices on one thread.

LAPACK works through a batch one matrix at a time and lets every thread take part in each. On matrices of a head's size
the threads then wait for each other more than they work: 10,296 symmetric 128 x 128 eigenvalue problems took 7 s on one
thread of a two-core machine and 95 s on two while the other core was busy; QR of 144 tall matrices 1 s and 58 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block, torch uses one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
