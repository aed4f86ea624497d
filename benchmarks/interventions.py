"""Interventions against the decompositions they cannot do without, and how long `validate` takes.

Spectral interventions on the heads of a model: making the decompositions against bare torch SVDs of the same matrices,
and, once they are made, one change with its undoing against one decomposition. A scaling, which decomposes nothing,
against one forward run. In one process, on one thread.
"""

from __future__ import annotations

import time

import torch

import headspan
from benchmarks.measure import models_folder, ratio
from headspan.dims import HeadLabel
from headspan.runtime import RunnableModel, forward, open_runnable
from headspan.runtime.interventions import HeadSpectra, ScaledLogits, intervened
from headspan.runtime.interventions.ablation import reading_matrix

VALIDATE_SECONDS = 180
"""Of wall time, on two cores."""


def main() -> None:
    """Print every ratio with its target."""
    torch.set_num_threads(1)
    folder = models_folder() / "stories260K"
    if not folder.is_dir():
        print(f"stories260K is not at {folder}: set HEADSPAN_MODELS")
        return
    model = open_runnable(folder)
    spectra = HeadSpectra.of(model)
    ours, bare, share = ratio(lambda: HeadSpectra.of(model), lambda: _bare(model))
    print(f"decompositions / bare SVDs: {1e3 * ours:.1f} / {1e3 * bare:.1f} ms = {share:.2f} (target <= 1.5)")
    ours, bare, share = ratio(lambda: _changed(model, spectra), lambda: HeadSpectra.of(model))
    print(f"a change and its undoing / decompositions: {1e3 * ours:.1f} / {1e3 * bare:.1f} ms = {share:.2f}")
    tokens = torch.randint(3, 500, (4, 128), generator=torch.Generator().manual_seed(0))
    ours, bare, share = ratio(lambda: _scaled(model), lambda: forward(model, tokens))
    print(f"a scaling and its undoing / a run of 4 x 128 tokens: {1e3 * ours:.1f} / {1e3 * bare:.1f} ms = {share:.2f}")
    start = time.perf_counter()
    headspan.validate(model)
    print(f"validate: {time.perf_counter() - start:.0f} s (target <= {VALIDATE_SECONDS})")


def _bare(model: RunnableModel) -> None:
    kv = model.stack.n_kv_heads < model.n_heads
    for layer in model.layers:
        queries = [reading_matrix(model, "Q", HeadLabel(layer, head)) for head in range(model.n_heads)]
        keys = [reading_matrix(model, "K", HeadLabel(layer, head, kv)) for head in range(model.stack.n_kv_heads)]
        for each in (queries, keys):
            torch.linalg.svd(torch.stack(each), full_matrices=False)


def _changed(model: RunnableModel, spectra: HeadSpectra) -> None:
    with intervened(model, spectra.truncated(4)):
        pass


def _scaled(model: RunnableModel) -> None:
    with intervened(model, ScaledLogits(2.0)):
        pass


if __name__ == "__main__":
    main()
