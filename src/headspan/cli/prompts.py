"""Where a command takes its prompt from: text, a file, token ids."""

from __future__ import annotations

from pathlib import Path

from headspan.errors import ArgumentError, HeadspanError

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


def chosen_prompt(prompt: str | None, prompt_file: Path | None, tokens: str | None) -> str | list[int] | None:
    """The prompt of the one source that was given, as text or token ids; None where none was."""
    given = [source for source in (prompt, prompt_file, tokens) if source is not None]
    if len(given) > 1:
        raise ArgumentError("--prompt, --prompt-file and --tokens are three ways to say the same; give one of them")
    if tokens is not None:
        from headspan.runtime import token_ids

        return token_ids(tokens)
    return prompt if prompt_file is None else file_text(prompt_file)
