"""One row of the page: a model rounded by one scheme, compared with itself as it was."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import transformers

import headspan
from docs.quantization.schemes import SCHEMES, rounded

LEVEL = 0.05
TEXT = Path(__file__).parents[1] / "mathematics" / "two-way-null.md"
"""What the encoder is run on; a language model is run on what it writes itself."""
Row = dict[str, Any]


def loaded(folder: Path) -> Any:
    """The model as transformers has it, with its language-model head where it is one."""
    writes = "CausalLM" in str(transformers.AutoConfig.from_pretrained(folder).architectures)
    auto = transformers.AutoModelForCausalLM if writes else transformers.AutoModel
    return auto.from_pretrained(folder)


def scheme_row(folder: Path, model: Any, scheme: str, seed: int = 0, **options: Any) -> Row:
    """What `headspan.compare` says of one scheme, with the rounding null; heads beyond the Gaussian null beside it."""
    other = deepcopy(model)
    unfit = rounded(other, scheme)
    text = None if hasattr(model, "lm_head") else TEXT.read_text(encoding="utf-8")
    result = headspan.compare(folder, other, noise="rounding", run=True, text=text, seed=seed, **options)
    heads, edges, pairs = (result.table(name) for name in ("heads", "pairings", "edges"))
    gaussian = headspan.drift(folder, other, seed=seed).table()
    behavior = result["behavior"]
    return {
        "scheme": scheme,
        "bits": SCHEMES[scheme][0],
        "unfit": len(unfit),
        "matrices": len(heads),
        "relative_change": float(heads["relative_change"].median()),
        "moved": float((heads["grassmann"] / heads["grassmann_unrelated"]).median()),
        "moved_null": float((heads["grassmann_null"] / heads["grassmann_unrelated"]).median()),
        "heads_beyond": int((heads["grassmann_q"] < LEVEL).sum()),
        "heads_beyond_gaussian": int((gaussian["grassmann_q"] < LEVEL).sum()),
        "growth": float(heads["growth"].mean()),
        "growth_beyond": int((heads["growth_q"] < LEVEL).sum()),
        "spectra": float(heads["spectrum_change"].median()),
        "spectra_null": float(heads["spectrum_change_null"].median()),
        "pairs": len(pairs),
        "pairs_beyond": int(edges["n_changed"].sum()),
        "kernel_change": float(pairs["change"].abs().median()),
        "edges": int((edges["n_kept"] + edges["n_lost"]).sum()),
        "turned": int((edges["n_gained"] + edges["n_lost"]).sum()),
        "turned_beyond": int(edges["n_beyond_null"].sum()),
        "n_heads": behavior["divergence"].size,
        "divergence": float(behavior["divergence"].mean()),
        "divergence_null": float(behavior["divergence_null"].mean()),
        "divergence_beyond": int((behavior["divergence_q"] < LEVEL).sum()),
        **{name: float(behavior[name]) for name in behavior if name.startswith(("state", "loss"))},
    }
