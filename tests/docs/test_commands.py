"""Commands on the pages: all of them are understood, and those of the blocks run.

1. Every `headspan ...` on a page, in a block or in a sentence, goes through the command line's own parser.
2. Every option that a sentence names belongs to some command.
3. Every command of a block runs (slow suite), and every complete one of a sentence. The demo model stands for MODEL
   (stories260K where a text is read), its heads for those of larger models, and small files for those of the reader.
   Those of `LONG` run with small settings. Those that need another model are in `test_commands_with_models.py`, and
   `ELSEWHERE` has the rest: no command of a block is in none of these.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import headspan.demo
from headspan.cli.main import app
from tests.docs.pages import DOCS, FENCE
from tests.docs.test_commands_with_models import COVERED

PAGES = [DOCS.parent / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]
PAGES = [path for path in PAGES if path.name != "renamed.md" and "decisions" not in path.parts]
GROUP = typer.main.get_command(app)
USAGE_ERROR = typer.BadParameter.__mro__[1]  # typer brings its own click, and gives this class no name

FOREIGN = {"--nthreads", "--no-deps", "--to", "--format", "--extra-index-url", "--parallel", "--leave-one-out"}
"""Options of other programs."""
STAND_INS = {
    "MODEL": "demo",
    "GPT2": "demo",
    "BASE": "demo",
    "ORIGINAL": "demo",
    "A": "demo",
    "TUNED": "run/step-1000",
    "QUANTIZED": "run/step-1000",
    "B": "run/step-1000",
    "L4H11": "L0H3",
    "L5H1": "L1H6",
    "L4H7": "L1H3",
    "L28H6": "L1H6",
    "L3N1024": "L1N17",
    "L1H2": "L0H2",
    "org/name/model-Q4_K_M.gguf": "demo",
    "run/model": "demo",
    "DIR": "figures",
    "FILE": "text.txt",
}
LONG = ("report", "train", "sweep", "evolution", "validate", "--run", "--used")
"""Commands that take minutes as they stand: they run page by page, in the page's order, with small settings."""
ELSEWHERE = {
    "echo": "tests/docs/test_developing.py installs the lens that has this command",
}
"""Commands that are run by no test of commands, each with the test that runs them."""
SKIPPED_IN_SENTENCES = {
    "reproduce": "tests/docs/test_found.py finds every figure named; each takes minutes, and `make found` draws all",
    "train": "tests/unit/lab/test_studies.py and test_new_studies.py ask every study; blocks run its other options",
    "claims": "tests/unit/ledger/test_ledger.py checks every claim; that of a single one runs here",
    "validate": "it runs in a block",
    "pair": "it runs in a block",
    "synthetic:mistral-7b": "tests/robustness/test_memory_budget.py; the benchmarks measure that size",
    "SmolLM2-135M-Instruct.Q4_1.gguf": "tests/golden/test_smollm2_gguf.py opens it; blocks run other commands on it",
}
"""Commands of sentences that do not run here, by their name or an argument, with what does."""


def in_blocks(page: str) -> list[str]:
    """Command lines of the page's console blocks, without prompts, comments and pipes."""
    lines = [line for fence in FENCE.finditer(page) if fence[2] == "console" for line in fence[3].splitlines()]
    found = [line.removeprefix("$ ") for line in lines]
    return [re.split(r"\s+#\s| \| ", line)[0].strip() for line in found if line.startswith("headspan ")]


def in_sentences(page: str) -> list[str]:
    """The same in the page's inline code; `;` divides two."""
    inline = re.findall(r"(?<!`)`(headspan [^`]+)`(?!`)", FENCE.sub("", page))
    return [part.strip() for one in inline for part in one.replace("\n", " ").split(";")]


def refusal(line: str) -> str:
    """What the parser says against a command; empty where it understands it. An argument may be missing in prose."""
    name, *arguments = shlex.split(line)[1:]
    known = GROUP.commands.get(name)
    if known is None:
        return "" if name.startswith("--") or name == "echo" else f"there is no command {name}"
    if not any(not one.startswith("-") for one in arguments):
        arguments = ["--help"] if not arguments else ["MODEL", *arguments]
    try:
        known.make_context(name, arguments)
    except typer.Exit:
        return ""
    except USAGE_ERROR as problem:
        message: str = problem.format_message()
        return "" if message.startswith("Missing argument") else message
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS.parent)))
def test_every_command_on_a_page_is_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in [*in_blocks(text), *in_sentences(text)]:
        assert refusal(line) == "", line


def test_the_parser_refuses_what_is_wrong() -> None:
    assert "no command" in refusal("headspan clairvoyance demo")
    assert "--pairs" in refusal("headspan affinity demo --pairs OK")


def test_every_option_that_a_sentence_names_exists() -> None:
    known = {name for command in GROUP.commands.values() for one in command.params for name in one.opts}
    known |= {name for command in GROUP.commands.values() for one in command.params for name in one.secondary_opts}
    for page in PAGES:
        inline = re.findall(r"(?<!`)`(--[a-z][\w-]*)[^`]*`(?!`)", FENCE.sub("", page.read_text(encoding="utf-8")))
        assert set(inline) - known - FOREIGN - {"--help", "--debug", "--version"} == set(), page.name


def at_hand(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands of a page's blocks that are run here."""
    for line in in_blocks(page.read_text(encoding="utf-8")):
        name, *arguments = shlex.split(line)[1:]
        if line not in COVERED and name not in ELSEWHERE:
            yield name, arguments


def complete(name: str, arguments: list[str]) -> bool:
    """Whether the command has all that it needs."""
    try:
        return name in GROUP.commands and GROUP.commands[name].make_context(name, list(arguments)) is not None
    except USAGE_ERROR:
        return False


def in_passing(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Complete commands of a page's sentences that are run here: those that lack an argument are names of commands."""
    for line in in_sentences(page.read_text(encoding="utf-8")):
        name, *arguments = shlex.split(line)[1:]
        single = name == "claims" and "--id" in arguments
        skipped = not single and {name, *arguments} & {*SKIPPED_IN_SENTENCES, *LONG}
        if not skipped and line not in COVERED and complete(name, arguments):
            yield name, arguments


def runnable() -> Iterator[str]:
    """Commands that are run as they are, each once, with what stands in."""
    seen = set()
    for page in PAGES:
        for name, arguments in (*at_hand(page), *in_passing(page)):
            speaks = name in ("attention", "gaussian", "mixing") or {"--maps", "W_pos"} & set(arguments)
            given = [one if speaks and one == "MODEL" else _stand_in(one) for one in arguments]
            command = shlex.join([name, *given])
            if not {name, *arguments} & set(LONG) and command not in seen:
                seen.add(command)
                yield command


def _stand_in(argument: str) -> str:
    words = re.split(r"([:,.\-])", argument) if re.match(r"L\d", argument) else [argument]
    return "".join(STAND_INS.get(word, word) for word in words)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    demo = Path(headspan.demo.__file__).parent / "checkpoint"
    for step in (1000, 2000):
        shutil.copytree(demo, folder / "run" / f"step-{step}")
    for name in ("text.txt", "story.txt", "book.txt"):
        words = 40 if name == "text.txt" else 4000
        (folder / name).write_text(" ".join(f"The dog saw {word} in the park." for word in range(words // 8)))
    for name in ("animals.csv", "tools.csv", "shots.csv"):
        (folder / name).write_text("word;clue\nsun;hot\ntree;green\nriver;wet\ndog;loud\ncat;soft\nstone;hard\n")
    pairs = "\n".join(f"next,#{number},#{number + 1}" for number in range(2, 60, 2))
    (folder / "pairs.csv").write_text(f"relation,left,right\n{pairs}\n")
    return folder


def test_every_command_of_a_block_runs_in_some_test() -> None:
    lines = {line for page in PAGES for line in in_blocks(page.read_text(encoding="utf-8"))}
    assert lines >= COVERED, "a line that is run with a model of its own is on no page any more"
    assert {line for line in lines if shlex.split(line)[1] in ELSEWHERE} == {
        "headspan echo demo --top 5",
        "headspan echo demo -o echo.csv",
    }
    named = re.findall(r"tests/\S+\.py", " ".join([*ELSEWHERE.values(), *SKIPPED_IN_SENTENCES.values()]))
    assert all((DOCS.parent / path).is_file() for path in named), named


@pytest.mark.slow
@pytest.mark.parametrize("command", list(runnable()))
def test_a_command_runs(
    command: str, reader: Path, stories: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(reader)
    model = request.getfixturevalue("minilm") if "W_pos" in command else stories
    arguments = [str(model) if one == "MODEL" else one for one in shlex.split(command)]
    if "--few-shot" in arguments:
        arguments = ["shots.csv" if one == "pairs.csv" else one for one in arguments]
    if "-o" in arguments:  # another command may have written it
        Path(arguments[arguments.index("-o") + 1]).unlink(missing_ok=True)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output


def shortened(page: Path) -> list[str]:
    """The long commands of a page in order: few steps, two seeds, two workers, a few sequences."""
    found = []
    for name, arguments in at_hand(page):
        if not {name, *arguments} & set(LONG):
            continue
        given = [_stand_in(one) for one in arguments]
        given = [re.sub(r"^0\.\.\d$", "0..1", one) for one in given]
        if name == "train":
            given = [one for one in given if one not in ("--steps", "600", "300")] + ["--steps", "40"]
            given += [] if "--preset" in given or given[0] == "text" else ["--preset", "smoke"]
        found.append(shlex.join([name, *given]))
    return list(dict.fromkeys(found))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if shortened(page)], ids=lambda path: path.stem)
def test_the_long_commands_of_a_page_run_with_small_settings(
    page: Path, reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(reader, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    Path("models.yaml").write_text("one:\n  1000: run/step-1000\n  2000: run/step-2000\n")
    for command in shortened(page):
        arguments = shlex.split(command)
        if arguments[0] == "train":  # with other settings than the last one into the same folder
            shutil.rmtree(arguments[arguments.index("-o") + 1], ignore_errors=True)
        if arguments[:2] == ["evolution", "run/headspan"]:
            CliRunner().invoke(app, ["sweep", "run", "-o", "run/headspan", "--lenses", "spectra"])
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{command}\n{done.output[-600:]}"
