"""What attention says of every head in a phrase: where most of its attention goes on the example prompt."""

from __future__ import annotations

import numpy as np

from headspan.result import Result

PLACES = {
    "previous_mass": "attends mostly to the previous token",
    "first_mass": "attends mostly to the first token",
    "self_mass": "attends mostly to the token itself",
}
MOST, BROAD = 0.5, 0.9
"""Share of attention that counts as most of it, and relative entropy that counts as even attention."""


def phrases(result: Result) -> dict[str, str]:
    """Head label to a phrase; heads between the two are left out."""
    found: dict[str, str] = {}
    data = result.dataset()
    for label, entropy in zip(data["head"].values, data["relative_entropy"].values, strict=True):
        if entropy > BROAD:
            even = f"{100 * entropy:.0f} % of the largest entropy"
            found[str(label)] = f"attends almost evenly on the example prompt ({even})"
    for name, words in PLACES.items():
        for place in np.flatnonzero(data[name].values > MOST):
            share = float(data[name].values[place])
            found.setdefault(str(data["head"].values[place]), f"{words} on the example prompt ({100 * share:.0f} %)")
    return found
