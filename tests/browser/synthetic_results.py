"""Results as the lenses would give them, made of random numbers: for pages of models too large to analyse here."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headspan.dims import COMPOSING, PAIR_DIMS

CHANCE = 2.0


def random_affinity(n_layers: int, n_heads: int, n_kv_heads: int, seed: int = 0) -> xr.DataTree:
    """Scores of every pair, near chance, with p- and q-values that fall as the scores rise."""
    rng = np.random.default_rng(seed)
    attrs = {"model": "synthetic", "n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_model": 4096, "d_head": 128}
    nodes = {
        f"/{pairing}": _pairing(rng, pairing, n_layers, n_heads, n_heads if pairing == "OQ" else n_kv_heads)
        for pairing in COMPOSING
    }
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={**attrs, "lens": "affinity"}), **nodes})


def _pairing(rng: np.random.Generator, pairing: str, n_layers: int, n_src: int, n_dst: int) -> xr.Dataset:
    layers = np.arange(n_layers)
    shape = (n_layers, n_src, n_layers, n_dst)
    forward = np.broadcast_to((layers[:, None] < layers)[:, None, :, None], shape)
    draws = rng.gamma(20.0, CHANCE / 20, shape)
    kernel, backward = np.where(forward, draws, np.nan), np.where(forward, np.nan, draws)
    p = np.exp(-np.abs(draws))
    p_values = np.broadcast_to(np.where(forward, p, np.nan), (2, 2, *shape))
    many = ("metric", "null", *PAIR_DIMS)
    return xr.Dataset(
        {
            "projection_kernel": (PAIR_DIMS, kernel),
            "anticausal_kernel": (PAIR_DIMS, backward),
            "composition_score": (PAIR_DIMS, kernel / 20),
            "anticausal_score": (PAIR_DIMS, backward / 20),
            "p_value": (many, p_values),
            "q_value": (many, p_values),
            "chance_mean": ("metric", [CHANCE, CHANCE / 20]),
            "chance_std": ("metric", [0.4, 0.02]),
        },
        coords={
            "src_layer": layers,
            "dst_layer": layers,
            "metric": ["pk", "cs"],
            "null": ["haar", "anticausal"],
        },
        attrs={"pairing": pairing, "src_kv": 0, "dst_kv": int(n_dst < n_src)},
    )


def random_similarity(n_layers: int, n_heads: int, n_kv_heads: int, seed: int = 0) -> xr.Dataset:
    """Distances, angles and maps of every head."""
    rng = np.random.default_rng(seed)
    heads, within = ("layer", "head"), ("layer", "src_head", "dst_head")
    shape, angles = (n_layers, n_heads), np.sort(rng.uniform(0, np.pi / 2, (n_layers, n_heads, 128)), -1)
    names, bins = ["RQ_RK", "NQ_NK", "RQ_NK", "NQ_RK"], np.arange(1.0, 90.0, 2.0)
    return xr.Dataset(
        {
            "projection_kernel": (heads, rng.gamma(20.0, 0.1, shape)),
            "projection_kernel_chance": (heads, np.full(shape, CHANCE)),
            "p_value": (heads, rng.uniform(size=shape)),
            "angles_RQ_RK": ((*heads, "angle"), angles),
            "angles_chance": ((*heads, "angle"), angles),
            "angle_count": (("combination", "bin"), rng.uniform(size=(4, 45))),
            "angle_count_chance": (("combination", "bin"), rng.uniform(size=(4, 45))),
            "forced_zeros": ("combination", np.zeros(4)),
            "layer_distance": (within, rng.gamma(50.0, 0.1, (*shape, n_heads))),
            "layer_distance_chance": (within, np.full((*shape, n_heads), 5.0)),
            "layer_distance_z": (within, rng.normal(size=(*shape, n_heads))),
            "typical_chance": 5.0,
            "mds": ((*heads, "axis"), rng.normal(size=(*shape, 2))),
            "tsne": ((*heads, "axis"), rng.normal(size=(*shape, 2))),
            "mds_share": ("axis", [0.2, 0.1]),
        },
        coords={
            "layer": np.arange(n_layers),
            **{name: np.arange(n_heads) for name in ("head", "src_head", "dst_head")},
            "combination": names,
            "bin": bins,
        },
        attrs={"metric": "grassmann", "n_kv_heads": n_kv_heads, "lens": "similarity"},
    )


def random_detection(n_layers: int, n_heads: int, seed: int = 0) -> xr.Dataset:
    """Detector scores, a few of them labelled."""
    rng = np.random.default_rng(seed)
    detectors, axes = ["previous_token", "induction"], ("prompt", "detector", "layer", "head")
    score = rng.beta(1, 20, (1, 2, n_layers, n_heads))
    return xr.Dataset(
        {
            "score": (axes, score),
            "standard_error": (axes, score / 10),
            "chance": (("prompt", "detector"), [[0.05, 0.02]]),
            "label": (axes, score > 0.3),
            "identity_weights": (("layer", "head"), rng.normal(size=(n_layers, n_heads))),
            "identity_weights_chance": 0.0,
            "identity_weights_sd": 1.0,
        },
        coords={
            "prompt": ["repeated random tokens"],
            "detector": detectors,
            "layer": np.arange(n_layers),
            "head": np.arange(n_heads),
        },
        attrs={"threshold": 0.3, "lens": "detect"},
    )


def attention_of(texts: list[str], n_layers: int, n_heads: int, seed: int = 0) -> xr.Dataset:
    """Attention maps of a prompt with these tokens."""
    n = len(texts)
    rng = np.random.default_rng(seed)
    maps = np.tril(rng.uniform(0.1, 1.0, (n_layers, n, n)))
    named = np.array(texts, dtype=object)
    return xr.Dataset(
        dict.fromkeys(("mean_map", "write_map"), (("layer", "query", "key"), maps)),
        coords={
            "layer": np.arange(n_layers),
            "head": np.arange(n_heads),
            "query_text": ("query", named),
            "key_text": ("key", named),
        },
        attrs={"causal": 1, "n_tokens": 1, "level": "token", "lens": "attention"},
    )
