"""`headspan intervene`: what a model does when its weights are changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headspan.cli import arguments as shared
from headspan.cli.delivery import delivery, figures_page
from headspan.cli.figure_files import image_files

if TYPE_CHECKING:
    import xarray as xr

    from headspan.lenses.intervene import Setting
    from headspan.runtime import Prompt, RunnableModel
    from headspan.runtime.interventions import Intervention

ScaleQK = Annotated[
    list[float] | None, typer.Option("--scale-qk", help="Singular values of W_Q and W_K times this; repeatable.")
]
Alphas = Annotated[
    str | None, typer.Option("--alphas", help="A sweep of --scale-qk, evenly in the logarithm, like 0.25:4:9.")
]
RankQK = Annotated[list[int] | None, typer.Option("--rank-qk", help="W_Q and W_K truncated to this rank.")]
FlattenQK = Annotated[bool, typer.Option("--flatten-qk", help="All singular values of a head alike.")]
RotateQK = Annotated[bool, typer.Option("--rotate-qk", help="Random singular vectors, same values.")]
Randomize = Annotated[bool, typer.Option("--randomize", help="All weights as before training.")]
RandomizeAttention = Annotated[bool, typer.Option("--randomize-attention", help="Attention as before training.")]
AblateHead = Annotated[
    list[str] | None, typer.Option("--ablate-head", help="A head such as L5H1 that writes nothing; repeatable.")
]
Mean = Annotated[bool, typer.Option("--mean", help="Ablated heads write their mean over the prompt.")]
AblateSubspace = Annotated[
    list[str] | None,
    typer.Option("--ablate-subspace", help="L1H0.K-L0H3.O: what L1H0 reads through K without what L0H3 writes."),
]
Swap = Annotated[str | None, typer.Option("--swap", help="Two heads in each other's place: L0H1,L1H2.")]
Only = Annotated[
    str | None, typer.Option("--heads", help="Only these heads for the options with -qk, separated by commas.")
]
Together = Annotated[bool, typer.Option("--together", help="All changes at once, not one after another.")]


def intervene(
    model: shared.Model,
    scale_qk: ScaleQK = None,
    alphas: Alphas = None,
    rank_qk: RankQK = None,
    flatten_qk: FlattenQK = False,
    rotate_qk: RotateQK = False,
    randomize: Randomize = False,
    randomize_attention: RandomizeAttention = False,
    ablate_head: AblateHead = None,
    mean: Mean = False,
    ablate_subspace: AblateSubspace = None,
    swap: Swap = None,
    heads: Only = None,
    together: Together = False,
    prompt: shared.PromptText = None,
    prompt_file: shared.PromptFile = None,
    tokens: shared.TokenIds = None,
    truncate: shared.Truncate = False,
    length: Annotated[int, typer.Option(help="Tokens to write on, greedily; 0 for none.")] = 40,
    seed: shared.Seed = 0,
    output: shared.OutputOrPage = None,
    figures: shared.Figures = None,
    figure_format: shared.FigureFormat = "svg",
    dark: shared.Dark = False,
    as_json: shared.AsJSON = False,
    config: shared.ConfigFile = None,
    stack: shared.Stack = None,
) -> None:
    """Change a running model's weights and compare attention, perplexity and continuation with the unmodified one."""
    from headspan.cli.prompts import chosen_prompt
    from headspan.lenses import intervene as lens
    from headspan.progress import progress_bar
    from headspan.runtime import open_runnable

    images = image_files(figures, figure_format, dark)
    to = delivery("intervene", output, images, as_json, more=figures_page("intervene"))
    scales = [*(scale_qk or ()), *(lens.parsed_grid(alphas) if alphas else ())]
    flags = {"flatten": flatten_qk, "rotate": rotate_qk, "all": randomize, "attention": randomize_attention}
    running = open_runnable(model, config=config, stack=stack)
    given = chosen_prompt(running, prompt, prompt_file, tokens, truncate)
    chosen = None if heads is None else tuple(part.strip() for part in heads.split(",") if part.strip())
    made = _spectral(running, scales, rank_qk or [], flags, chosen, seed)
    made += _of_heads(running, ablate_head or [], given if mean else None, mean, ablate_subspace or [], swap)
    settings = _settings(made, together)
    with progress_bar(1 + len(settings or lens.default_settings(seed))) as progress:
        result = lens.compute(running, given, settings=settings, length=length, seed=seed, progress=progress)
    to.deliver(result, lens, _print)


def _spectral(
    model: RunnableModel,
    scales: list[float],
    ranks: list[int],
    flags: dict[str, bool],
    heads: tuple[str, ...] | None,
    seed: int,
) -> list[Intervention]:
    """Changes of spectra and random weights; matrices are decomposed once for all of them."""
    from headspan.runtime.interventions import HeadSpectra, Reinitialized, ScaledLogits

    made: list[Intervention] = [ScaledLogits(alpha, heads) for alpha in scales]
    if ranks or flags["flatten"] or flags["rotate"]:
        spectra = HeadSpectra.of(model, ("Q", "K"), heads)
        made += [spectra.truncated(rank) for rank in ranks]
        made += [spectra.flattened()] if flags["flatten"] else []
        made += [spectra.with_random_bases(seed)] if flags["rotate"] else []
    made += [Reinitialized(seed, attention_only=True)] if flags["attention"] else []
    return made + ([Reinitialized(seed)] if flags["all"] else [])


def _of_heads(
    model: RunnableModel, ablated: list[str], prompt: Prompt | None, mean: bool, removals: list[str], swap: str | None
) -> list[Intervention]:
    from headspan.errors import ShapeError
    from headspan.lenses.attention.prompts import default_prompt
    from headspan.lenses.intervene import parsed_removal
    from headspan.runtime.interventions import AblatedHeads, SwappedHeads, mean_values

    made: list[Intervention] = []
    if ablated:
        means = mean_values(model, (prompt or default_prompt(model)).tokens) if mean else None
        made.append(AblatedHeads(tuple(ablated), means))
    made += [parsed_removal(model, text) for text in removals]
    if swap is not None:
        pair = [part.strip() for part in swap.split(",")]
        if len(pair) != 2:
            raise ShapeError(f"{swap!r} are not two heads; write them like L0H1,L1H2")
        made.append(SwappedHeads(pair[0], pair[1]))
    return made


def _settings(made: list[Intervention], together: bool) -> list[Setting] | None:
    """None for the default ones."""
    from headspan.lenses.intervene import setting

    if not made:
        return None
    return [setting(*made)] if together else [setting(each) for each in made]


def _print(result: xr.Dataset) -> None:
    """Settings, layers, and what the model writes under each setting."""
    from headspan.cli.tables import print_facts, print_records
    from headspan.lenses import intervene as lens

    document = lens.as_json(result)
    shown = ("setting", "relative_entropy", "averaged_relative_entropy", "kl", "jsd", "self_mass", "argmax_mass")
    about, chance = document["provenance"], document["chance"]["self_mass"]
    columns = (*shown, "perplexity")
    rows = [{name: row[name] for name in columns} for row in document["settings"]]
    uniform = "-" if chance is None else f"{chance:.4g}"
    print_records(
        f"{about['n_tokens']} tokens, means over layers and heads; both masses of uniform attention: {uniform}",
        rows,
    )
    layers = [{name: row[name] for name in ("setting", "layer", *shown[1:])} for row in document["layers"]]
    print_records("Layers", layers)
    if any(row["continuation"] for row in document["settings"]):
        print_facts([(row["setting"], row["continuation"]) for row in document["settings"]], "Written after the prompt")
    for row in document["settings"]:
        if row["notes"]:
            typer.echo(f"{row['setting']}: {row['notes']}.")
