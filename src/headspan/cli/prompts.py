"""Where a command takes its prompt from: text, a file, token ids."""

from __future__ import annotations

from pathlib import Path

from headspan.atomic import file_text
from headspan.errors import ArgumentError


def chosen_prompt(prompt: str | None, prompt_file: Path | None, tokens: str | None) -> str | list[int] | None:
    """The prompt of the one source that was given, as text or token ids; None where none was."""
    given = [source for source in (prompt, prompt_file, tokens) if source is not None]
    if len(given) > 1:
        raise ArgumentError("--prompt, --prompt-file and --tokens are three ways to say the same; give one of them")
    if tokens is not None:
        from headspan.runtime import token_ids

        return list(token_ids(tokens))
    return prompt if prompt_file is None else file_text(prompt_file)
