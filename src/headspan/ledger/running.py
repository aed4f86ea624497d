"""What a model shows at work: attention on a text and on few-shot prompts, the next token, and scaled logits.

A model is run in double precision where it is small, and once for all claims that ask the same of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headspan.ledger.models import measured_once
from headspan.runtime import encoded, forward, open_runnable
from headspan.runtime.interventions import HeadSpectra, ScaledLogits, intervened

if TYPE_CHECKING:
    from headspan.checkpoint import Checkpoint
    from headspan.result import Result
    from headspan.runtime import RunnableModel

STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big red ball in the grass. She wanted to play with it, but it was too high in the tree. Her mom said, Do not "
    "worry, Lily. I will help you. Lily was very happy and they played all day."
)
PAIRS = """word;clue
dog;a friend that likes to bark
sun;it is big and hot in the sky
bed;a soft place to sleep
cake;a sweet thing to eat
bird;it can fly and sing
fish;it can swim in the water
"""
WIDE = 2048
"""Width of the stream from which on a model is run in single precision."""


def running(checkpoint: Checkpoint) -> RunnableModel:
    """The model, ready to run."""
    model: RunnableModel = measured_once(
        "running", checkpoint, lambda: open_runnable(checkpoint, dtype=_dtype(checkpoint))
    )
    return model


def _dtype(checkpoint: Checkpoint) -> str:
    return "float64" if checkpoint.heads().d_model < WIDE else "float32"


def _attention(checkpoint: Checkpoint, **options: Any) -> Result:
    from headspan.lenses.attention import attention

    return attention(checkpoint, dtype=_dtype(checkpoint), **options)


def cosine_correlations(checkpoint: Checkpoint) -> np.ndarray:
    """Rank correlation of attention with the cosine of embeddings, of every head on a story; in [-1, 1]."""
    found: Result = measured_once("story", checkpoint, lambda: _attention(checkpoint, prompt=STORY, permutations=9))
    values: np.ndarray = found["embedding_correlation"].dropna("head").values
    return values


def few_shot_maps(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """On four shots of word and clue, by layer: what the claims about attention maps need.

    `low`: share of scores at most 0.1 among queries after the twentieth, the first key left out; `top`: the largest of
    them; `diagonal`: attention to itself; `spread`: relative entropy of the mean map; `within`: attention that stays in
    a shot, less that of moved boundaries.
    """
    found: Result = measured_once(
        "shots",
        checkpoint,
        lambda: _attention(checkpoint, few_shot=PAIRS, shots=4, targets="bird", length=2, permutations=0),
    )
    maps = found["mean_map"].values
    n = maps.shape[-1]
    seen = np.tril(np.ones((n, n), dtype=bool))
    seen[:, 0] = seen[:20] = False
    excess = (found["within"] - found["within_null"]).groupby("head_layer").mean().values
    return {
        "low": (maps[:, seen] <= 0.1).mean(1),
        "top": maps[:, seen].max(1),
        "diagonal": np.diagonal(maps, axis1=1, axis2=2)[:, 1:].mean(1),
        "spread": found["mean_map_relative_entropy"].values,
        "within": excess,
    }


@torch.no_grad()
def next_token_laws(checkpoint: Checkpoint) -> tuple[Tensor, Tensor]:
    """Embeddings [token, d], and the law of the next token [context, token] after each different token of a story.

    A context is that token alone, behind what the model puts in front of a text: a bigram model, asked of the model.
    """
    model = running(checkpoint)
    prompt = encoded(model, STORY)
    front = prompt.ids[: len(prompt) - len(encoded(model, STORY, special=False))]
    rows = torch.tensor([[*front, token] for token in dict.fromkeys(prompt.ids[len(front) :])])
    logits = forward(model, rows, scores=False).logits
    if logits is None:
        raise ValueError("the model has no language-model head")
    V: Tensor = model.module.get_input_embeddings().get_parameter("weight").double()
    return V, logits[:, -1].double().softmax(-1)


def scaled_first_layer(checkpoint: Checkpoint, alpha: float, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of the first layer on random tokens, before and under alpha; singular values of its W_Q and W_K likewise.

    The part that a causal mask leaves. The first layer reads the same under any change of logits.
    """
    model = running(checkpoint)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, model.n_tokens, (2, 12), generator=generator)
    before, values = _first_scores(model, tokens), _spectra(model)
    with intervened(model, ScaledLogits(alpha)):
        after, changed = _first_scores(model, tokens), _spectra(model)
    return before, after, values, changed


def _first_scores(model: RunnableModel, tokens: Tensor) -> Tensor:
    scores = forward(model, tokens).runs[0].scores
    if scores is None:
        raise ValueError("the run kept no scores")
    seen = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    return scores[..., : tokens.shape[1]][..., seen].double()


def _spectra(model: RunnableModel) -> Tensor:
    factors = HeadSpectra.of(model, ("Q", "K")).factors
    return torch.cat([factors[role, model.layers[0]].S for role in ("Q", "K")])


@torch.no_grad()
def written_likelihoods(checkpoint: Checkpoint, length: int = 40) -> dict[str, float]:
    """By setting ("unmodified", "alpha 0.5", "alpha 2"): log-likelihood per token, under the unmodified model, of what
    it writes after the beginning of a story; minus the log of the vocabulary for a uniform guess.
    """
    from headspan.lenses.intervene import intervene

    start = STORY[: STORY.index("One day")]
    texts = intervene(checkpoint, start, scale_qk=[0.5, 2.0], length=length, dtype=_dtype(checkpoint))["continuation"]
    model = running(checkpoint)
    found = {}
    for setting in texts["setting"].values:
        prompt = encoded(model, start + str(texts.sel(setting=setting).values))
        losses = forward(model, prompt.tokens, scores=False).token_losses()[0]
        found[str(setting)] = -float(losses[len(encoded(model, start)) - 1 :].mean())
    return found
