"""Directions of the residual stream, read in the vocabulary: which tokens score highest, and how few they are.

The score of token t along a direction u is x_t = (e_t - mean e) . u, with e_t the token's row of W_E (side "read": what
a matrix that reads the stream responds to) or its column of W_U (side "write": the logits that writing u raises). The
mean runs over the tokens that are kept. With r the root mean square of the scores, z_t = x_t / r, and

- largest_z   max |z_t|
- kurtosis    mean z_t^4 - 3
- top_mass    the share of sum z_t^2 that the 10 tokens with the largest |z_t| hold

say how concentrated the scores are. None depends on the length or the sign of u. What they are for a direction that
means nothing depends on the table, so the null is random directions of the stream, read through the same table.

1. Pull the directions back to the rows as they are stored (`heads.token_rows`).
2. Go through the table once, a block of tokens at a time; multiply a block with some directions at a time, so that the
   scores stay in the processor's cache while sums and extremes are taken. Never tokens x tokens.
3. The extremes of a block are among the rows of its sub-blocks with the largest maxima: one pass, then a small sort.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspan.errors import ArgumentError, ShapeError
from headspan.heads import Heads
from headspan.heads.token_rows import BLOCK, TokenRows, token_rows
from headspan.lenses.token_texts import Tokens, tokens_of
from headspan.statistics.draw_tails import upper_p_values
from headspan.subspaces.grams import row_gram
from headspan.threads import one_thread

SIDES = ("read", "write")
MASS_TOKENS = 10
STATISTICS = ("top_mass", "largest_z", "kurtosis")
DRAWS = 500
"""Random directions that the null is estimated from."""
AT_ONCE = 256
"""Directions that are multiplied with a block of tokens at a time."""
TOKENS_AT_ONCE = 4096
SUB_BLOCK = 32
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reading:
    """What n directions read as. Arrays [n, end, place]: end 0 holds the highest scores, end 1 the lowest.

    A direction along which all tokens score alike has NaN for numbers and -1 for ids.
    """

    ids: np.ndarray
    z: np.ndarray
    """Scores of these tokens over the rms score of all."""
    rms: np.ndarray
    """[n]: root mean square of the scores; that of the direction as it was given."""
    largest_z: np.ndarray
    kurtosis: np.ndarray
    top_mass: np.ndarray
    tokens: Tokens

    @cached_property
    def texts(self) -> np.ndarray:
        """How these tokens read; `#17` where there is no tokenizer."""
        return self.tokens.spelled(self.ids)

    def turned(self, signs: np.ndarray) -> Reading:
        """The reading of the same directions times +1 or -1 each: where -1, the ends change places."""
        back = (signs < 0)[:, None, None]
        ids = np.where(back, self.ids[:, ::-1], self.ids)
        z = np.where(back, -self.z[:, ::-1], self.z)
        return Reading(ids, z, self.rms, self.largest_z, self.kurtosis, self.top_mass, self.tokens)


class TokenTable:
    """One side of the vocabulary, opened once: rows, tokens, their mean, and the null of its statistics.

    Parameters
    ----------
    heads
        The model, in the fold state that directions are in. Folded heads read the plain normalized stream, and W_U then
        has the gain of the final norm.
    side
        "read" (W_E) or "write" (W_U; W_E where the model has no unembedding).
    filtered
        Leave out special, unused and byte tokens.
    tokenizer
        A `transformers` tokenizer, in place of the files beside the weights.
    memory
        Bytes that a block of the table may take in the precision of the heads; the table itself is held as stored.
    """

    def __init__(
        self, heads: Heads, side: str, *, filtered: bool = True, tokenizer: Any = None, memory: int | None = None
    ) -> None:
        if side not in SIDES:
            raise ArgumentError(f"side={side!r} is unknown; it is one of {', '.join(SIDES)}")
        unembeds = "W_U" in heads.reader.stored.parts
        self.side = side
        self.rows: TokenRows = token_rows(heads, "W_U" if side == "write" and unembeds else "W_E")
        self.tokens = tokens_of(heads, self.rows.n_tokens, tokenizer)
        self.dtype = heads.dtype
        self.d_model = heads.d_model
        self.entries = BLOCK if memory is None else min(BLOCK, memory // heads.dtype.itemsize)
        every = len(self.tokens.kept) == self.rows.n_tokens
        self.keep = None if every or not filtered else self.tokens.kept.to(heads.device)
        self._nulls: dict[tuple[int, int], Reading] = {}

    @property
    def name(self) -> str:
        """Which table it is: W_E or W_U."""
        return self.rows.name

    @property
    def n_kept(self) -> int:
        return self.rows.n_tokens if self.keep is None else len(self.keep)

    @cached_property
    def mean(self) -> Float[Tensor, " width"]:
        """Mean of the stored rows that are kept, in float64."""
        stored = self.rows.stored
        total = torch.zeros(stored.shape[1], dtype=torch.float64, device=stored.device)
        for _, block in self.rows.blocks(self.dtype, self.keep, self.entries):
            total += block.sum(0, dtype=torch.float64)
        return total / self.n_kept

    @cached_property
    def second_moment(self) -> Float[Tensor, "d_model d_model"]:
        """Mean of e e^T over kept tokens, less that of their mean: the covariance of the table in the stream."""
        width = self.rows.stored.shape[1]
        total = torch.zeros(width, width, dtype=torch.float64, device=self.rows.stored.device)
        for _, block in self.rows.blocks(self.dtype, self.keep, self.entries):
            total += row_gram(block.mT)
        total = total / self.n_kept - torch.outer(self.mean, self.mean)
        pull = None if self.rows.pull is None else self.rows.pull.double()
        return total if pull is None else pull @ total @ pull.mT

    def read(self, directions: Float[Tensor, "n d_model"], count: int = 10) -> Reading:
        """The `count` highest and lowest tokens along each direction, and how concentrated the scores are."""
        if directions.ndim != 2 or directions.shape[1] != self.d_model:
            raise ShapeError(f"directions need shape [n, {self.d_model}], found {tuple(directions.shape)}")
        if count < 1:
            raise ArgumentError(f"count = {count} asks for no token; it is at least 1")
        wanted = min(max(count, MASS_TOKENS), self.n_kept)
        pulled = self.rows.pulled_back(directions.to(self.mean.device, self.dtype))
        sums = _Scores(pulled, -(pulled.double() @ self.mean).to(self.dtype), wanted)
        # Directions are shared out among threads, each of which multiplies and sums by itself: they never wait.
        workers = torch.get_num_threads()
        with one_thread(), ThreadPoolExecutor(workers) as pool:
            for start, block in self.rows.blocks(self.dtype, self.keep, self.entries):
                sums.measure_sizes(block)
                list(pool.map(partial(sums.add, start, block), sums.parts))
        return self._reading(sums, min(count, self.n_kept))

    def _reading(self, sums: _Scores, count: int) -> Reading:
        squares, fourth, n = sums.squares, sums.fourth, self.n_kept
        # Rounding leaves a direction that the table does not see with scores of this share of a row's length.
        floor = (torch.finfo(self.dtype).eps * sums.sizes) ** 2 * n
        rms = torch.where(squares > floor, (squares / n).sqrt(), torch.nan)
        best = sums.best.double() / rms[:, None, None]
        # A token scores above 0 at one end alone: where a vocabulary is so small that both list it, it counts once.
        mass = best.clamp(min=0).flatten(1).topk(min(MASS_TOKENS, n)).values.square().sum(-1) / n
        places = sums.places if self.keep is None else self.keep[sums.places]
        ids = torch.where(best.isnan(), -1, places)[..., :count]
        signs = torch.tensor([1.0, -1.0], dtype=torch.float64, device=best.device)[:, None]
        return Reading(
            ids=ids.numpy(force=True),
            z=(best * signs)[..., :count].numpy(force=True),
            rms=rms.nan_to_num().numpy(force=True),
            largest_z=best[..., 0].amax(-1).numpy(force=True),
            kurtosis=(fourth / n / rms**4 - 3).numpy(force=True),
            top_mass=mass.numpy(force=True),
            tokens=self.tokens,
        )

    def null(self, draws: int = DRAWS, seed: int = 0) -> Reading:
        """What `draws` random directions of the stream, all equally likely, give through this table."""
        if (draws, seed) not in self._nulls:
            generator = torch.Generator().manual_seed(seed)
            random = torch.randn(draws, self.d_model, generator=generator, dtype=torch.float64)
            self._nulls[draws, seed] = self.read(random, 1)
        return self._nulls[draws, seed]

    def concentration(self, reading: Reading, draws: int = DRAWS, seed: int = 0) -> Arrays:
        """`largest_z`, `kurtosis` and `top_mass` [n] with `_null`, `_null_sd` [] and `_p` [n] under the null."""
        null, found = self.null(draws, seed), {}
        for name in STATISTICS:
            values, drawn = getattr(reading, name), getattr(null, name)
            found[name] = values
            found[f"{name}_null"] = np.asarray(np.nanmean(drawn))
            found[f"{name}_null_sd"] = np.asarray(np.nanstd(drawn))
            found[f"{name}_p"] = upper_p_values(values, drawn)
        return found


def read_directions(
    heads: Heads,
    directions: Float[Tensor, "n d_model"],
    side: str,
    *,
    count: int = 10,
    filtered: bool = True,
    tokenizer: Any = None,
) -> Reading:
    """Directions of the residual stream in words: the tokens at both ends of each, and how concentrated they are.

    Parameters
    ----------
    heads
        The model, in the fold state that the directions are in.
    directions
        [n, d_model], any length: directions that a matrix reads (columns of a W_V, left singular vectors) or writes.
    side
        "read" scores tokens by W_E, "write" by W_U (W_E where there is no unembedding).
    count
        Tokens at each end.
    filtered
        Leave out special, unused and byte tokens, which are counted in `reading.tokens.counts`.
    tokenizer
        A `transformers` tokenizer, in place of the files beside the weights.

    Returns
    -------
    Reading
        `ids`, `texts`, `z` [n, end, place]; `largest_z`, `kurtosis`, `top_mass` [n]. For what random directions give,
        and p-values, open a `TokenTable` and ask for its `concentration`.

    >>> import headspan, torch
    >>> heads = headspan.open("demo").heads()
    >>> reading = read_directions(heads, heads.W_U[:, 5][None], "write", count=3)
    >>> reading.texts.shape, bool(reading.ids[0, 0, 0] == 5)
    ((1, 2, 3), True)
    """
    return TokenTable(heads, side, filtered=filtered, tokenizer=tokenizer).read(directions, count)


class _Scores:
    """Sums over tokens of every direction's scores, and the `wanted` largest and smallest (with their sign turned)."""

    def __init__(self, directions: Tensor, shift: Tensor, wanted: int) -> None:
        n, device = len(directions), directions.device
        self.directions, self.shift, self.wanted = directions, shift, wanted
        self.squares = torch.zeros(n, dtype=torch.float64, device=device)
        self.fourth = torch.zeros_like(self.squares)
        self.sizes = torch.zeros_like(self.squares)
        self.best = torch.full((n, 2, wanted), -torch.inf, dtype=directions.dtype, device=device)
        self.places = torch.zeros((n, 2, wanted), dtype=torch.long, device=device)

    @property
    def parts(self) -> list[slice]:
        """The directions, some at a time."""
        return [slice(first, first + AT_ONCE) for first in range(0, len(self.directions), AT_ONCE)]

    def measure_sizes(self, block: Tensor) -> None:
        """|direction| times the longest row so far."""
        longest = torch.linalg.vector_norm(block, dim=-1).max().double()
        self.sizes = torch.maximum(self.sizes, longest * torch.linalg.vector_norm(self.directions, dim=-1).double())

    def add(self, start: int, block: Tensor, part: slice) -> None:
        """The next tokens, of which the first is at place `start`, along some directions."""
        for first in range(0, len(block), TOKENS_AT_ONCE):
            rows = block[first : first + TOKENS_AT_ONCE]
            scores = torch.addmm(self.shift[part, None], self.directions[part], rows.mT)
            squares = scores.square()
            self.squares[part] += squares.sum(-1).double()
            self.fourth[part] += torch.linalg.vector_norm(squares, dim=-1).double().square()
            for end in range(2):
                self._keep_best(part, end, start + first, scores if end == 0 else scores.neg_())

    def _keep_best(self, part: slice, end: int, start: int, scores: Tensor) -> None:
        values, places = _largest(scores, min(self.wanted, scores.shape[1]))
        values = torch.cat([self.best[part, end], values], dim=1)
        places = torch.cat([self.places[part, end], places + start], dim=1)
        self.best[part, end], chosen = values.topk(self.wanted)
        self.places[part, end] = places.gather(1, chosen)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of every row with their places: they are in the k sub-blocks whose maxima are largest."""
    n, length = scores.shape
    if length <= 4 * k * SUB_BLOCK or length % SUB_BLOCK:
        values, places = scores.topk(k)
        return values, places
    parts = scores.view(n, -1, SUB_BLOCK)
    chosen = parts.amax(-1).topk(k, sorted=False).indices
    inside = parts.gather(1, chosen[..., None].expand(-1, -1, SUB_BLOCK)).flatten(1)
    values, places = inside.topk(k)
    block = chosen.gather(1, places // SUB_BLOCK)
    return values, block * SUB_BLOCK + places % SUB_BLOCK
