"""What every head attends to on a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

LENS = Lens(
    name="attention",
    title="What heads attend to",
    summary="attention maps of the running model on a text, and head statistics compared with uniform attention",
    package=__name__,
    chapter="Behavior",
    order=60,
    needs=ATTENTION,
    runs=True,
)
CHOICES = {"level": ("token", "word"), "pooling": ("mean", "sum"), "special": ("keep", "drop")}


def attention(
    model: Any,
    prompt: str | Sequence[int] | Sequence[Any] | None = None,
    *,
    few_shot: str | Path | Sequence[str | Path] | None = None,
    shots: int = 3,
    targets: str | Sequence[str] = (),
    template: str | None = None,
    preamble: str = "",
    every_count: bool = False,
    length: int = 24,
    temperature: float = 0.0,
    level: str = "token",
    pooling: str = "mean",
    special: str = "keep",
    words: str | Sequence[str] | None = None,
    truncate: bool = False,
    permutations: int = 200,
    seed: int = 0,
    **opening: Unpack[Budgeted],
) -> Result:
    """Attention maps of a running model on a prompt, and statistics of every head.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; it needs `transformers` to run.
    prompt
        Text, or token ids; by default the beginning of a story, or random tokens where the tokenizer cannot spell it.
        A list of several is a batch: maps are those of the first, the node `batch` has statistics of all.
    few_shot
        In place of a prompt: pairs of word and clue, shown as shots. The path of a CSV file with the header
        `word;clue`, its text, or "bundled" for a list of headspan's own; or a list of several, as a batch.
    shots, targets
        Few-shot: how many pairs to show, and which words to ask for, by default all that are not shown.
    template
        Few-shot: text with `{word}` and `{clue}`; by default the model's chat template, or a plain one.
    preamble
        Few-shot: an instruction before the first shot; it belongs to no shot.
    every_count
        Few-shot: let the model write clues after 0, 1, ... shots, not only after all.
    length, temperature
        Few-shot: tokens of a written clue, and how it is sampled (0 writes the likeliest).
    level
        Maps between "token"s or "word"s.
    pooling
        Words: "mean" over queries (rows sum to 1) or "sum" (rows sum to a word's tokens); keys are always summed.
    special
        "keep" or "drop" special tokens in the maps; `left_out` holds the attention to what is not shown.
    words
        Show only these in the maps, every occurrence; all by default.
    truncate
        Cut a prompt that exceeds the context.
    permutations, seed
        Of the test of angles (0 leaves it out), of the choice of shots and of what is sampled.
    **opening
        `stack`, `dtype`, `device`, `config`, `progress`, `time_limit`, `memory`.

    Returns
    -------
    Result
        `pattern [head, query, key]`, `mean_map` and `write_map [layer, query, key]`; `relative_entropy` and other
        statistics `[head]`, each with its value under uniform attention as `_null`; `mean_cosine`, `effective_rank` and
        others `[layer]`; with `few_shot` also `within [head]`, `shot_map`, `written_clue [target]` and others. Of a
        batch also the node `batch`: the statistics as `[prompt, head]` and `[prompt, layer]`, and `_mean` and `_sd`.

    >>> import headspan
    >>> result = headspan.attention("demo", "abcabcabc", permutations=0)
    >>> round(float(result["previous_mass"].sel(head="L0H3")), 2)
    0.68
    """
    options = arguments(locals())
    from headspan.lenses.run import run

    check_choices(level=level, pooling=pooling, special=special, permutations=permutations)
    if few_shot is not None:
        if prompt is not None:
            raise ArgumentError("prompt and few_shot were both given; give one of them")
        from headspan.lenses.shots import pair_lists

        options["few_shot"] = pair_lists(few_shot)
    options |= {"targets": listed(targets), "words": None if words is None else listed(words)}
    return run(LENS, [model], options, opening)


def check_choices(*, permutations: int, **given: str) -> None:
    """Refuse a level, pooling or treatment of special tokens that is not known, and a negative count."""
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise ArgumentError(f"{name} is {' or '.join(CHOICES[name])}, not {value!r}")
    if permutations < 0:
        raise ArgumentError(f"permutations is at least 0 (no test), not {permutations}")


def listed(words: str | Sequence[str]) -> list[str]:
    """Words from a sequence, or from text that separates them by commas."""
    return [word.strip() for word in words.split(",") if word.strip()] if isinstance(words, str) else list(words)
