"""Large models: exact affinity against the machine's matrix products, the sketch, and how time follows operations.

    python -m benchmarks.scale                      a slice of mistral-7b, a slice of llama-70b, the fit
    python -m benchmarks.scale exact mistral-7b     one model, whole
    python -m benchmarks.scale sketch llama-70b
    python -m benchmarks.scale fit docs             five sizes for each algorithm; also draws docs/scale.svg

Weights are synthetic and made on demand. Making them is not part of affinity: its CPU time is measured apart and taken
off, and named. The yardstick is one large product, timed in the same process before, between and after the runs. All
times are CPU seconds, since other work on the machine stretches wall time; wall time stands beside them. The operations
counted are those that the algorithm needs (`lenses.affinity.costs`), so a share of the peak below 1 is waste: small
products, copies, reading the scratch file.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

import headspan
from benchmarks.measure import own_peak_bytes
from headspan.checkpoint.formats.tensors import TensorInfo
from headspan.heads import Heads
from headspan.heads.memory import working_memory
from headspan.lenses.affinity import affinity
from headspan.lenses.affinity.costs import affinity_plan
from headspan.lenses.affinity.pair_tables import scratch_kernel_tables

PAIRINGS = ("OQ", "OK", "OV")
PEAK_SIDE = 3072
EXACT_SLICE, SKETCH_SLICE = "mistral-7b?layers=8", "llama-70b?layers=3&planted=12"
FIT_LAYERS = {"gram": (3, 4, 6, 9, 13), "projector": (3, 4, 6, 9, 13), "sketch": (12, 18, 26, 38, 55)}
"""Five sizes that take from one to some twenty seconds."""
FIT_SHAPE = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "hidden_size": 1024,
    "intermediate_size": 64,
    "vocab_size": 64,
}


@dataclass
class TimedStore:
    """A store that knows how long making its tensors took."""

    inner: object
    seconds: float = 0.0

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        return self.inner.infos  # type: ignore[attr-defined, no-any-return]

    def read(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        start = time.process_time()
        tensors: dict[str, torch.Tensor] = self.inner.read(names)  # type: ignore[attr-defined]
        self.seconds += time.process_time() - start
        return tensors

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@dataclass
class Spent:
    """CPU and wall seconds, and of the CPU seconds those that made weights."""

    cpu: float = 0.0
    wall: float = 0.0
    making: float = 0.0

    @property
    def own(self) -> float:
        return self.cpu - self.making


@contextmanager
def timed(store: TimedStore) -> Iterator[Spent]:
    """What the block takes."""
    gc.collect()
    spent, making = Spent(), store.seconds
    cpu, wall = time.process_time(), time.perf_counter()
    yield spent
    spent.cpu, spent.wall = time.process_time() - cpu, time.perf_counter() - wall
    spent.making = store.seconds - making


def synthetic_heads(text: str | Mapping[str, object], layers: int | None = None) -> tuple[Heads, TimedStore]:
    """Heads of a synthetic model in float32, and the store that times the making of them."""
    made = f"synthetic:{text}" if isinstance(text, str) else headspan.synthetic(text, layers=layers)
    checkpoint = headspan.open(made).checkpoint
    store = TimedStore(checkpoint.store)
    return replace(checkpoint, store=store).heads().to("float32"), store


def product_seconds(rounds: int = 3) -> float:
    """Best CPU seconds of one product of `2 PEAK_SIDE**3` operations."""
    M = torch.randn(PEAK_SIDE, PEAK_SIDE, generator=torch.Generator().manual_seed(0))
    times = []
    for _ in range(rounds):
        start = time.process_time()
        M @ M
        times.append(time.process_time() - start)
    return min(times)


def exact_figures(text: str, memory: int) -> None:
    """Exact kernels of OQ, OK and OV through a scratch file: both algorithms, and the peak between them."""
    found: dict[str, tuple[Spent, float]] = {}
    heads, store = synthetic_heads(text)
    peaks = [product_seconds()]
    for algorithm in ("projector", "gram"):
        operations = affinity_plan(heads, PAIRINGS, 1, memory, algorithm).chosen.operations
        with timed(store) as spent:
            scratch_kernel_tables(heads, PAIRINGS, tolerance=None, memory=memory, algorithm=algorithm)
        found[algorithm] = spent, operations
        peaks.append(product_seconds())
        rate = 2 * PEAK_SIDE**3 / np.median(peaks)
        print(
            f"{text}, {algorithm}, {memory / 1e9:.1f} GB: cpu {spent.own:.0f} s and {spent.making:.0f} s for making "
            f"weights (wall {spent.wall:.0f} s); {operations:.3g} operations, {operations / spent.own / rate:.0%} of a "
            f"large product's {rate / 1e9:.0f}e9 a second (target 60%)",
            flush=True,
        )
    ratio = found["gram"][0].own / found["projector"][0].own
    print(f"projector against gram: {ratio:.1f} times faster (target >= 4); peak {own_peak_bytes() / 1e9:.2f} GB")


def sketch_figures(text: str, memory: int) -> None:
    """The strongest pairs of a large model, and whether all planted ones are among them."""
    heads, store = synthetic_heads(text)
    with timed(store) as spent:
        result = affinity(heads, algorithm="sketch", top=12, memory=memory)
    planted = heads.checkpoint.store.planted  # type: ignore[attr-defined]
    missed = 0
    for pairing in PAIRINGS:
        node = result.dataset(pairing)
        names = ("src_layer", "src_index", "dst_layer", "dst_index")
        top = result.dataset(f"{pairing}/top")
        found = set(zip(*(top[name].values.tolist() for name in names), strict=True))
        pairs = [(p.src.layer, p.src.head, p.dst.layer, p.dst.head) for p in planted if p.pairing == pairing]
        missed += sum(pair not in found for pair in pairs)
        print(f"{pairing}: {int(node['verified'])} verified, top {int(node['certified'])} certified")
    print(
        f"{text}, sketch of {result.attrs['sketch_width']}, {memory / 1e9:.1f} GB: cpu {spent.own:.0f} s and "
        f"{spent.making:.0f} s for making weights, wall {spent.wall:.0f} s (target 1800 on 2 idle cores); peak "
        f"{own_peak_bytes() / 1e9:.2f} GB; {missed} of {len(planted)} planted pairs missed (target 0)"
    )


@dataclass(frozen=True)
class Fit:
    """CPU seconds against counted operations, those of small products double, and the line through them."""

    algorithm: str
    operations: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def slope(self) -> float:
        """Seconds per operation of the line through the origin that fits best in relative terms."""
        x, y = np.array(self.operations), np.array(self.seconds)
        return float(np.sum(y / x) / len(x))

    @property
    def r_squared(self) -> float:
        x, y = np.array(self.operations), np.array(self.seconds)
        return float(1 - np.sum((y - self.slope * x) ** 2) / np.sum((y - y.mean()) ** 2))


def fits(memory: int = 2 * 10**9, rounds: int = 2, algorithms: Sequence[str] = tuple(FIT_LAYERS)) -> list[Fit]:
    """Five sizes for each algorithm, the best of some rounds."""
    found = []
    for algorithm in algorithms:
        rows = []
        for layers in FIT_LAYERS[algorithm]:
            heads, store = synthetic_heads(FIT_SHAPE, layers)
            operations = affinity_plan(heads, PAIRINGS, 1, memory, algorithm).chosen.weighed
            run = _run(heads, algorithm, memory)
            times = []
            for _ in range(rounds):
                with timed(store) as spent:
                    run()
                times.append(spent.own)
            rows.append((operations, min(times)))
        fit = Fit(algorithm, *zip(*rows, strict=True))
        print(
            f"{algorithm}: {', '.join(f'{o:.2g} in {s:.2f} s' for o, s in rows)}; "
            f"{1e-9 / fit.slope:.0f}e9 operations a CPU second, R^2 {fit.r_squared:.4f} (target > 0.98)",
            flush=True,
        )
        found.append(fit)
    return found


def _run(heads: Heads, algorithm: str, memory: int) -> Callable[[], object]:
    if algorithm != "sketch":
        return lambda: scratch_kernel_tables(heads, PAIRINGS, tolerance=None, memory=memory, algorithm=algorithm)
    from headspan.lenses.affinity.estimates import estimated_kernels

    width = 4 * heads.d_head
    return lambda: estimated_kernels(heads, PAIRINGS, width=width, seed=0, tolerance=None, memory=memory)


def main(arguments: Sequence[str] = ()) -> None:
    """Slices of both models and the fit, or what the arguments name."""
    print(f"threads: {torch.get_num_threads()}")
    if not arguments:
        exact_figures(EXACT_SLICE, working_memory("4GB"))
        sketch_figures(SKETCH_SLICE, working_memory("6GB"))
        fits()
    elif arguments[0] == "exact":
        exact_figures(arguments[1], working_memory("4GB"))
    elif arguments[0] == "sketch":
        sketch_figures(arguments[1], working_memory("6GB"))
    elif arguments[0] == "fit":
        found = fits()
        if len(arguments) > 1:
            from benchmarks.scale_figure import write_figure

            write_figure(found, arguments[1])
    else:
        sys.exit(f"there is no part {arguments[0]!r} of this benchmark; parts are exact, sketch, fit")


if __name__ == "__main__":
    main(sys.argv[1:])
