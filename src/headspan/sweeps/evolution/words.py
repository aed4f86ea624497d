"""Quantities in words: what a reader calls `drift angles_V` or `affinity OQ mean pk`.

A name is the lens, the node, the variable and, for scores on several scales, the metric. A variable that is not in the
tables here (another lens's, a new one) keeps its own name, with spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

ROLE_END = re.compile(r"^(?P<name>.+)_(?P<role>[QKVO])$")
SPACES = {"Q": "query spaces", "K": "key spaces", "V": "value spaces", "O": "write spaces"}
PAIRINGS = {"OQ": "outputs and queries", "OK": "outputs and keys", "OV": "outputs and values"}
METRICS = {"pk": "shared dimensions", "cs": "composition score"}

AFFINITY = {
    "mean": "mean {metric}",
    "direction": "{metric} beyond the impossible order",
    "kl": "departure of {metric} from chance",
    "normalized_kernel": "share of dimensions shared",
    "projection_kernel": "shared dimensions",
    "composition_score": "composition score",
}
DRIFT = {
    "angles": "angles that {space} turned by",
    "grassmann": "turn of {space}",
    "chordal": "chordal turn of {space}",
    "outside_share": "share of the change that leaves {space}",
    "projection_kernel": "dimensions kept by {space}",
    "relative_change": "relative change of W_{role}",
    "spectrum_ks": "change of the spectrum of W_{role}",
}
SPECTRA = {
    "singular_value": "mean singular value",
    "energy": "squared norm",
    "energy_ratio": "squared norm over its initial value",
    "energy_given_factors": "squared norm given its factors",
    "entropy": "entropy of the spectrum",
    "ks": "distance from noise",
    "ks_init": "distance from initial noise",
    "above": "share of singular values above noise",
    "above_init": "share of singular values above initial noise",
    "largest": "largest singular value",
    "largest_share": "share of the largest singular value",
    "smallest": "smallest singular value",
    "log_condition": "log condition number",
    "rms": "root mean square",
    "spikes": "singular values beyond noise",
    "stable_rank": "stable rank",
    "effective_rank": "effective rank",
    "nuclear_norm": "nuclear norm",
    "positive_mass": "positive share of the eigenvalues",
    "symmetric_share": "symmetric share",
    "skew_share": "skew share",
    "trace": "trace",
    "trace_share": "trace, as a share of the most possible",
}
SIMILARITY = {
    "angles_RQ_RK": "angles of query and key spaces",
    "angles_NQ_NK": "angles of what queries and keys ignore",
    "angles_RQ_NK": "angles of query spaces and what keys ignore",
    "angles_NQ_RK": "angles of key spaces and what queries ignore",
    "grassmann": "distance of query and key spaces",
    "projection_kernel": "dimensions shared by queries and keys of a head",
    "projection_kernel_others": "dimensions shared by queries and keys of other heads",
    "own_key_place": "place of the own key among all keys of the layer",
    "null_change": "change of logits without the ignored part",
    "read_change": "change of logits without the read part",
    "distance": "distance of heads",
    "layer_distance": "distance of heads of a layer",
    "diversity": "mean distance of heads of a layer",
    "silhouette": "silhouette of clusters of heads",
    "layer_silhouette": "silhouette of clusters of heads of a layer",
    "mds_share": "share of distances that a plane shows",
}
TABLES = {"drift": DRIFT, "similarity": SIMILARITY}


def in_words(lens: str, name: str) -> str:
    """A quantity as a reader would call it; its parts are as in `Curve.name`."""
    *path, variable = name.split(" ")
    if lens == "affinity" and path:
        metric = METRICS.get(variable, "")
        node, variable = path[0], path[-1] if metric and len(path) > 1 else variable
        text = AFFINITY.get(variable, _plain(variable)).format(metric=metric or _plain(variable))
        return _sentence(f"{text}, {PAIRINGS.get(node, node)}")
    if lens == "spectra" and path:
        return _sentence(f"{SPECTRA.get(variable, _plain(variable))} of {_matrix(' '.join(path))}")
    table, ending = TABLES.get(lens, {}), ROLE_END.match(variable)
    if variable in table:
        return _sentence(table[variable])
    if ending and ending["name"] in table:
        return _sentence(table[ending["name"]].format(space=SPACES[ending["role"]], role=ending["role"]))
    of = f" of W_{ending['role']}" if ending else ""
    return _sentence(f"{_plain(ending['name'] if ending else variable)}{of}, {' '.join([lens, *path])}")


def all_in_words(names: Sequence[tuple[str, str]]) -> list[str]:
    """Quantities (lens, name) in words, each different from all others."""
    words = [in_words(lens, name) for lens, name in names]
    often = Counter(words)
    return [
        text if often[text] == 1 else f"{text} ({lens} {name})" for text, (lens, name) in zip(words, names, strict=True)
    ]


def _matrix(node: str) -> str:
    if node == "alignment":
        return "W_QK"
    if node == "layer":
        return "W_QK, by layer"
    return f"{node.removesuffix('_head')} by head" if node.endswith("_head") else node


def _plain(variable: str) -> str:
    return variable.replace("_", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
