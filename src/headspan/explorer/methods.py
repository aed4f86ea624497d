"""Methods: how the numbers of each lens are defined, where that comes from, and what exactly was measured.

Formulas as MathML, which browsers draw themselves: no script, no font to fetch.

A formula is written as words with spaces between them: `K ( s , t ) = frac{p q}{d}`. A word becomes an identifier, a
number, an operator or upright text by what it looks like; `x_i^2` has a subscript and a superscript, `{ ... }` groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from headspan.explorer.html import Markup, element, facts, folded
from headspan.explorer.model_section import analyses_table
from headspan.result import Lens
from headspan.schema import Variable


def methods(lens: Lens) -> Iterator[Variable]:
    """The variables of a lens that say how they are defined, each once."""
    seen = set()
    for variables in lens.schema.nodes.values():
        for variable in variables:
            if (variable.formula or variable.text) and variable.long_name not in seen:
                seen.add(variable.long_name)
                yield variable


def methods_section(
    lenses: Sequence[Lens],
    reasons: Mapping[str, str | None],
    provenance: Mapping[str, object],
    about: Sequence[Markup] = (),
    identifier: str = "methods",
) -> Markup:
    """What the model is, formulas of the lenses on the page, references, the analyses, provenance; folded."""
    used = [variable for lens in lenses for variable in methods(lens)]
    references = sorted({variable.reference for variable in used if variable.reference})
    origin = facts((name, str(value)) for name, value in provenance.items() if value)
    listed = element("ul", *(element("li", reference) for reference in references))
    return folded(
        "Methods and provenance: formulas, references, all analyses, where these numbers come from",
        *about,
        element("div", *map(_method, used), class_="methods"),
        *([element("h3", "References"), listed] if references else []),
        element("h3", "Analyses"),
        analyses_table(reasons),
        element("div", element("h3", "Where these numbers come from"), origin),
        id_=identifier,
        class_="chapter",
    )


def _method(variable: Variable) -> Markup:
    title = f"{variable.long_name[0].upper()}{variable.long_name[1:]}"
    beside = {"Range": variable.range, "Null": variable.null}
    told = [f"{name}: {said.removesuffix('.')}." for name, said in beside.items() if said]
    words = " ".join(part for part in (variable.text, *told) if part)
    drawn = [formula(variable.formula)] if variable.formula else []
    return element("div", element("h3", title), *drawn, element("p", words))


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
