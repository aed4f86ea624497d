"""How alike tokens become from layer to layer.

1. A stream of tokens enters the first layer (`start`).
2. It goes through every attention layer (`layers`), once with each layer's output in the place of the stream and once
   with skip connections, at every inverse temperature; all these streams together, so that a layer is read once.
3. The same with random weights of equal size, several times: the null.
4. At every depth: mean cosine, what is not the mean, effective rank, information of neighbors.

Streams are single precision; what is measured of them is computed in double.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from headspan.distributions.token_course import (
    information_at,
    leading_components,
    mean_cosine,
    token_rank,
    token_residual,
)
from headspan.errors import ArgumentError
from headspan.heads import Heads
from headspan.lenses.mixing.layers import applied, checked, read_layer
from headspan.lenses.mixing.schema import DIMS, QUANTITIES, SKIPS
from headspan.lenses.mixing.start import Start, starting_stream
from headspan.progress import current_step
from headspan.runtime import RunnableModel
from headspan.runtime.budget import FEWER, require_memory

Numbers = dict[str, Float[Tensor, "skip beta"]]


def measure(
    heads: Heads,
    *,
    running: RunnableModel | str,
    text: str | None = None,
    sequences: int = 8,
    length: int = 64,
    inverse_temperatures: Sequence[float] = (0.1, 1.0, 2.0),
    biases: bool = False,
    draws: int = 3,
    seed: int = 0,
) -> xr.DataTree:
    """`headspan.mixing` on heads; `running` is the same model opened, or in words why it cannot be run."""
    plain = checked(heads, length).to("float32")
    start = starting_stream(plain, running, text, sequences, length, seed)
    settings = len(SKIPS) * len(inverse_temperatures)
    needed = stream_bytes(plain, settings, sequences * length, length, draws)
    require_memory(needed, f"{settings} streams with {draws} null draws", FEWER)
    betas = torch.tensor(inverse_temperatures, dtype=torch.float32, device=plain.device)
    courses = list(_courses(plain, start.stream, betas, biases, draws, seed))
    depths = list(range(len(courses[0])))
    coords: dict[str, Any] = {"depth": depths, "skip": list(SKIPS), "inverse_temperature": list(inverse_temperatures)}
    attrs = {"fold": "none", "source": start.source, "seed": seed, "draws": draws, "biases": str(biases).lower()}
    nodes = {"/": xr.Dataset(_variables(courses), coords=coords, attrs=attrs)}
    if start.run is not None:
        nodes["/run"] = xr.Dataset(_run_variables(start), coords={"depth": depths})
    return xr.DataTree.from_dict(nodes)


def stream_bytes(heads: Heads, settings: int, tokens: int, length: int, draws: int) -> int:
    """What all streams take, and what one layer makes of those of one draw: projections, patterns, double precision."""
    own = settings * tokens
    one_layer = own * (10 * heads.d_model + heads.n_heads * (4 * heads.d_head + 3 * length))
    return 4 * ((draws + 1) * own * heads.d_model + one_layer)


def _courses(
    heads: Heads, stream: Tensor, betas: Tensor, biases: bool, draws: int, seed: int
) -> Iterator[list[Numbers]]:
    """What is measured depth by depth: of the learned weights first, then of each draw of random ones."""
    # One stream for all settings until the first layer, which makes them differ.
    first = stream.to(heads.device, heads.dtype)[None, None]
    start = {name: number.expand(len(SKIPS), len(betas)) for name, number in _numbers(first).items()}
    generators = [torch.Generator().manual_seed(seed + 1 + draw) for draw in range(draws)]
    streams = [first] * (draws + 1)
    found = [[start] for _ in streams]
    for layer in heads.layers:
        current_step(f"layer {layer}")
        own = read_layer(heads, layer, stream.shape[1], biases)
        for place in range(draws + 1):
            weights = own if place == 0 else own.randomized(generators[place - 1])
            streams[place] = applied(weights, streams[place], betas)
            found[place].append(_numbers(streams[place]))
    yield from found


def _numbers(streams: Float[Tensor, "skip beta sequence position d_model"]) -> Numbers:
    """Everything that is measured of streams at one depth."""
    streams = streams.double()
    cosine = mean_cosine(streams)
    flat = [[_information(stream) for stream in row] for row in streams]
    return {
        "cosine": cosine.mean(-1),
        "cosine_se": cosine.std(-1) / cosine.shape[-1] ** 0.5,
        "residual": token_residual(streams).mean(-1),
        "effective_rank": token_rank(streams).mean(-1),
        "information": torch.tensor(flat, dtype=torch.float64),
    }


def _information(stream: Float[Tensor, "sequence position d_model"]) -> float:
    """Nats between neighbors, less what tokens of other sequences give, which share places alone.

    NaN where tokens have become copies of one another, be it up to rounding.
    """
    components = leading_components(stream, exact=False)
    try:
        related, unrelated = (float(information_at(components, 1, each)) for each in (True, False))
    except ArgumentError:  # what is left to tell tokens apart is rounding, and no covariance
        return math.nan
    return related - unrelated if math.isfinite(related) else math.nan


def _variables(courses: list[list[Numbers]]) -> dict[str, Any]:
    """The learned course, and mean and spread of the random ones, as variables [depth, skip, inverse temperature]."""
    stacked = {
        name: torch.stack([torch.stack([numbers[name] for numbers in course]) for course in courses]).cpu().numpy()
        for name in (*QUANTITIES, "cosine_se")
    }
    variables: dict[str, Any] = {"cosine_se": (DIMS, stacked["cosine_se"][0])}
    for name in QUANTITIES:
        learned, random = stacked[name][0], stacked[name][1:]
        variables[name] = (DIMS, learned)
        variables[f"{name}_null"] = (DIMS, random.mean(0))
        variables[f"{name}_null_sd"] = (DIMS, random.std(0, ddof=1))
    return variables


def _run_variables(start: Start) -> dict[str, Any]:
    """The same of the whole model as it runs, and of its untrained twin."""
    variables: dict[str, Any] = {}
    for states, suffix in ((start.run, ""), (start.twin, "_null")):
        assert states is not None
        numbers = _numbers(states[None])
        variables |= {f"{name}{suffix}": (("depth",), numbers[name][0].cpu().numpy()) for name in QUANTITIES}
    return variables
