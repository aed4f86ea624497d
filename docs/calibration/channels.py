"""False-positive rates of the channels lens: couplings under both nulls, what a listed channel shows, one pair.

Models share nothing (`models`). The two-way null needs a model of several layers.
"""

from __future__ import annotations

import numpy as np

import headspan
from docs.calibration.models import KINDS, generator_of, gpt2
from docs.calibration.rows import Row, pooled_rows

LAYERS, HEADS = 6, 8
PAIRINGS = ("OQ", "OK", "OV")
COVERS = {
    "channels": ("coupling_p", "alignment_p", "token_concentration_p", "singular_value_p"),
    "compare": ("coupling_before_q", "coupling_after_q"),  # the same test, on either model
}
PAIRS = (("L0H0", "L1H1"), ("L1H3", "L4H4"), ("L2H0", "L5H7"))


def rates(seed: int, draws: int) -> list[Row]:
    """Rates over `draws` models of each kind; pairs of one model share heads, and intervals are narrow."""
    found: list[Row] = []
    for place, (null, kind) in enumerate(KINDS.items()):
        p: dict[str, list[np.ndarray]] = {}
        for draw in range(draws):
            model = headspan.open(gpt2(kind(generator_of(seed, place, draw)), LAYERS, HEADS))
            result = headspan.channels(model, seed=draw, progress=False)
            for pairing in PAIRINGS:
                couplings = result[pairing]["coupling_p"]
                for of in couplings["null"].values:
                    p.setdefault(f"coupling_p, {of} null", []).append(couplings.sel(null=of).values.ravel())
                for name in ("alignment_p", "token_concentration_p"):
                    p.setdefault(name, []).append(result[f"top/{pairing}"][name].values.ravel())
            for pair in PAIRS:
                one = headspan.channels(model, *pair, draws=200, vocabulary=False, seed=draw, progress=False)
                parts = [one[f"pair/{pairing}"]["singular_value_p"].values[:1] for pairing in PAIRINGS]
                p.setdefault("singular_value_p (leading)", []).append(np.concatenate(parts))
        found += pooled_rows("channels", null, p)
    return found
