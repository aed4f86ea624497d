"""What a model does when its weights are changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from headspan.dims import ATTENTION
from headspan.errors import ArgumentError
from headspan.result import Lens, arguments

if TYPE_CHECKING:
    from headspan.lenses.intervene.settings import Setting
    from headspan.lenses.run import Budgeted
    from headspan.result import Result

FEW_SHOT = ("few_shot", "shots", "target", "template", "preamble")
RUN = ("prompt", "settings", "length", "maps", "truncate", "seed", *FEW_SHOT)
"""Options that say what is run, not what is changed."""
LENS = Lens(
    name="intervene",
    title="What happens when weights change",
    summary="attention, perplexity and continuation with the spectra of queries and keys scaled and with random "
    "weights, compared with the unmodified model",
    package=__name__,
    chapter="Behavior",
    order=63,
    needs=ATTENTION,
    runs=True,
)


def intervene(
    model: Any,
    prompt: str | Sequence[int] | None = None,
    *,
    scale_qk: float | Sequence[float] | None = None,
    alphas: str | Sequence[float] | None = None,
    rank_qk: int | Sequence[int] | None = None,
    flatten_qk: bool = False,
    rotate_qk: bool = False,
    randomize: bool = False,
    randomize_attention: bool = False,
    ablate_head: str | Sequence[str] | None = None,
    mean: bool = False,
    ablate_subspace: str | Sequence[str] | None = None,
    channel: str | Sequence[str] | None = None,
    swap: str | Sequence[str] | None = None,
    heads: str | Sequence[str] | None = None,
    together: bool = False,
    settings: Sequence[Setting] | None = None,
    length: int = 40,
    maps: bool = False,
    few_shot: str | Path | None = None,
    shots: int = 3,
    target: str | None = None,
    template: str | None = None,
    preamble: str = "",
    truncate: bool = False,
    seed: int = 0,
    **opening: Unpack[Budgeted],
) -> Result:
    """Attention, perplexity and continuation under changes of the weights, the unmodified model first.

    Without any change named: alphas from 1/4 to 4, random attention, random weights; with `maps` random weights and
    alphas 2 and 1/2. The model is as before afterwards,
    bit for bit.

    Parameters
    ----------
    model
        Anything `headspan.open` takes, or what it returned; it needs `transformers` to run.
    prompt
        Text, or token ids; by default the beginning of a story, or random tokens where the tokenizer cannot spell it.
    scale_qk, alphas
        Singular values of W_Q and W_K times this, one or several; `alphas` as a grid `low:high:count`, even in the log.
    rank_qk, flatten_qk, rotate_qk
        W_Q and W_K truncated to a rank; all singular values of a head alike; random singular vectors, same values.
    randomize, randomize_attention
        All weights, or those of the attention, as before training.
    ablate_head, mean
        Heads such as L5H1 that write nothing, or with `mean` their mean over the prompt.
    ablate_subspace
        L1H0.K-L0H3.O: what L1H0 reads through K without what L0H3 writes; one or several.
    channel
        L0H3:L1H6:OK:0: what L1H6 reads through K without the strongest channel from L0H3; 0-7 for the eight strongest.
    swap
        Two heads in each other's place: "L0H1,L1H2", or a pair.
    heads
        Only these heads for the changes of W_Q and W_K.
    together
        All changes at once, not one after another.
    settings
        More settings, as objects (`headspan.lenses.intervene.settings.setting`).
    length
        Tokens to write on, greedily; 0 for none. An encoder writes none.
    maps
        Keep the attention of every layer under every setting, mean over heads, between words where the prompt is text
        (else between tokens), and draw it side by side.
    few_shot, shots, target, template, preamble
        In place of a prompt: pairs of word and clue as `headspan.attention` takes them, how many to show, and the word
        to ask for (by default the first that is not shown).
    truncate
        Cut a prompt that exceeds the context.
    seed
        Of random weights and random tokens.
    **opening
        `stack`, `dtype`, `device`, `config`, `progress`, `time_limit`, `memory`.

    Returns
    -------
    Result
        `entropy`, `relative_entropy`, `kl`, `jsd`, `self_mass`, `argmax_mass [head, setting]`,
        `averaged_relative_entropy [setting, layer]`, with `maps` also `mean_map [setting, layer, query, key]`;
        `alpha`, `perplexity`, `continuation`, `notes [setting]`;
        under the null, uniform attention, the masses are `self_mass_null` and `argmax_mass_null`.

    >>> import headspan
    >>> result = headspan.intervene("demo", "abcabcabc", scale_qk=2.0, length=0)
    >>> result["setting"].values.tolist()
    ['unmodified', 'alpha 2']
    """
    options = arguments(locals())
    from headspan.lenses.intervene.settings import Changes
    from headspan.lenses.run import run

    Changes(**{name: value for name, value in options.items() if name not in RUN})
    if few_shot is not None:
        if prompt is not None:
            raise ArgumentError("prompt and few_shot were both given; give one of them")
        from headspan.lenses.shots import read_pairs

        options["few_shot"] = read_pairs(few_shot)
    return run(LENS, [model], options, opening)
