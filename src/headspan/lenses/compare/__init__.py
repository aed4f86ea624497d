"""Two checkpoints of one shape, compared: what moved, which edges changed, what a change reads, writes and does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens

if TYPE_CHECKING:
    from headspan.lenses.run import Opening
    from headspan.result import Result

NULLS = {"two-way": "two-way", "reverse": "reverse", "haar": "haar", "anticausal": "reverse"}
"""Nulls under which a pair is an edge, by their names; the last is the older name of the reverse-order null."""
LENS = Lens(
    name="compare",
    title="Two checkpoints",
    summary="how far every head moved, which edges were gained and lost, and what became of the spectra",
    package=__name__,
    chapter="Two checkpoints",
    order=210,
    needs=ATTENTION,
    subjects=2,
    in_series=False,
    run_option="run",
)
NOISES = ("gaussian", "rounding")
FEWEST = 4


def compare(
    before: Any,
    after: Any,
    *,
    leading: int | None = None,
    tolerance: float | None = None,
    draws: int = 16,
    seed: int = 0,
    level: float = 0.05,
    null: str = "two-way",
    noise: str | None = None,
    similarity: float = 0.5,
    run: bool = False,
    text: str | None = None,
    sequences: int = 32,
    length: int = 64,
    memory: int | str = "4GB",
    **opening: Unpack[Opening],
) -> Result:
    """Everything that differs between two checkpoints.

    Parameters
    ----------
    before, after
        Two checkpoints of one family, stack, shape and fold state: anything `headspan.open` takes, or what it returned.
    leading, tolerance, draws, seed
        As for `headspan.drift`; `draws` and `seed` also for the null of edges.
    level, null
        A pair is an edge if its q-value under this null ("two-way", "reverse" or "haar", as for `headspan.affinity`) is
        below `level`. In a small model reverse takes the place of two-way; the attribute `edge_null` says so.
    noise
        The random change that a change is compared with: "gaussian", of the same norm, or "rounding", every entry's
        change with a random sign. By default "rounding" where the second checkpoint is quantized and the first is not.
    similarity
        A leading direction after whose cosine with every direction before is below this is new.
    run
        Also run both models on the same tokens: attention of every head, final states, losses.
    text, sequences, length
        What they run on: windows of this text, or tokens that the first model writes (repeated random tokens for an
        encoder); how many sequences, of how many tokens.
    memory
        Budget for one block of layers.
    **opening
        `stack`, `fold`, `dtype`, `device`, `progress`, `time_limit`.

    Returns
    -------
    Result
        `drift/<role>` as `headspan.drift` gives it. `wiring/<pairing>`: the projection kernel of every pair before and
        after, and its `change`, with mean, z, p and q under random changes of all heads; `read_share` and `write_share`
        in [0, 1], how much of a head's change lies in the spaces of its partners. `change/<kind>`: rank of the change
        of each matrix, and `similarity` [layer, direction] of leading directions to those before. `spectra/<kind>`:
        singular values before and after and their distance `ks` in [0, 1]. `behavior`: `divergence` [head] in nats,
        losses. A part that the model has nothing for is left out, and the attribute `<part>_left_out` says why.

    >>> import headspan
    >>> result = headspan.compare("demo", "demo", draws=3)
    >>> result.findings[0].statement
    'All 64 head matrices are the same in both checkpoints, bit for bit: nothing moved.'
    """
    from headspan.lenses.run import run as run_lens

    if not 0 < level < 1:
        raise ArgumentError(f"level={level}: needed is a q-value between 0 and 1")
    if null not in NULLS:
        raise ArgumentError(f"null={null!r} is unknown; nulls are two-way, reverse and haar")
    if noise is not None and noise not in NOISES:
        raise ArgumentError(f"noise={noise!r} is unknown; random changes are {' and '.join(NOISES)}")
    if not 0 < similarity <= 1:
        raise ArgumentError(f"similarity={similarity}: needed is a cosine above 0 and up to 1")
    if sequences < FEWEST or length < FEWEST:
        raise ArgumentError(f"sequences = {sequences} of length = {length} are too few; both are at least {FEWEST}")
    if text is not None and not run:
        raise ArgumentError("a text is what both models run on: ask for the run too (run=True, or --run)")
    options: dict[str, Any] = {"leading": leading, "tolerance": tolerance, "draws": draws, "seed": seed, "level": level}
    options |= {"null": NULLS[null], "noise": noise, "similarity": similarity, "run": run, "text": text}
    options |= {"sequences": sequences, "length": length, "memory": memory}
    return run_lens(LENS, [before, after], options, opening)
