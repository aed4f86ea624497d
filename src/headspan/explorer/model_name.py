"""What a page calls a model: a name that says which one it is, and no path of the machine it was made on.

1. On the Hub, or in the Hub's cache, its name there: `openai-community/gpt2`.
2. The name of its file or folder, if that says something. A numbered step has its run before it: `run/checkpoint-500`.
3. The folder around it, for names such as `model`, `final` or `model.safetensors`.
4. What its config says: `_name_or_path`, or else the family. A model in memory has only this.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PurePosixPath

from headspan.lenses.model import Model

NO_NAME = re.compile(
    r"(pytorch_|tf_|flax_|adapter_|consolidated|my_|the_|best_|final_|last_|saved_)*"
    r"(model|models|weights?|checkpoints?|ckpts?|snapshots?|final|best|last|latest|outputs?|results?|runs?|export(ed)?|"
    r"saved|hf|gguf|main|data|files|downloads?|artifacts?|src|home|root|tmp\w*|temp|consolidated|\.cache|hub|[0-9a-f]{32,64}|)"
    r"\d*([-_.]\d+)*([-_]of[-_]\d+)?",
    re.IGNORECASE,
)
"""Names of files and folders that say nothing about the model in them."""
STEP = re.compile(r"(checkpoint|ckpt|step|epoch|iter)[-_]?\d+", re.IGNORECASE)
WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf|ckpt|npz|index\.json|json)$", re.IGNORECASE)
AROUND = 3
"""Folders that are asked for a name, from the inside."""


def model_name(model: Model) -> str:
    """The name of a model for titles."""
    source = model.source
    if source.endswith("in memory"):
        return _stated_name(model) or source
    if model.checkpoint.store.bytes_transferred is not None or not Path(source).expanduser().exists():
        return source
    path = Path(source).expanduser().resolve()
    return path_name(path) or _stated_name(model) or model.checkpoint.family


def path_name(path: PurePath) -> str | None:
    """The name that a path gives a model; None where no part of it says anything."""
    cached = next((part for part in path.parts if part.startswith("models--")), None)
    if cached is not None:
        return cached.removeprefix("models--").replace("--", "/")
    steps = [part for part in [WEIGHTS.sub("", path.name), path.parent.name] if STEP.fullmatch(part)]
    for each in [path, *path.parents][: AROUND + 1]:
        said = WEIGHTS.sub("", each.name)
        if each.name and not (NO_NAME.fullmatch(said) or STEP.fullmatch(said)):
            return "/".join([each.name, *steps[:1]])
    return None


def _stated_name(model: Model) -> str | None:
    """The name that the config states; of a path on somebody's machine, what a name on this machine would be."""
    given = model.checkpoint.config.fields.get("_name_or_path")
    if not isinstance(given, str) or not given.strip():
        return None
    is_path = given.startswith(("/", ".", "~", "\\")) or re.match(r"[A-Za-z]:", given) or given.count("/") > 1
    if is_path:
        return path_name(PurePosixPath(given.replace("\\", "/")))
    return None if NO_NAME.fullmatch(given.rsplit("/", 1)[-1]) else given
