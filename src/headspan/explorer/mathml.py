"""Formulas as MathML, which browsers draw themselves: no script, no font to fetch.

A formula is written as words with spaces between them: `K ( s , t ) = frac{p q}{d}`. A word becomes an identifier, a
number, an operator or upright text by what it looks like; `x_i^2` has a subscript and a superscript, `{ ... }` groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from headspan.explorer.html import Markup

TOKEN = re.compile(r"[{}_^]|[A-Za-z]{2,}|[A-Za-z\u0391-\u03c9]|\d+(?:\.\d+)?|\S")
UPRIGHT = frozenset({"PK", "CS", "tr", "cos", "sin", "log", "exp", "Var", "KS", "softmax", "min", "max", "rank", "GUE"})


def formula(text: str) -> Markup:
    """`text` as a formula that stands on a line of its own."""
    tokens = TOKEN.findall(text)
    body = "".join(_row(iter(tokens)))
    return Markup(f'<math display="block"><mrow>{body}</mrow></math>')


def _row(tokens: Iterator[str]) -> list[str]:
    """The elements up to the end or to a closing brace; scripts are bound to what stands before them."""
    found: list[str] = []
    scripts: dict[str, str] = {}
    for token in tokens:
        if token == "}":
            break
        if token in "_^":
            scripts[token] = _one(tokens)
            continue
        _bind(found, scripts)
        found.append(_construct(token, tokens))
    _bind(found, scripts)
    return found


def _bind(found: list[str], scripts: dict[str, str]) -> None:
    if not scripts or not found:
        return
    inner = found.pop() + scripts.get("_", "") + scripts.get("^", "")
    tag = "msubsup" if len(scripts) == 2 else "msub" if "_" in scripts else "msup"
    found.append(f"<{tag}>{inner}</{tag}>")
    scripts.clear()


def _construct(token: str, tokens: Iterator[str]) -> str:
    if token == "{":
        return f"<mrow>{''.join(_row(tokens))}</mrow>"
    if token == "frac":
        return f"<mfrac>{_one(tokens)}{_one(tokens)}</mfrac>"
    if token == "sqrt":
        return f"<msqrt>{_one(tokens)}</msqrt>"
    return _word(token)


def _one(tokens: Iterator[str]) -> str:
    """The next thing: a group in braces, or one word."""
    return _construct(next(tokens), tokens)


def _word(token: str) -> str:
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token in UPRIGHT or (token.isalpha() and len(token) > 1):
        return f'<mi mathvariant="normal">{escape(token)}</mi>'
    return f"<mi>{escape(token)}</mi>" if token.isalpha() else f"<mo>{escape(token)}</mo>"
