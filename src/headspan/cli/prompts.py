"""Where a command takes its prompt from: text, a file, token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headspan.errors import HeadspanError, ShapeError

if TYPE_CHECKING:
    from headspan.runtime import Prompt, RunnableModel

MAX_PROMPT_BYTES = 16 * 2**20


def file_text(path: Path) -> str:
    """The text of a file, refused where it is none."""
    try:
        if path.stat().st_size > MAX_PROMPT_BYTES:
            raise HeadspanError(f"'{path}' is larger than {MAX_PROMPT_BYTES:,} bytes, more than any prompt")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise HeadspanError(f"'{path}' is not text in UTF-8 ({problem.reason}); save it in that encoding") from problem
    except OSError as problem:
        raise HeadspanError(f"'{path}' cannot be read: {problem.strerror}") from problem


def chosen_prompt(
    model: RunnableModel, text: str | None, file: Path | None, tokens: str | None, truncate: bool
) -> Prompt | None:
    """The prompt of the one source that was given; None where none was."""
    from headspan.runtime import encoded, token_ids

    given = [source for source in (text, file, tokens) if source is not None]
    if len(given) > 1:
        raise ShapeError("give one of --prompt, --prompt-file, --tokens and --few-shot")
    if tokens is not None:
        return encoded(model, token_ids(tokens), truncate)
    if file is not None:
        return encoded(model, file_text(file), truncate)
    return None if text is None else encoded(model, text, truncate)
