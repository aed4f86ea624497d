"""Pages of the documentation as code: their blocks, what these print, and whether that is what the page says.

1. A page's ```python blocks run one after another in one namespace. A ```text block right after one is what it prints.
   A comment behind an expression that is a number or a string is its value.
2. A ```console block has lines that begin with `$ headspan`, each followed by what the command prints; `...` on a line
   of its own stands for lines left out, and `| grep WORD` chooses some.
3. Words must be equal. Numbers may differ by one unit of the last digit on the page: another processor rounds
   otherwise.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from headspan.cli.main import app

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1 *$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
VALUE = re.compile(r"^(\S.*)  # (-?\d[\d.]*(?:, -?\d[\d.]*)*(?= nats$|$)|'[^']*'|\[[^\]]*'\])", re.MULTILINE)
"""An expression with its value in a comment."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the text block that follows it directly, if any."""

    language: str
    text: str
    line: int
    printed: str | None = None


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = list(FENCE.finditer(page))
    listed = []
    for place, fence in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        adjacent = after is not None and after[2] == "text" and not page[fence.end() : after.start()].strip()
        printed = after[3] if after is not None and adjacent else None
        listed.append(Block(fence[2], fence[3], page[: fence.start()].count("\n") + 1, printed))
    return listed


def prose(page: str) -> str:
    """A page without its blocks, formulas, links' targets and inline code."""
    for pattern in (FENCE, re.compile(r"\$\$.*?\$\$", re.DOTALL), re.compile(r"\$[^$]+\$"), re.compile(r"`[^`]+`")):
        page = pattern.sub(" ", page)
    return re.sub(r"\]\([^)]*\)", "]", page)


def ran(block: Block, namespace: dict[str, object], where: str) -> str:
    """What a block prints when it is run."""
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, where, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)  # noqa: S102
    for expression, value in VALUE.findall(block.text):
        found = eval(expression, namespace)  # noqa: S307
        told = f"{found.tolist()}" if hasattr(found, "tolist") else repr(found)
        assert agree(value, told if "'" in value else _rounded(told, value)), f"{where}: {expression} is {told}"
    return printed.getvalue()


def _rounded(found: str, like: str) -> str:
    """The numbers of a text with as many decimals as in another one."""
    decimals = len(NUMBER.findall(like)[0].partition(".")[2])
    return ", ".join(f"{float(number):.{decimals}f}" for number in NUMBER.findall(found))


def run_page(path: Path, replaced: Mapping[str, str]) -> None:
    """Run a page's Python and hold what it prints against the page; `replaced` puts paths for names of models."""
    page = path.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": path.stem}
    for block in blocks(page):
        if block.language != "python":
            continue
        text = block.text
        for name, here in replaced.items():
            text = text.replace(f'"{name}"', repr(here))
        printed = ran(Block("python", text, block.line), namespace, str(path))
        if block.printed is not None:
            assert agree(block.printed, printed), f"{path.name}:{block.line} prints\n{printed}\nnot\n{block.printed}"


def commands(page: str) -> Iterator[tuple[list[str], str]]:
    """Every `$ headspan ...` with an answer below it: its arguments, and the answer."""
    for block in blocks(page):
        if block.language != "console":
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, answer = part.partition("\n")
            arguments = shlex.split(line, comments=True)
            if arguments[0] == "headspan" and answer.strip():
                yield arguments[1:], answer


def answer_of(arguments: list[str]) -> str:
    """What the command prints, on a terminal of 100 columns."""
    place = arguments.index("|") if "|" in arguments else len(arguments)
    done = CliRunner().invoke(app, arguments[:place], env={"COLUMNS": "100"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if place == len(arguments):
        return done.stdout
    grep, word = arguments[place + 1 :]
    assert grep == "grep"
    return "\n".join(line for line in done.stdout.splitlines() if word in line)


def agree(page: str, printed: str) -> bool:
    """Whether two texts say the same: see the module."""
    lines = [re.escape("\0") if line.strip() == "..." else line for line in page.splitlines() if line.strip()]
    found = [line for line in printed.splitlines() if line.strip()]
    return _agree([line.split() for line in lines], [line.split() for line in found])


def _agree(wanted: list[list[str]], found: list[list[str]]) -> bool:
    if not wanted:
        return not found
    if wanted[0] == [re.escape("\0")]:
        return any(_agree(wanted[1:], found[skipped:]) for skipped in range(len(found) + 1))
    if not found or len(wanted[0]) != len(found[0]):
        return False
    return all(map(_same, wanted[0], found[0])) and _agree(wanted[1:], found[1:])


def _same(wanted: str, found: str) -> bool:
    numbers, others = NUMBER.findall(wanted), NUMBER.findall(found)
    if NUMBER.sub("#", wanted) != NUMBER.sub("#", found) or len(numbers) != len(others):
        return wanted == found
    return all(
        abs(_value(one) - _value(other)) <= 1.001 * _unit(one) for one, other in zip(numbers, others, strict=True)
    )


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _unit(text: str) -> float:
    """One in the last digit of a number as written; nothing for a whole number, which must be equal."""
    mantissa, _, exponent = text.replace(",", "").partition("e")
    if "." not in mantissa and not exponent:
        return 0.0
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))
