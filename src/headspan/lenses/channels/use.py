r"""Are channels used? What the running model does without them, beside random directions of equal read energy.

On repeated random tokens, where copying can be seen, and for destinations in one layer together:

1. The source's message at every position is a sum of channels, a_k sent_k (`runtime.interventions.channels`).
2. Taken from the destinations' input are: the n leading channels; the rest of the message; n random directions of the
   message, that is random combinations of what the source reads; and the amounts of the n leading channels along n
   random directions that the destination reads. The random ones are scaled to the read energy of the n leading
   channels, so that they are as large where they arrive. Of several destinations, whose leading channels differ, also
   the n leading directions that they share: those of the source that carry most energy to all of them together,
   beside n random directions of the message, the same for all, at the read energy of these.
3. Outcomes: divergence of the destinations' patterns, loss of the tokens that repeat, and the share that is copied.
4. The same in the untrained twin, with its own channels.

`activity` is the share of each channel in what the destination reads of the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.dims import HeadLabel, Role
from headspan.errors import ArgumentError, UnsupportedModel
from headspan.heads import Heads
from headspan.heads.channels import Channels
from headspan.lenses.channels.schema import (
    LEADING,
    NOTHING,
    RANDOM_READ,
    RANDOM_SENT,
    RANDOM_SHARED,
    REST,
    SHARED,
    WHOLE,
)
from headspan.lenses.model import open_model
from headspan.progress import current_step
from headspan.runtime import Forward, forward
from headspan.runtime.detectors import repeated_tokens, surrounding_tokens
from headspan.runtime.forward_pass import full_logs, js_rows
from headspan.runtime.interventions import intervened
from headspan.runtime.interventions.ablation import reading_matrix
from headspan.runtime.interventions.channels import model_channels, read_head, reading_role
from headspan.runtime.interventions.messages import NormedStream, WithoutMessage
from headspan.runtime.untrained import untrained_twin

HALF, SEQUENCES, DRAWS = 24, 16, 6
COLUMNS = ("removed", "channels", "draw", "read_energy", "pattern_change", "loss", "copied")


def use_nodes(
    heads: Heads, src: HeadLabel, used: Sequence[str], pairings: Sequence[str], seed: int
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    """The nodes `use` and `activity` of a source and its destinations, and what they were measured on."""
    model = open_model(heads).running()
    if not model.writes:
        raise UnsupportedModel("used= (--used) counts copied tokens, which needs a causal language model")
    targets = [HeadLabel.parse(each) for each in used]
    if len({target.layer for target in targets}) > 1:
        raise ArgumentError(f"used={','.join(used)}: these heads are not of one layer")
    edges = sum(map(len, surrounding_tokens(model)))
    half = HALF if model.max_context is None else min(HALF, (model.max_context - edges) // 2)
    tokens = repeated_tokens(model, half, SEQUENCES, seed)
    rows: list[dict[str, Any]] = []
    activity: list[xr.DataArray] = []
    for untrained, each in enumerate((model, untrained_twin(model, seed))):
        plain = forward(each, tokens)
        for pairing in pairings:
            current_step(f"{pairing} channels of the {'untrained twin' if untrained else 'model'}")
            experiment = Experiment.of(plain, src, targets, pairing, half)
            rows += [{"pairing": pairing, "untrained": untrained, **row} for row in experiment.rows(seed)]
            activity.append(experiment.activity())
    names = ("pairing", "untrained", *COLUMNS)
    columns = {name: ("row", np.array([row[name] for row in rows], dtype=_dtype(rows[0][name]))) for name in names}
    own, twin = (xr.concat(part, "channel") for part in (activity[: len(pairings)], activity[len(pairings) :]))
    nodes = {
        "use": xr.Dataset(columns),
        "activity": own.to_dataset(name="activity").assign(
            activity_untrained=("channel", np.resize(twin.values, own.shape))
        ),
    }
    return nodes, {"used": ", ".join(map(str, targets)), "sequences": SEQUENCES, "half": half}


def _dtype(value: Any) -> Any:
    return object if isinstance(value, str) else None


@dataclass(frozen=True, eq=False)
class Reader:
    """One destination, and what arrives at it: its matrix, the amounts of all channels, and what each sends."""

    label: HeadLabel
    matrix: Float[Tensor, "d_model d_head"]
    channels: Channels
    amounts: Float[Tensor, "batch position channel"]


@dataclass(frozen=True, eq=False)
class Experiment:
    """A source and its destinations in one run that nothing was taken from."""

    plain: Forward
    stream: NormedStream
    role: Role
    message: Float[Tensor, "batch position d_model"]
    readers: tuple[Reader, ...]
    channels: tuple[Channels, ...]
    """Of all destinations, also of those that read one kv head together."""
    name: str
    half: int

    @classmethod
    def of(cls, plain: Forward, src: HeadLabel, targets: Sequence[HeadLabel], pairing: str, half: int) -> Experiment:
        model, role = plain.model, reading_role(pairing)
        message = plain.head_writes(model.layers.index(src.layer))[:, :, src.head].double()
        readers: dict[HeadLabel, Reader] = {}
        every = [model_channels(model, src, target, pairing) for target in targets]
        for target, found in zip(targets, every, strict=True):
            label = read_head(model, target, role)
            if label in readers:
                continue  # heads of a group read one kv head: it is changed once
            rank = found.rank
            amounts = message @ (found.received[:rank] / found.strength[:rank, None]).mT.to(message)
            readers[label] = Reader(label, reading_matrix(model, role, label), found, amounts)
        stream = NormedStream.of(plain, targets[0].layer)
        name = f"{src}:{targets[0]}:{pairing}"
        return cls(plain, stream, role, message, tuple(readers.values()), tuple(every), name, half)

    def rows(self, seed: int) -> Iterator[dict[str, Any]]:
        """One for everything that is taken away."""
        rank = min(reader.channels.rank for reader in self.readers)
        whole = [self.stream.seen(self.message) for _ in self.readers]
        yield self._row(NOTHING, 0, -1, [0 * each for each in whole])
        yield self._row(WHOLE, rank, -1, whole)
        generator = torch.Generator().manual_seed(seed)
        for n in _counts(rank):
            leading = [self.leading(reader, n) for reader in self.readers]
            yield self._row(LEADING, n, -1, leading)
            yield self._row(REST, n, -1, [every - part for every, part in zip(whole, leading, strict=True)])
            for draw in range(DRAWS):
                for kind in (RANDOM_SENT, RANDOM_READ):
                    drawn = [self.random(kind, reader, n, generator) for reader in self.readers]
                    yield self._row(kind, n, draw, list(map(self.matched, self.readers, drawn, leading)))
        if len(self.channels) > 1:
            yield from self._shared_rows(_counts(rank), torch.Generator().manual_seed(seed))

    def _shared_rows(self, counts: Sequence[int], generator: torch.Generator) -> Iterator[dict[str, Any]]:
        """Without the directions that carry most to all destinations together, and without as many random ones."""
        leading = self._shared_basis()
        for n in counts:
            shared = [self.along(leading[:, :n])] * len(self.readers)
            yield self._row(SHARED, n, -1, shared)
            for draw in range(DRAWS):
                drawn = [self.along(random_frame(len(leading), n, generator))] * len(self.readers)
                yield self._row(RANDOM_SHARED, n, draw, list(map(self.matched, self.readers, drawn, shared)))

    def _shared_basis(self) -> Float[Tensor, "k k"]:
        """Directions of what the source reads, most energy first, in the coordinates of the first reader's channels."""
        first = self.readers[0].channels
        own = first.source[: first.rank]
        cores = [(own @ each.source.mT) * each.strength for each in self.channels]
        energies = torch.stack([core @ core.mT for core in cores]).sum(0)
        basis: Tensor = torch.linalg.eigh(energies).eigenvectors.flip(-1)
        return basis

    def along(self, basis: Float[Tensor, "k n"]) -> Tensor:
        """The part of the message along some directions of what the source reads, as it arrives."""
        first = self.readers[0]
        sent = first.channels.sent[: len(basis)].to(self.message)
        arriving: Tensor = self.stream.seen((first.amounts @ basis.to(self.message)) @ (basis.mT.to(sent) @ sent))
        return arriving

    def activity(self) -> xr.DataArray:
        """Share of every channel of the first destination in what is read, over the sum of all."""
        reader = self.readers[0]
        sent = self.stream.norm.gain.to(self.message) * reader.channels.sent[: reader.channels.rank]
        read = (sent @ reader.matrix).square().sum(-1)
        energy = (reader.amounts * self.stream.inverse_sigma).square().sum((0, 1)) * read
        labels = np.array([f"{self.name}:{k}" for k in range(len(energy))], dtype=object)
        return xr.DataArray((energy / energy.sum()).cpu().numpy(), dims="channel", coords={"channel": labels})

    def leading(self, reader: Reader, n: int) -> Tensor:
        return self.stream.seen(reader.amounts[..., :n] @ reader.channels.sent[:n].to(self.message))

    def random(self, kind: str, reader: Reader, n: int, generator: torch.Generator) -> Tensor:
        """Random directions of the message, or of what is read with the amounts of the leading channels."""
        rank, width = reader.amounts.shape[-1], reader.matrix.shape[-1]
        if kind == RANDOM_SENT:
            basis = random_frame(rank, n, generator)
            seen: Tensor = self.stream.seen(
                (reader.amounts @ basis) @ (basis.mT @ reader.channels.sent[:rank].to(self.message))
            )
            return seen
        along = random_frame(width, min(n, width), generator).mT @ torch.linalg.pinv(reader.matrix)
        read: Tensor = self.stream.inverse_sigma * (reader.amounts[..., : len(along)] @ along)
        return read

    def _energy(self, reader: Reader, removed: Tensor) -> Tensor:
        return (removed @ reader.matrix).square().sum()

    def matched(self, reader: Reader, removed: Tensor, like: Tensor) -> Tensor:
        """At the read energy of something else."""
        scale: Tensor = (self._energy(reader, like) / self._energy(reader, removed)).sqrt()
        return removed * scale

    def _row(self, removed: str, channels: int, draw: int, parts: list[Tensor]) -> dict[str, Any]:
        model, plain = self.plain.model, self.plain
        changes = [WithoutMessage(each.label, self.role, part) for each, part in zip(self.readers, parts, strict=True)]
        with intervened(model, *changes):
            run = forward(model, plain.tokens)
        whole = sum(float(self._energy(each, self.stream.seen(self.message))) for each in self.readers)
        energy = sum(float(self._energy(each, part)) for each, part in zip(self.readers, parts, strict=True))
        values = (removed, channels, draw, energy / whole, self._pattern_change(run), *copying(run, self.half))
        return dict(zip(COLUMNS, values, strict=True))

    def _pattern_change(self, run: Forward) -> float:
        """Mean divergence of the destinations' patterns; of all heads of a group where they read together."""
        model, group = self.plain.model, self.plain.model.n_heads // self.plain.model.stack.n_kv_heads
        label = self.readers[0].label
        place = model.layers.index(label.layer)
        labels = [each.label for each in self.readers]
        own = [range(one.head * group, (one.head + 1) * group) if one.kv else (one.head,) for one in labels]
        heads = [head for some in own for head in some]
        after, before = (full_logs(each.runs[place])[:, heads, 1:] for each in (run, self.plain))
        return float(js_rows(before, after).mean())


def _counts(rank: int) -> list[int]:
    """1, 2, 4, ... and at last all but one."""
    counts = [2**power for power in range(12) if 2**power < rank]
    return counts or [rank]


def random_frame(d: int, n: int, generator: torch.Generator) -> Float[Tensor, "d n"]:
    frame: Tensor = torch.linalg.qr(torch.randn(d, n, generator=generator, dtype=torch.float64)).Q
    return frame


def copying(run: Forward, half: int) -> tuple[float, float]:
    """Mean loss of the tokens of the second half from its second on, and the share of them that is predicted."""
    logits = run.logits
    if logits is None:
        raise UnsupportedModel("copied tokens are counted in logits, and this model has none")
    first = len(surrounding_tokens(run.model)[0]) + half
    where = slice(first, first + half - 1)
    told = logits[:, where].argmax(-1) == run.tokens[:, first + 1 : first + half]
    return float(run.token_losses()[:, where].double().mean()), float(told.double().mean())
