"""The record of the demo model: `scores.json` for programs, `README.md` for people.

`score_record` measures a model and names its heads; `model_card` puts the same record into words.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import tokenizers
import torch
import transformers
from transformers import LlamaForCausalLM

from demo_model.task import (
    DISTRIBUTIONS,
    EVALUATION_SEEDS,
    SEQUENCES_PER_SEED,
    Score,
    copying_accuracy,
    head_scores,
)
from headspan.dims import HeadLabel

Record = dict[str, Any]

CLEAR_SCORE = 0.5

CARD = """# headspan demo model

A Llama of two layers with eight heads each (d_model 128, {parameters:,} parameters, float16) that has learned
one thing: to notice that a sequence repeats itself, and to copy. It exists so that headspan can be tried
offline on a model whose previous-token and induction heads have been measured. It knows no language.

## Training

`python -m demo_model.train --seed {seed} --steps {steps}` made every file here, from random numbers alone.
Each training sequence is 64 tokens long: a random segment of 8 to 32 tokens, repeated until it is full. The
tokens of a segment come from a distribution drawn anew for every sequence, so what is learned about tokens in
one sequence does not help in the next. The loss is the usual next-token loss over all positions. Settings:
batches of {batch_size}, AdamW with learning rate {learning_rate} and weight decay {weight_decay}, a cosine
schedule to zero, gradients clipped to norm {gradient_norm}.

The 64 symbols are a-z, A-Z, 0-9, `<bos>` and `<pad>`. Training used neither `<bos>` nor `<pad>`, and the
tokenizer adds neither: a sequence simply begins. A character outside the 62 letters and digits is dropped.

Other settings were tried first, all with seed 0, once each (the first two with eager attention in training):

- weight decay 0.01, 1500 steps: accuracies 0.93 to 0.98, a previous-token head of 0.75, six induction heads;
- weight decay 0.1, 2500 steps: accuracies 0.93 to 0.97, but the previous token spread over five heads, none
  above 0.35;
- weight decay 0.01, periods of 8 to 24, loss on repeated tokens only, 2000 steps: under half of the tokens
  copied, no previous-token or induction head.

Other seeds were not tried.

## Scores

Measured on the stored float16 weights (float32 arithmetic, eager attention), over {evaluation_seeds} seeds of
{sequences_per_seed} sequences each; ± is the standard error over seeds.

| tokens drawn from | repeated tokens guessed right | chance level |
|---|---|---|
{accuracy_rows}

Training shows neither the uniform nor the Zipf distribution. Where a segment holds the same token several
times, one token of context does not settle what comes next; Zipf segments do this most.

The attention scores below count the positions in the repeats, with uniform tokens. Previous token: mean
attention to the position before. Induction: mean attention to the position right after the current token's
place one period ago; where a segment has come around more than once, attention to its earlier rounds does not
count. The chance level is that of a head that looks at every position up to its own alike. The scores describe
attention; no head was ablated.

| head | previous token | induction | chance level |
|---|---|---|---|
{head_rows}

Previous-token heads (score above {clear}): {previous_token_heads}.
Induction heads (score above {clear}): {induction_heads}.
"""


def score_record(model: LlamaForCausalLM, recipe: Record) -> Record:
    """Measure a demo model and say how it was made.

    Parameters
    ----------
    model : LlamaForCausalLM
        The model as stored, opened with `open_demo`.
    recipe : dict
        How it was trained: seed, steps, batch_size, learning_rate, weight_decay, gradient_norm.

    Returns
    -------
    dict
        What `scores.json` holds. Every score is `{value, chance, standard_error}`, rounded to six decimals.
    """
    scores = head_scores(model)
    previous_token, induction = _by_label(scores.previous_token), _by_label(scores.induction)
    return {
        "schema": "headspan.demo/1",
        "recipe": recipe,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "evaluation": {
            "seeds": list(EVALUATION_SEEDS),
            "sequences_per_seed": SEQUENCES_PER_SEED,
            "head_scores_on": "uniform",
        },
        "accuracy": {kind: _round(copying_accuracy(model, kind)) for kind in DISTRIBUTIONS},
        "previous_token_heads": _clear_heads(previous_token),
        "induction_heads": _clear_heads(induction),
        "previous_token_score": previous_token,
        "induction_score": induction,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }


def model_card(record: Record) -> str:
    """The model card, in Markdown, for what `score_record` found."""
    accuracy_rows = [
        f"| {kind} | {_cell(score)} | {score['chance']:.3f} |" for kind, score in record["accuracy"].items()
    ]
    head_rows = [
        f"| {label} | {_cell(score)} | {_cell(record['induction_score'][label])} | {score['chance']:.3f} |"
        for label, score in record["previous_token_score"].items()
    ]
    return CARD.format(
        **record["recipe"],
        parameters=record["parameters"],
        evaluation_seeds=len(record["evaluation"]["seeds"]),
        sequences_per_seed=record["evaluation"]["sequences_per_seed"],
        accuracy_rows="\n".join(accuracy_rows),
        head_rows="\n".join(head_rows),
        clear=CLEAR_SCORE,
        previous_token_heads=", ".join(record["previous_token_heads"]) or "none",
        induction_heads=", ".join(record["induction_heads"]) or "none",
    )


def _by_label(table: list[list[Score]]) -> dict[str, Record]:
    return {
        str(HeadLabel(layer, head)): _round(score) for layer, row in enumerate(table) for head, score in enumerate(row)
    }


def _clear_heads(scores: dict[str, Record]) -> list[str]:
    """The labels of the heads whose score is clear, the strongest first."""
    clear = [label for label, score in scores.items() if score["value"] > CLEAR_SCORE]
    return sorted(clear, key=lambda label: -float(scores[label]["value"]))


def _round(score: Score) -> Record:
    return {name: round(number, 6) for name, number in asdict(score).items()}


def _cell(score: Record) -> str:
    return f"{score['value']:.3f} ± {score['standard_error']:.3f}"
