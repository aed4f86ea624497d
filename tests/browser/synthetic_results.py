"""Results as the lenses would give them, made of random numbers: for pages of models too large to analyze here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING, PAIR_DIMS
from headspan.labels import labeled
from headspan.lenses.catalog import lens
from headspan.lenses.detect.schema import DETECTORS, REPEATED
from headspan.lenses.run import joined
from headspan.result import Result

EXPECTED = 2.0
MASSES = ("previous_mass", "first_mass", "self_mass")


def made_result(name: str, nodes: Mapping[str, xr.Dataset], n_heads: int, n_kv_heads: int, **attrs: Any) -> Result:
    """Grids as a result of a lens, labeled as a measurement would be; no schema is asked for what they lack."""
    group = n_heads // n_kv_heads
    shape = {"model": "synthetic", "n_heads": n_heads, "n_kv_heads": n_kv_heads, "lens": name}
    return Result(lens(name), joined({node: labeled(grid, group) for node, grid in nodes.items()}, {**shape, **attrs}))


def random_affinity(n_layers: int, n_heads: int, n_kv_heads: int, seed: int = 0) -> Result:
    """Scores of every pair, near their expected value, with p- and q-values that fall as the scores rise."""
    rng = np.random.default_rng(seed)
    nodes = {
        pairing: _pairing(rng, n_layers, n_heads, n_heads if pairing == "OQ" else n_kv_heads) for pairing in COMPOSING
    }
    return made_result("affinity", nodes, n_heads, n_kv_heads, d_model=4096, d_head=128)


def _pairing(rng: np.random.Generator, n_layers: int, n_src: int, n_dst: int) -> xr.Dataset:
    layers = np.arange(n_layers)
    shape = (n_layers, n_src, n_layers, n_dst)
    forward = np.broadcast_to((layers[:, None] < layers)[:, None, :, None], shape)
    draws = rng.gamma(20.0, EXPECTED / 20, shape)
    kernel, backward = np.where(forward, draws, np.nan), np.where(forward, np.nan, draws)
    p = np.broadcast_to(np.where(forward, np.exp(-np.abs(draws)), np.nan), (2, *shape))
    variables: dict[str, Any] = {}
    for name, scale in (("projection_kernel", 1.0), ("composition_score", 1 / 20)):
        variables |= {
            name: (PAIR_DIMS, kernel * scale),
            f"{name}_reverse": (PAIR_DIMS, backward * scale),
            f"{name}_null": (("null", *PAIR_DIMS), np.full((2, *shape), EXPECTED * scale)),
            f"{name}_z": (("null", *PAIR_DIMS), np.stack([(kernel - EXPECTED) / 0.4] * 2)),
            f"{name}_p": (("null", *PAIR_DIMS), p),
            f"{name}_q": (("null", *PAIR_DIMS), p),
            f"{name}_mean_null": EXPECTED * scale,
            f"{name}_sd_null": 0.4 * scale,
        }
    return xr.Dataset(
        variables,
        coords={"src_layer": layers, "dst_layer": layers, "null": ["haar", "reverse"]},
        attrs={"src_kv": 0, "dst_kv": int(n_dst < n_src)},
    )


def random_similarity(n_layers: int, n_heads: int, n_kv_heads: int, seed: int = 0) -> Result:
    """Distances, angles and maps of every head."""
    rng = np.random.default_rng(seed)
    heads, within = ("layer", "head"), ("layer", "head", "peer")
    shape, angles = (n_layers, n_heads), np.sort(rng.uniform(0, np.pi / 2, (n_layers, n_heads, 128)), -1)
    names, bins = ["RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK"], np.arange(1.0, 90.0, 2.0)
    grid = xr.Dataset(
        {
            "projection_kernel": (heads, rng.gamma(20.0, 0.1, shape)),
            "projection_kernel_null": (heads, np.full(shape, EXPECTED)),
            "projection_kernel_p": (heads, rng.uniform(size=shape)),
            "angles_RQ_RK": ((*heads, "angle"), angles),
            "angles_RQ_RK_null": ((*heads, "angle"), angles),
            "angle_count": (("combination", "bin"), rng.uniform(size=(4, 45))),
            "angle_count_null": (("combination", "bin"), rng.uniform(size=(4, 45))),
            "forced_zeros": ("combination", np.zeros(4)),
            "layer_distance": (within, rng.gamma(50.0, 0.1, (*shape, n_heads))),
            "layer_distance_null": (within, np.full((*shape, n_heads), 5.0)),
            "layer_distance_z": (within, rng.normal(size=(*shape, n_heads))),
            "typical_distance": 5.0,
            "mds": ((*heads, "axis"), rng.normal(size=(*shape, 2))),
            "tsne": ((*heads, "axis"), rng.normal(size=(*shape, 2))),
            "mds_share": ("axis", [0.2, 0.1]),
        },
        coords={"layer": np.arange(n_layers), "combination": names, "bin": bins},
    )
    return made_result("similarity", {"": grid}, n_heads, n_kv_heads, distance="grassmann")


def random_detection(n_layers: int, n_heads: int, seed: int = 0) -> Result:
    """Detector scores, a few of them labeled."""
    rng = np.random.default_rng(seed)
    axes = ("layer", "head", "prompt")
    variables: dict[str, Any] = {
        "identity_weights": (axes[:2], rng.normal(size=(n_layers, n_heads))),
        "identity_weights_null": 0.0,
        "identity_weights_null_sd": 1.0,
    }
    for name in DETECTORS:
        score = rng.beta(1, 20, (n_layers, n_heads, 1))
        variables |= {
            name: (axes, score),
            f"{name}_se": (axes, score / 10),
            f"{name}_null": ("prompt", [0.05]),
            f"{name}_label": (axes, score > 0.3),
        }
    grid = xr.Dataset(variables, coords={"prompt": [REPEATED], "layer": np.arange(n_layers)})
    return made_result("detect", {"": grid}, n_heads, n_heads, threshold=0.3)


def attention_of(texts: list[str], n_layers: int, n_heads: int, seed: int = 0) -> Result:
    """Attention maps of a prompt with these tokens."""
    n = len(texts)
    rng = np.random.default_rng(seed)
    maps = np.tril(rng.uniform(0.1, 1.0, (n_layers, n, n)))
    named = np.array(texts, dtype=object)
    grid = xr.Dataset(
        {
            **dict.fromkeys(("mean_map", "write_map"), (("layer", "query", "key"), maps)),
            "pattern": (("layer", "head", "query", "key"), np.stack([maps] * n_heads, axis=1)),
            "relative_entropy": (("layer", "head"), np.full((n_layers, n_heads), 0.5)),
            **{name: (("layer", "head"), np.zeros((n_layers, n_heads))) for name in MASSES},
        },
        coords={"layer": np.arange(n_layers), "query_text": ("query", named), "key_text": ("key", named)},
    )
    return made_result("attention", {"": grid}, n_heads, n_heads, causal=1, n_tokens=1, level="token")
