"""What a model is run on when nothing is given: the beginning of a story, or random tokens."""

from __future__ import annotations

import torch

from headspan.errors import HeadspanError
from headspan.runtime import Prompt, RunnableModel, encoded

STORY = (
    "Once upon a time, there was a little girl named Lily. Lily loved to play in the park with her dog. "
    "One day, her dog ran away, and Lily was very sad."
)
RANDOM_LENGTH = 32
FEWEST = 16


def default_prompt(model: RunnableModel, seed: int = 0) -> Prompt:
    """A short story's beginning where the tokenizer can spell it, else random tokens twice over."""
    if model.tokenizer is not None:
        try:
            prompt = encoded(model, STORY, truncate=True)
        except HeadspanError:
            prompt = None
        # A tokenizer that drops what it does not know can leave too little, or not what was written.
        if prompt is not None and len(prompt) >= FEWEST and _spells(model, prompt):
            return prompt
    length = RANDOM_LENGTH if model.max_context is None else max(1, min(RANDOM_LENGTH, model.max_context // 2))
    generator = torch.Generator().manual_seed(seed)
    special = set() if model.tokenizer is None else set(model.tokenizer.all_special_ids)
    plain = torch.tensor([each for each in range(model.n_tokens) if each not in special])
    half = plain[torch.randint(len(plain), (length,), generator=generator)].tolist()
    return encoded(model, half * 2, truncate=True)


def _spells(model: RunnableModel, prompt: Prompt) -> bool:
    if prompt.offsets is None:
        return True
    return sum(end - start for start, end in prompt.offsets) >= 0.7 * len("".join(STORY.split()))
