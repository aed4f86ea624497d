"""How much attention stays inside a shot, beside shots cut elsewhere; and how much of a clue's goes to its own word.

Attention falls with distance, so that any contiguous piece of text keeps more to itself than a random set of positions
would: shuffled positions would make every model look as if it saw the shots. The null keeps contiguity and lengths: the
same boundaries, all moved by s = 1, 2, ... tokens to the left while the first shot lasts, and to the right while the
last does. Only shots between two boundaries count, so that every piece has the length of a shot: not the first, nor the
one that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headspan.lenses.attention.shots import OUTSIDE, Labels, ShotTokens
from headspan.statistics import empirical_p_value

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WithinShots:
    """Within-shot attention of every head of a layer, and what moved boundaries give; [head] each."""

    within: Array
    across: Array
    chance: Array
    """Mean over moved boundaries."""
    sd: Array
    p_value: Array
    """Share of boundaries, the true ones included, that keep at least as much inside: in [1 / (moves + 1), 1]."""


def within_shots(pattern: Array, tokens: ShotTokens) -> WithinShots:
    """Attention of every shot between two others to its own tokens and to the rest, beside moved boundaries.

    Parameters
    ----------
    pattern
        [head, query, key], rows summing to 1.
    tokens
        From `shot_tokens`.

    Returns
    -------
    WithinShots
        Masses in [0, 1]; NaN where fewer than two shots come before the one asked for.
    """
    within, across = _masses(pattern, tokens.shot)
    starts = np.array(tokens.starts)
    inside = np.flatnonzero(tokens.shot != OUTSIDE)
    moves = [move for move in range(starts[-1] - len(tokens.shot) + 1, starts[1] - starts[0]) if move]
    moved = [_masses(pattern, _moved(tokens.shot, starts, inside, move))[0] for move in moves]
    null = np.stack(moved or [np.full_like(within, np.nan)])
    p = empirical_p_value(within, null, slack=1e-12)
    return WithinShots(within, across, null.mean(axis=0), null.std(axis=0), np.where(np.isnan(within), np.nan, p))


def _moved(shot: Labels, starts: Labels, inside: Labels, move: int) -> Labels:
    """Shots with every boundary `move` tokens further left, or right; what is before the first shot stays outside."""
    moved = np.full(len(shot), OUTSIDE)
    moved[inside] = np.searchsorted(starts[1:] - move, inside, side="right")
    return moved


def _masses(pattern: Array, shot: Labels) -> tuple[Array, Array]:
    """Mean attention, over the tokens of all shots but the first and the last, to their own shot and to the others."""
    counted = (shot > 0) & (shot < shot.max())
    if not counted.any():
        return np.full(len(pattern), np.nan), np.full(len(pattern), np.nan)
    rows, own = pattern[:, counted], shot[counted][:, None] == shot[None, :]
    other = ~own & (shot != OUTSIDE)[None, :]
    return (rows * own).sum(-1).mean(-1), (rows * other).sum(-1).mean(-1)


def own_word_masses(pattern: Array, tokens: ShotTokens) -> dict[str, Array]:
    """Attention from clues to their own word, and to the words of other shots in reach, per word.

    Returns
    -------
    `own_word` and `other_word` [head], in [0, 1], means over clue tokens; `own_word_chance`, for uniform attention, the
    share of the positions up to a clue token that its word makes up. `other_word` counts clues that have other words.
    """
    own, other, chance = [], [], []
    for query in np.flatnonzero(tokens.clue != OUTSIDE):
        number, row = tokens.clue[query], pattern[:, query]
        mine = tokens.word == number
        own.append(row[:, mine].sum(-1))
        chance.append(mine[: query + 1].sum() / (query + 1))
        if number > 0:
            earlier = (tokens.word != OUTSIDE) & (tokens.word < number)
            other.append(row[:, earlier].sum(-1) / number)
    nothing = np.full(len(pattern), np.nan)
    return {
        "own_word": np.mean(own, axis=0) if own else nothing,
        "other_word": np.mean(other, axis=0) if other else nothing,
        "own_word_chance": np.full(len(pattern), np.mean(chance) if chance else np.nan),
    }
