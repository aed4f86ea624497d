"""`headspan intervene`: what a model does when its weights are changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headspan.command import RUN, Command, Facts, Option, Rows, cell
from headspan.lenses.intervene.schema import AVERAGED

if TYPE_CHECKING:
    from headspan.result import Result

SHOWN = ("relative_entropy", AVERAGED, "kl", "jsd", "self_mass", "argmax_mass")

COMMAND = Command(
    "Change a running model's weights and compare attention, perplexity and continuation with the unmodified one.",
    RUN,
    options={
        "scale_qk": Option("Singular values of W_Q and W_K times this; repeatable.", list[float]),
        "alphas": Option("A sweep of --scale-qk, evenly in the logarithm, like 0.25:4:9."),
        "rank_qk": Option("W_Q and W_K truncated to this rank; repeatable.", list[int]),
        "flatten_qk": Option("All singular values of a head alike.", bool),
        "rotate_qk": Option("Random singular vectors, same values.", bool),
        "randomize": Option("All weights as before training.", bool),
        "randomize_attention": Option("Attention as before training.", bool),
        "ablate_head": Option("A head such as L5H1 that writes nothing; repeatable.", list[str]),
        "mean": Option("Ablated heads write their mean over the prompt.", bool),
        "ablate_subspace": Option("L1H0.K-L0H3.O: what L1H0 reads through K without what L0H3 writes.", list[str]),
        "channel": Option("L0H3:L1H6:OK:0: what L1H6 reads without channel 0 from L0H3; 0-7 for eight.", list[str]),
        "swap": Option("Two heads in each other's place: L0H1,L1H2."),
        "heads": Option("Only these heads for the options with -qk, separated by commas."),
        "together": Option("All changes at once, not one after another.", bool),
        "maps": Option("Keep attention maps of every layer, for figures and .nc files.", bool, ("--maps",)),
        "few_shot": Option("In place of a prompt: a CSV file of word;clue pairs, or bundled.", Path),
        "shots": Option("Few-shot: how many pairs to show."),
        "target": Option("Few-shot: the word to ask for.", str),
        "template": Option("Few-shot: text with {word} and {clue}, in place of the chat template.", str),
        "preamble": Option("Few-shot: an instruction before the first shot."),
        "length": Option("Tokens to write on, greedily; 0 for none.", int),
    },
    python_only=frozenset({"settings"}),
)


def show(result: Result) -> Iterator[str | Rows | Facts]:
    """Settings, layers, and what the model writes under each setting."""
    data = result.dataset()
    settings, layers = result.table("settings").to_dict("records"), result.table("layers").to_dict("records")
    uniform = cell(float(data["self_mass_null"]))
    columns = {"setting": "setting", **{f"mean_{name}": name for name in SHOWN}, "perplexity": "perplexity"}
    yield Rows.of_records(
        f"{data.attrs['n_tokens']} tokens, means over layers and heads; both masses of uniform attention: {uniform}",
        [{title: row[name] for name, title in columns.items()} for row in settings],
    )
    columns = {"setting": "setting", "layer": "layer"}
    columns |= {name if name == AVERAGED else f"layer_{name}": name for name in SHOWN}
    yield Rows.of_records("Layers", [{title: row[name] for name, title in columns.items()} for row in layers])
    if any(row["continuation"] for row in settings):
        yield Facts([(row["setting"], row["continuation"]) for row in settings], "Written after the prompt")
    yield from (f"{row['setting']}: {row['notes']}." for row in settings if row["notes"])
