"""Stores in an older format: read as they are, brought up to date by the next sweep into them.

What a store holds is in its parts, which are named by what they were computed from and carry a format of their own; the
manifest says what belongs together. So an older manifest is enough to go on with if it says which checkpoints were
swept. What it does not say is filled in: weights as stored, the state that is read by default; lenses by the folders of
their parts. Reading changes nothing on disk. Before a sweep replaces an older manifest it keeps it beside the new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headspan.sweeps.part_file import write_text


def brought_up_to_date(record: Mapping[str, Any], parts: Path) -> dict[str, Any] | None:
    """An older manifest in the present form; None if it does not say what was swept."""
    series = record.get("series")
    if not isinstance(series, Mapping) or not all(isinstance(steps, Mapping) for steps in series.values()):
        return None
    try:
        sources = {
            str(model): {str(int(step)): str(source) for step, source in steps.items()}
            for model, steps in series.items()
        }
    except ValueError:
        return None
    folders = sorted(folder.name for folder in parts.glob("*") if folder.is_dir())
    return {
        **record,
        "settings": record.get("settings", {"fold": "none", "stack": None}),
        "lenses": list(record.get("lenses", folders)),
        "series": sources,
        "failures": list(record.get("failures", [])),
    }


def keep_older(manifest: Path, number: int) -> None:
    """Keep an older manifest as `manifest.format-N.json`, once."""
    kept = manifest.with_name(f"manifest.format-{number}.json")
    if not kept.exists():
        write_text(kept, json.dumps(json.loads(manifest.read_text(encoding="utf-8")), indent=1))
