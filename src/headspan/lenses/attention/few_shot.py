"""A few-shot prompt: attention within and across shots, clues written and clues expected.

1. Pool attention to shots; measure what stays within one, beside moved boundaries, and what goes from clues to their
   word.
2. Let the model write clues, and score those of the file after 0..k shots.

Attention falls with distance, so that any contiguous piece of text keeps more to itself than a random set of positions
would: shuffled positions would make every model look as if it saw the shots. The null keeps contiguity and lengths: the
same boundaries, all moved by s = 1, 2, ... tokens to the left while the first shot lasts, and to the right while the
last does. Only shots between two boundaries count, so that every piece has the length of a shot: not the first, nor the
one that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from headspan.errors import UnsupportedModel
from headspan.lenses.attention.maps import write_average, write_shares
from headspan.lenses.shots import OUTSIDE, Labels, Pair, ShotTokens, Split, shot_text
from headspan.lenses.words import Groups, pooled
from headspan.runtime import Forward, RunnableModel, continuation, encoded
from headspan.statistics import empirical_p_value

Array = npt.NDArray[np.float64]


def shot_variables(run: Forward, tokens: ShotTokens) -> dict[str, Any]:
    """`shot_map`, `shot_write_map [layer, query_shot, key_shot]`; `within`, `own_word`, ... `[layer, head]`."""
    n_shots, shares = int(tokens.shot.max()) + 1, write_shares(run)
    groups = Groups(tuple(f"shot {number + 1}" for number in range(n_shots)), tuple(int(each) for each in tokens.shot))
    plain, weighted, heads = [], [], []
    for place, attention in enumerate(run.runs):
        pattern = attention.pattern[0].cpu().double()
        plain.append(pooled(pattern.mean(dim=0), groups).numpy())
        weighted.append(pooled(write_average(pattern, shares[place]), groups).numpy())
        found = within_shots(pattern.numpy(), tokens)
        masses = {"within": found.within, "across": found.across, "within_null": found.null}
        masses |= {"within_null_sd": found.null_sd, "within_z": found.z, "within_p": found.p}
        heads.append(masses | own_word_masses(pattern.numpy(), tokens))
    square = ("layer", "query_shot", "key_shot")
    variables: dict[str, Any] = {"shot_map": (square, np.stack(plain)), "shot_write_map": (square, np.stack(weighted))}
    return variables | {name: (("layer", "head"), np.stack([layer[name] for layer in heads])) for name in heads[0]}


def clue_variables(
    model: RunnableModel,
    split: Split,
    template: str | None,
    length: int,
    temperature: float,
    seed: int,
    every_count: bool = False,
) -> dict[str, Any]:
    """`target_word`, `written_clue`, `given_clue [target]` and `log_likelihood [shots]`, with its standard error.

    With `every_count` also `clue_after [target, shots]`.
    """
    clues = written_clues(model, split, template, length, temperature, seed)
    more = {}
    if every_count:
        counts = [replace(split, shots=split.shots[:count]) for count in range(len(split.shots))]
        rows = [written_clues(model, part, template, length, temperature, seed)["written_clue"] for part in counts]
        table = np.stack([*(row.to_numpy(dtype=object) for row in rows), clues["written_clue"].to_numpy(dtype=object)])
        more["clue_after"] = (("target", "shots"), table.T)
    likelihood = clue_likelihoods(model, split, template)
    found: dict[str, Any] = {name: ("target", clues[name].to_numpy(dtype=object)) for name in clues}
    return found | more | {name: ("shots", likelihood[name].to_numpy()) for name in likelihood}


@dataclass(frozen=True, eq=False)
class WithinShots:
    """Within-shot attention of every head of a layer, and what moved boundaries give; [head] each."""

    within: Array
    across: Array
    null: Array
    """Mean over moved boundaries."""
    null_sd: Array
    p: Array
    """Share of boundaries, the true ones included, that keep at least as much inside: in [1 / (moves + 1), 1]."""

    @property
    def z(self) -> Array:
        """Distance from the null's mean in its standard deviations; NaN where the null does not vary."""
        return (self.within - self.null) / np.where(self.null_sd > 0, self.null_sd, np.nan)


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
    `own_word` and `other_word` [head], in [0, 1], means over clue tokens; `own_word_null`, for uniform attention, the
    share of the positions up to a clue token that its word makes up. `other_word` counts clues that have other words.
    """
    own, other, uniform = [], [], []
    for query in np.flatnonzero(tokens.clue != OUTSIDE):
        number, row = tokens.clue[query], pattern[:, query]
        mine = tokens.word == number
        own.append(row[:, mine].sum(-1))
        uniform.append(mine[: query + 1].sum() / (query + 1))
        if number > 0:
            earlier = (tokens.word != OUTSIDE) & (tokens.word < number)
            other.append(row[:, earlier].sum(-1) / number)
    nothing = np.full(len(pattern), np.nan)
    return {
        "own_word": np.mean(own, axis=0) if own else nothing,
        "other_word": np.mean(other, axis=0) if other else nothing,
        "own_word_null": np.full(len(pattern), np.mean(uniform) if uniform else np.nan),
    }


def written_clues(
    model: RunnableModel, split: Split, template: str | None, length: int, temperature: float, seed: int
) -> pd.DataFrame:
    """One row per held-out word: what the model writes after all shots, up to a line break, and the given clue."""
    if model.tokenizer is None:
        raise UnsupportedModel(f"{model.tokenizer_problem}; few-shot prompts need one")
    rows = []
    for number, pair in enumerate(split.held_out):
        text = shot_text(model, split.shots, pair.word, template, split.preamble)
        prompt = encoded(model, text.text, special=not text.chat)
        ids = continuation(model, prompt, length, temperature, seed + number)
        written = str(model.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
        line = (written.splitlines() or [""])[0].strip()
        rows.append({"target_word": pair.word, "written_clue": line, "given_clue": pair.clue})
    return pd.DataFrame(rows)


def clue_likelihoods(model: RunnableModel, split: Split, template: str | None) -> pd.DataFrame:
    """Mean log-probability per token of the held-out clues, after 0, 1, ... shots.

    Returns
    -------
    Table with `shots`, `log_likelihood` in nats (<= 0; -log(vocabulary) for a uniform guess), its standard error over
    words, `log_likelihood_se`, and how many clues were scored, `log_likelihood_words`.
    """
    scored = [pair for pair in split.held_out if pair.clue]
    rows = []
    for shots in range(len(split.shots) + 1):
        shown = replace(split, shots=split.shots[:shots])
        values = [_clue_likelihood(model, shown, pair, template) for pair in scored]
        error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
        mean = float(np.mean(values)) if values else float("nan")
        rows.append(
            {"shots": shots, "log_likelihood": mean, "log_likelihood_se": error, "log_likelihood_words": len(values)}
        )
    return pd.DataFrame(rows)


@torch.no_grad()
def _clue_likelihood(model: RunnableModel, shown: Split, pair: Pair, template: str | None) -> float:
    """Mean log p of the tokens that spell the clue, given the shots and its word."""
    if not model.writes:
        raise UnsupportedModel("the likelihood of clues takes a causal model with a language-model head")
    text = shot_text(model, shown.shots, pair.word, template, shown.preamble)
    glue = "" if text.text[-1:].isspace() or text.chat else " "
    prompt = encoded(model, text.text + glue + pair.clue, special=not text.chat)
    if prompt.offsets is None:
        raise UnsupportedModel(
            "few-shot maps need a fast tokenizer, which says where each token stands; this one is slow"
        )
    logits = model.module(input_ids=prompt.tokens.to(model.device)).logits[0].double().cpu()
    spelling = [place for place, (_, end) in enumerate(prompt.offsets) if place > 0 and end > len(text.text)]
    logs = torch.log_softmax(logits[[place - 1 for place in spelling]], dim=-1)
    return float(logs[torch.arange(len(spelling)), [prompt.ids[place] for place in spelling]].mean())
