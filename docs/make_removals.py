"""What copying loses without one head's message to others, or a few directions of it, beside random draws.

    python -m docs.make_removals MODEL SOURCE READERS [--draws 99] [--counts 1,2,4,6,8] [--sequences 16] [--half 24]
    python -m docs.make_removals demo L0H3 L1H0,L1H1,L1H3,L1H4,L1H5,L1H6

On repeated random tokens, taken from the keys of all readers at once (they may be of several layers). "Removing the
leading channel breaks copying where random ones do not" has three readings, each with its controls:

A. Each reader loses its own n leading channels. Control: n random directions that it reads.
B. All lose the n leading directions that they share, those that carry most energy to all of them together. Controls:
   n random directions of the message, the same for all: of the shared space, which holds 90 % of that energy; of the
   rest; of the whole, scaled or as they are; and n random directions that each reads.
C. All lose the whole message, every channel of the pair. Control: the messages of all other heads of the source's
   layer.

Where nothing else is said a control is scaled, for every reader, to the read energy of what it is compared with.
Copying is broken where at most half as many tokens are copied as with nothing removed; random ones do not where the
loss exceeds that of every draw. p is (1 + draws with at least this loss) / (1 + draws).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headspan.dims import HeadLabel
from headspan.lenses.channels.schema import RANDOM_READ
from headspan.lenses.channels.use import Experiment, copying, random_frame
from headspan.runtime import Forward, forward, open_runnable
from headspan.runtime.detectors import repeated_tokens
from headspan.runtime.interventions import intervened
from headspan.runtime.interventions.messages import WithoutMessage
from headspan.runtime.untrained import untrained_twin

SHARED_ENERGY = 0.9
PAIRING = "OK"
Parts = list[list[Tensor]]
"""What is taken from every reader of every experiment."""


@dataclass(frozen=True)
class Outcome:
    loss: float
    copied: float


class Removals:
    """A source and its readers in one run, a part of the experiment for every layer that has readers."""

    def __init__(self, plain: Forward, src: HeadLabel, readers: list[HeadLabel], half: int) -> None:
        self.plain, self.src, self.half = plain, src, half
        layers = sorted({label.layer for label in readers})
        groups = [[label for label in readers if label.layer == layer] for layer in layers]
        self.parts = [Experiment.of(plain, src, group, PAIRING, half) for group in groups]
        first = self.parts[0].readers[0].channels
        self.frame = first.source[: first.rank]
        """Rows: orthonormal directions that the source reads, in which all others are told."""
        cores = [(self.frame @ each.source.mT) * each.strength for part in self.parts for each in part.channels]
        values, vectors = torch.linalg.eigh(torch.stack([core @ core.mT for core in cores]).sum(0))
        self.shares, self.shared = (values / values.sum()).flip(0), vectors.flip(-1)
        self.width = int((self.shares.cumsum(0) < SHARED_ENERGY).sum()) + 1

    def outcome(self, removed: Parts) -> Outcome:
        """Loss and share of copied tokens without these parts of what is read."""
        changes = [
            WithoutMessage(reader.label, part.role, each)
            for part, own in zip(self.parts, removed, strict=True)
            for reader, each in zip(part.readers, own, strict=True)
        ]
        with intervened(self.plain.model, *changes):
            return Outcome(*copying(forward(self.plain.model, self.plain.tokens), self.half))

    def own_leading(self, n: int) -> Parts:
        return [[part.leading(reader, n) for reader in part.readers] for part in self.parts]

    def along(self, directions: Tensor) -> Parts:
        """The part of the message along directions [source, n] of what the source reads, the same for all readers."""
        found = []
        for part in self.parts:
            own = part.readers[0].channels
            found.append([part.along(own.source[: own.rank] @ self.frame.mT @ directions)] * len(part.readers))
        return found

    def message(self, head: int) -> Parts:
        """All that a head of the source's layer writes."""
        place = self.plain.model.layers.index(self.src.layer)
        written = self.plain.head_writes(place)[:, :, head].double()
        return [[part.stream.seen(written)] * len(part.readers) for part in self.parts]

    def read(self, n: int, generator: torch.Generator) -> Parts:
        return [[part.random(RANDOM_READ, reader, n, generator) for reader in part.readers] for part in self.parts]

    def matched(self, removed: Parts, like: Parts) -> Parts:
        """At the read energy of something else, reader by reader."""
        return [
            list(map(part.matched, part.readers, own, other))
            for part, own, other in zip(self.parts, removed, like, strict=True)
        ]


def controls(one: Removals, n: int, generator: torch.Generator) -> Iterator[tuple[str, Callable[[], Parts]]]:
    """Random draws beside n leading channels (A) and n leading shared directions (B)."""
    own, leading, size = one.own_leading(n), one.along(one.shared[:, :n]), len(one.frame)

    def drawn(columns: Tensor) -> Parts:
        return one.along(columns @ random_frame(columns.shape[1], n, generator))

    yield "A: random directions that are read", lambda: one.matched(one.read(n, generator), own)
    yield "B: random directions that are read", lambda: one.matched(one.read(n, generator), leading)
    if n < one.width:
        yield (
            "B: random directions of the shared space",
            lambda: one.matched(drawn(one.shared[:, : one.width]), leading),
        )
    if n <= size - one.width:
        yield "B: random directions of the rest", lambda: one.matched(drawn(one.shared[:, one.width :]), leading)
    yield "B: random directions of the message", lambda: one.matched(drawn(one.shared), leading)
    yield "B: random directions of the message, as they are", lambda: drawn(one.shared)


def rows(one: Removals, counts: list[int], draws: int) -> Iterator[tuple[str, int, list[Outcome], Outcome | None]]:
    """What is removed, how many directions, one outcome or those of all draws, and what these are compared with."""
    nothing = [[0 * each for each in own] for own in one.along(one.shared)]
    yield "nothing", 0, [one.outcome(nothing)], None
    message = one.message(one.src.head)
    whole = one.outcome(message)
    yield "C: whole message", len(one.frame), [whole], None
    others = [one.message(head) for head in range(one.plain.model.n_heads) if head != one.src.head]
    yield "C: other heads' messages, as they are", len(one.frame), [one.outcome(each) for each in others], whole
    scaled = [one.outcome(one.matched(each, message)) for each in others]
    yield "C: other heads' messages", len(one.frame), scaled, whole
    for n in counts:
        leading = {"A": one.outcome(one.own_leading(n)), "B": one.outcome(one.along(one.shared[:, :n]))}
        yield "A: own leading channels", n, [leading["A"]], None
        yield "B: leading shared directions", n, [leading["B"]], None
        for name, removed in controls(one, n, torch.Generator().manual_seed(0)):
            yield name, n, [one.outcome(removed()) for _ in range(draws)], leading[name[0]]


def line(name: str, n: int, found: list[Outcome], beside: Outcome | None) -> str:
    loss, copied = (np.array([getattr(each, what) for each in found]) for what in ("loss", "copied"))
    if beside is None:
        return f"| {name} | {n} | {loss[0]:.3f} | | {copied[0]:.3f} | | |"
    p = (1 + int((loss >= beside.loss).sum())) / (1 + len(loss))
    return (
        f"| {name} | {n} | {loss.mean():.3f} | {loss.max():.3f} | {copied.mean():.3f} | {copied.min():.3f} | {p:.2g} |"
    )


def main() -> None:
    """Print a table of the model, and by how much the loss of its untrained twin changes at most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "source", "readers"):
        parser.add_argument(name)
    parser.add_argument("--counts", default="1,2,4,6,8")
    for name, default in (("draws", 99), ("sequences", 16), ("half", 24)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    model = open_runnable(asked.model)
    tokens = repeated_tokens(model, asked.half, asked.sequences, 0)
    src, readers = HeadLabel.parse(asked.source), [HeadLabel.parse(each) for each in asked.readers.split(",")]
    counts = [int(each) for each in asked.counts.split(",")]
    one = Removals(forward(model, tokens), src, readers, asked.half)
    told = ", ".join(f"{share:.3f}" for share in one.shares[:8])
    sys.stdout.write(
        f"{len(one.frame)} directions; {one.width} hold {SHARED_ENERGY:.0%} of the energy; the first: {told}\n"
    )
    sys.stdout.write(
        "| removed | n | loss, mean | highest | copied, mean | lowest | p |\n|---|---|---|---|---|---|---|\n"
    )
    for row in rows(one, counts, asked.draws):
        sys.stdout.write(line(*row) + "\n")
        sys.stdout.flush()
    twin = Removals(forward(untrained_twin(model, 0), tokens), src, readers, asked.half)
    found = [each.loss for row in rows(twin, counts, 1) for each in row[2]]
    change = max(abs(loss - found[0]) for loss in found)
    sys.stdout.write(f"untrained twin: loss {found[0]:.3f} with nothing removed, changed by at most {change:.5f}\n")


if __name__ == "__main__":
    main()
