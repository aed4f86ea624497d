"""False-positive rates of the channels lens: couplings under both nulls, what a listed channel shows, one pair.

Models share nothing (`models`). The two-way null needs a model of several layers.
"""

from __future__ import annotations

import numpy as np

import headspan
from docs.calibration.models import generator_of, gpt2, kinds
from docs.calibration.rows import Row, pooled_rows
from headspan.dims import HeadLabel
from headspan.lenses.channels.channel_list import ChannelReader
from headspan.lenses.channels.one_pair import pair_nodes

LAYERS, HEADS = 6, 8
PAIRINGS = ("OQ", "OK", "OV")
COVERS = {
    "channels": ("coupling_p", "alignment_p", "token_concentration_p", "singular_value_p"),
    "compare": ("coupling_before_q", "coupling_after_q"),  # the same test, on either model
}


def rates(seed: int, draws: int, stress: bool = True) -> list[Row]:
    """Rates over `draws` models of each kind; pairs of one model share heads, and intervals are narrow."""
    found: list[Row] = []
    for place, null, kind in kinds(stress):
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
            p.setdefault("singular_value_p (leading)", []).append(_pairs(model, seed + draw))
        found += pooled_rows("channels", null, p)
    return found


def _pairs(model: headspan.Model, seed: int) -> np.ndarray:
    """p of the leading singular value of pairs that share no head, as `headspan.channels` of one pair gives it."""
    reader = ChannelReader(model.heads().folded(), 0)
    pairs = [
        (HeadLabel(layer, head), HeadLabel(layer + 1, head)) for layer in range(0, LAYERS, 2) for head in range(HEADS)
    ]
    found = [
        pair_nodes(reader, *pair, pairing, 1, 200, seed + 1000 * place)[1]["singular_value_p"][1][0]
        for place, (pair, pairing) in enumerate((pair, pairing) for pair in pairs for pairing in PAIRINGS)
    ]
    return np.array(found)
