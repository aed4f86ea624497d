"""The demo model: a two-layer Llama, under a megabyte, that truly has previous-token and induction heads.

It lies in `checkpoint/` as an ordinary Hugging Face folder, so that every part of headspan can be tried
offline on weights that learned something. `train.py` made it (`python -m demo_model.train`), `task.py`
scored it, and `checkpoint/scores.json` says what was found. Importing this package loads neither torch nor
transformers.
"""

from __future__ import annotations

from pathlib import Path


def demo_folder() -> Path:
    """The folder of the demo checkpoint, which any Hugging Face loader opens offline."""
    return Path(__file__).parent / "checkpoint"
