"""Every lens on a second device, as a program: `python -m tests.lenses_elsewhere defaults|options` prints what failed.

A program of its own, since the second device is registered for good. Each case runs with `device=` there and on the
CPU, and the values must be equal. Models: the embedded one, and two of the lab's with a position table and with ALiBi.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import xarray as xr

import headspan
from headspan.lab.architecture import Architecture
from headspan.lab.model import LabModel
from headspan.lenses.catalog import lenses
from tests.second_device import second_device

TOKENS = [1, 5, 7, 9, 1, 5, 7, 9]


def lab_model(positions: str) -> tuple[dict[str, torch.Tensor], Any]:
    shape = Architecture(vocabulary=24, length=16, layers=2, heads=2, d_model=16, d_head=8, mlp=32, positions=positions)
    return dict(LabModel(shape, seed=0).state_dict()), shape.config()


def changed_demo() -> tuple[dict[str, torch.Tensor], Any]:
    """The embedded model with noise on every weight."""
    weights, generator = headspan.open("demo").checkpoint, torch.Generator().manual_seed(1)
    stored = weights.store.read(list(weights.store.infos))
    noisy = {name: W + 0.02 * torch.randn(W.shape, generator=generator) for name, W in stored.items()}
    return noisy, weights.config.fields


def relations() -> str:
    path = Path(tempfile.mkdtemp()) / "pairs.csv"
    path.write_text("relation,left,right\n" + "\n".join(f"next,#{n},#{n + 1}" for n in range(2, 60, 2)))
    return str(path)


def defaults() -> dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Every lens with its defaults."""
    more: dict[str, tuple[Any, ...]] = {"attention": (TOKENS,)}
    second = changed_demo()
    subjects = {1: ("demo",), 2: ("demo", second)}
    return {name: (name, (*subjects[one.subjects], *more.get(name, ())), {}) for name, one in lenses().items()}


def options() -> dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Options that compute in ways of their own."""
    table, slopes, demo, second = lab_model("learned"), lab_model("alibi"), ("demo",), changed_demo()
    cases: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("affinity", demo, {"pairings": "OQ,OK,OV,OO,QK", "null": "reverse"}),
        ("affinity", demo, {"robustness": True, "sensitivity": True}),
        ("affinity", demo, {"algorithm": "sketch", "metrics": "pk"}),
        ("affinity", demo, {"algorithm": "gram", "dtype": "float64", "fold": "layernorm"}),
        ("affinity", demo, {"algorithm": "projector", "dtype": "float32"}),
        ("channels", demo, {"src": "L0H3", "dst": "L1H6"}),
        ("channels", demo, {"src": "L0H3", "dst": "L1H6", "used": "L1H6"}),
        ("channels", (slopes,), {}),
        ("wiring", demo, {"neurons": "L1H6"}),
        ("wiring", (table,), {"centering": "centered"}),
        ("similarity", demo, {"head": "L0H1", "across_layers": True}),
        ("similarity", demo, {"space": "intersection", "distance": "projection"}),
        ("similarity", demo, {"space": "qk", "qk_rank": 4}),
        ("positions", (table,), {"full": True}),
        ("positions", (table,), {"layer": 1, "smooth": 2.0, "centering": "centered"}),
        ("spectra", demo, {"init": 0.02, "delta": 3}),
        ("spectra", (table,), {"fold": "layernorm"}),
        ("vocabulary", demo, {"relations": relations()}),
        ("vocabulary", demo, {"head": "L0H3", "delta": 1}),
        ("vocabulary", demo, {"neurons": "L1N17"}),
        ("mixing", demo, {"biases": True}),
        ("mixing", (table,), {"length": 12}),
        ("gaussian", (table,), {"sequences": 8, "length": 12}),
        ("gaussian", (slopes,), {"sequences": 8, "length": 12}),
        ("intervene", (*demo, TOKENS), {"rank_qk": 4, "maps": True}),
        ("intervene", (*demo, TOKENS), {"ablate_head": "L0H3", "mean": True}),
        ("intervene", (*demo, TOKENS), {"rotate_qk": True}),
        ("drift", ("demo", second), {"noise": "rounding"}),
        ("compare", ("demo", second), {"run": True, "sequences": 4, "length": 16}),
    ]
    return {f"{name} {number}: {sorted(kw)}": (name, args, kw) for number, (name, args, kw) in enumerate(cases)}


def failure(name: str, subjects: tuple[Any, ...], chosen: dict[str, Any]) -> str:
    """What went wrong there; empty where the values are those of the CPU."""
    lens = getattr(headspan, name)
    try:
        expected = lens(*subjects, progress=False, **chosen)
        with second_device() as device:
            found = lens(*subjects, progress=False, device=device, **chosen)
        for path, node in expected.data.to_dict().items():
            xr.testing.assert_allclose(found.data.to_dict()[path], node, rtol=1e-4, atol=1e-6)
    except Exception:  # noqa: BLE001 whatever it is, it is told
        return traceback.format_exc(limit=-3)
    return ""


if __name__ == "__main__":
    import torch._dynamo  # its first import inside the mode would go through it

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cases = {"defaults": defaults, "options": options}[sys.argv[1]]()
    sys.stdout.write(json.dumps({name: failure(*case) for name, case in cases.items()}))
