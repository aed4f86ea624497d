"""Factors [n, d, p] in slabs of rows: in memory, or in a scratch file where they are too many for it.

A slab is a range of the d rows, for all members at once: what one step of the projector algorithm needs. The scratch
file keeps each slab in one piece, so that reading it is one sweep; it is read into buffers and not mapped, since mapped
pages would count as memory of the process. The file has no name from the moment it is made (it is unlinked while open):
whatever becomes of the process, the disk gets its space back.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import HeadspanError, ShapeError


class TensorSlabs:
    """Factors that are in memory, in slabs of `height` rows, the last of which may have fewer."""

    def __init__(self, factors: Float[Tensor, "n d p"], height: int) -> None:
        self.factors, self.height, self.dtype = factors, height, factors.dtype
        self.shape = (factors.shape[0], factors.shape[1], factors.shape[2])

    def slab(self, number: int) -> Float[Tensor, "n h p"]:
        """The rows `number * height` and following of every member."""
        return self.factors[:, number * self.height : (number + 1) * self.height]

    def members(self, start: int, stop: int) -> Float[Tensor, "k d p"]:
        """Some members, whole."""
        return self.factors[start:stop]


class ScratchSlabs:
    """Factors in a nameless file; filled by `append`, in order. Made by `scratch_slabs`."""

    def __init__(
        self, file: IO[bytes], shape: tuple[int, int, int], height: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape, self.height, self.dtype = shape, height, dtype
        self._file, self._device, self._filled = file, device, 0

    def append(self, factors: Float[Tensor, "k d p"]) -> None:
        """The next members."""
        n, d, p = self.shape
        if tuple(factors.shape[1:]) != (d, p) or self._filled + len(factors) > n:
            raise ShapeError(f"scratch space is for {n} factors [{d}, {p}], found {tuple(factors.shape)} more")
        for number in range(slab_count(self)):
            part = factors[:, number * self.height : (number + 1) * self.height].to("cpu", self.dtype).contiguous()
            self._write(part, self._place(number, self._filled))
        self._filled += len(factors)

    def slab(self, number: int) -> Float[Tensor, "n h p"]:
        """The rows `number * height` and following of every member, read anew."""
        return self._read(number, 0, self.shape[0])

    def members(self, start: int, stop: int) -> Float[Tensor, "k d p"]:
        """Some members, whole, read anew."""
        stop = min(stop, self.shape[0])
        parts = [self._read(number, start, stop) for number in range(slab_count(self))]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _rows(self, number: int) -> int:
        return min(self.height, self.shape[1] - number * self.height)

    def _place(self, number: int, member: int) -> int:
        """Where in the file a member's part of a slab begins, in bytes."""
        n, _, p = self.shape
        return (number * self.height * n + member * self._rows(number)) * p * self.dtype.itemsize

    def _read(self, number: int, start: int, stop: int) -> Tensor:
        buffer = torch.empty(stop - start, self._rows(number), self.shape[2], dtype=self.dtype)
        view, place = _as_bytes(buffer), self._place(number, start)
        while len(view):
            done = os.preadv(self._file.fileno(), [view], place)
            if done == 0:
                raise HeadspanError("the scratch file ends before its content does; is the disk it lies on damaged?")
            view, place = view[done:], place + done
        return buffer.to(self._device)

    def _write(self, part: Tensor, place: int) -> None:
        view = _as_bytes(part)
        try:
            while len(view):
                done = os.pwrite(self._file.fileno(), view, place)
                view, place = view[done:], place + done
        except OSError as problem:
            raise HeadspanError(
                f"scratch space in {tempfile.gettempdir()} ran out ({problem.strerror}); set TMPDIR to a larger disk, "
                "or raise the memory budget"
            ) from problem


Slabs = TensorSlabs | ScratchSlabs
"""n factors of shape [d, p], handed out by slabs of rows or by ranges of members."""


def slab_count(slabs: Slabs) -> int:
    """How many slabs cover all rows."""
    return -(-slabs.shape[1] // slabs.height)


@contextmanager
def scratch_slabs(
    shape: tuple[int, int, int],
    height: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    *,
    filled: bool = True,
) -> Iterator[ScratchSlabs]:
    """Scratch space for n factors [d, p], in the system's folder for temporary files (TMPDIR); gone afterwards.

    With `filled`, all of it will be used, and is refused at once if the disk has not that much.
    """
    needed = shape[0] * shape[1] * shape[2] * dtype.itemsize
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if filled and needed > free:
        raise HeadspanError(
            f"{needed:,} bytes of scratch space are needed and {tempfile.gettempdir()} has {free:,}; set TMPDIR to a "
            "larger disk, or raise the memory budget"
        )
    with tempfile.TemporaryFile(prefix="headspan-", buffering=0) as file:
        yield ScratchSlabs(file, shape, height, dtype, torch.device(device))


def _as_bytes(tensor: Tensor) -> memoryview:
    return tensor.numpy().reshape(-1).view(np.uint8).data
