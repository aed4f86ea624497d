"""From a shape, or text such as `synthetic:mistral-7b?seed=1&planted=20`, to a checkpoint without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from headspan.checkpoint.checkpoint import Checkpoint
from headspan.checkpoint.describing import described_stacks
from headspan.checkpoint.synthetic.planting import STRENGTH, Planted, random_pairs
from headspan.checkpoint.synthetic.shapes import only_stack, shape_config, tensor_infos
from headspan.checkpoint.synthetic.store import SyntheticStore
from headspan.errors import CheckpointError

SCHEME = "synthetic:"
OPTIONS = ("seed", "layers", "planted", "strength")


def synthetic(
    shape: str | Mapping[str, Any] = "tiny",
    *,
    planted: int | Sequence[Planted | str | Sequence[object]] = (),
    seed: int = 0,
    layers: int | None = None,
    strength: float = STRENGTH,
) -> Checkpoint:
    """A checkpoint of any shape whose tensors are made on demand; nothing is on disk, nothing is kept.

    Parameters
    ----------
    shape
        "tiny", "gpt2", "mistral-7b", "llama-70b", or the fields of a config with its `model_type`.
    planted
        Pairs that compose: `(src, dst, pairing, strength)`, text such as "L0H1-L3H2:OQ:8", or the number of pairs to
        draw for each of OQ, OK and OV. The kernel of a planted pair is `strength` above chance.
    seed
        Everything follows from it, tensor by tensor, whatever the order of reading.
    layers
        Another number of layers than the shape has.
    strength
        Of pairs that are drawn.

    Returns
    -------
    Checkpoint
        To be used like any other. Its weights are independent normal numbers, so that every head's subspaces are
        uniformly distributed (Haar) and every kernel has its chance law, but for the planted pairs.
    """
    config = shape_config(shape, layers)
    stack = only_stack(config)
    drawn = isinstance(planted, int)
    pairs = random_pairs(stack, planted, strength, seed) if isinstance(planted, int) else map(Planted.of, planted)
    chosen = tuple(pairs)
    store = SyntheticStore(stack, tensor_infos(stack, config), chosen, seed, stack.norm.offset)
    _ = store.changes  # pairs that do not fit are refused now, not when the first tensor is read
    name = shape if isinstance(shape, str) else f"{config.model_type}-like"
    settings: dict[str, object] = {
        "seed": seed,
        "layers": layers,
        "planted": planted if drawn else ",".join(map(str, chosen)),
        "strength": f"{strength:g}" if drawn and planted else None,
    }
    text = "&".join(f"{key}={value}" for key, value in settings.items() if value not in (None, "", 0) or key == "seed")
    source = f"{SCHEME}{name}?{text}"
    return Checkpoint(source, config, store, described_stacks(source, config, store.infos))


def open_synthetic(source: str) -> Checkpoint:
    """The checkpoint that text such as `synthetic:llama-70b?seed=1&planted=24&strength=8` names."""
    name, _, query = source.removeprefix(SCHEME).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [option for option in options if option not in OPTIONS]
    if unknown:
        raise CheckpointError(f"{unknown[0]!r:.40} is no option of a synthetic model; options are {', '.join(OPTIONS)}")
    planted = options.get("planted", "0")
    try:
        return synthetic(
            name,
            seed=int(options.get("seed", "0")),
            layers=int(options["layers"]) if "layers" in options else None,
            planted=int(planted) if planted.isdigit() else planted.split(","),
            strength=float(options.get("strength", STRENGTH)),
        )
    except ValueError as problem:
        raise CheckpointError(f"'{source:.80}' is not understood: {problem}; write synthetic:tiny?seed=1") from problem
