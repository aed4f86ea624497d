"""Clues that a model writes for words, and how likely it finds the clues that people wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from headspan.errors import ShapeError, UnsupportedModel
from headspan.lenses.attention.pairs import Pair, Split
from headspan.lenses.attention.shots import shot_text
from headspan.runtime import RunnableModel, continuation, encoded


def written_clues(
    model: RunnableModel, split: Split, template: str | None, length: int, temperature: float, seed: int
) -> pd.DataFrame:
    """One row per held-out word: what the model writes after all shots, up to a line break, and the given clue."""
    if model.tokenizer is None:
        raise ShapeError(f"{model.tokenizer_problem}; few-shot prompts need one")
    rows = []
    for number, pair in enumerate(split.held_out):
        text = shot_text(model, split.shots, pair.word, template)
        prompt = encoded(model, text.text, special=not text.chat)
        ids = continuation(model, prompt, length, temperature, seed + number)
        written = str(model.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
        rows.append({"word": pair.word, "written": (written.splitlines() or [""])[0].strip(), "given": pair.clue})
    return pd.DataFrame(rows)


def clue_likelihoods(model: RunnableModel, split: Split, template: str | None) -> pd.DataFrame:
    """Mean log-probability per token of the held-out clues, after 0, 1, ... shots.

    Returns
    -------
    Table with `shots`, `log_likelihood` in nats (<= 0; -log(vocabulary) for a uniform guess), its `standard_error` over
    words, and `words`, how many clues were scored.
    """
    scored = [pair for pair in split.held_out if pair.clue]
    rows = []
    for shots in range(len(split.shots) + 1):
        values = [_clue_likelihood(model, split.shots[:shots], pair, template) for pair in scored]
        error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
        mean = float(np.mean(values)) if values else float("nan")
        rows.append({"shots": shots, "log_likelihood": mean, "standard_error": error, "words": len(values)})
    return pd.DataFrame(rows)


@torch.no_grad()
def _clue_likelihood(model: RunnableModel, shots: Sequence[Pair], pair: Pair, template: str | None) -> float:
    """Mean log p of the tokens that spell the clue, given the shots and its word."""
    if not model.writes:
        raise UnsupportedModel("the likelihood of clues takes a causal model with a language-model head")
    text = shot_text(model, shots, pair.word, template)
    glue = "" if text.text[-1:].isspace() or text.chat else " "
    prompt = encoded(model, text.text + glue + pair.clue, special=not text.chat)
    if prompt.offsets is None:
        raise ShapeError("few-shot maps need a fast tokenizer, which says where each token stands; this one is slow")
    logits = model.module(input_ids=prompt.tokens.to(model.device)).logits[0].double().cpu()
    spelling = [place for place, (_, end) in enumerate(prompt.offsets) if place > 0 and end > len(text.text)]
    logs = torch.log_softmax(logits[[place - 1 for place in spelling]], dim=-1)
    return float(logs[torch.arange(len(spelling)), [prompt.ids[place] for place in spelling]].mean())
