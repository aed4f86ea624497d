"""Documents of every kind, damaged or made up, and options of every command, end in a result or in one line.

Each case has a deadline, and all together little memory.
`python -m tests.robustness.test_fuzz_documents N` runs N cases of every kind.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headspan
from headspan import input_files
from headspan.checkpoint.hub.cache import parse_listing
from headspan.cli.main import app
from headspan.errors import LONGEST, HeadspanError
from headspan.heads.classes import head_classes
from headspan.lab.recipe import Recipe
from headspan.lab.settings import parse_settings
from headspan.lab.source import text_tokens
from headspan.lenses.shots import read_pairs
from headspan.runtime.boundary import check_tokenizer
from headspan.seal import LENGTH
from headspan.storage import read_archive, read_netcdf
from headspan.sweeps.checkpoints import Settings, kept_description
from headspan.sweeps.specification import parse_series
from headspan.sweeps.store import Store
from tests.robustness.test_fuzz_readers import JSON, MOST_MEMORY, damaged, quick

FEW, MANY = 25, 1_500
SHAPE = {"family": "gpt2", "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_model": 8}
ODD = ("~nosuchuser/x", "\0", "a" * 5000, "-1")
ODDER = ("/dev/zero", "/proc/self/mem", "{}", "nan", "9" * 5000, "\ud800", "..", "")
STRANGE = st.text(max_size=30) | st.sampled_from([*ODD, *ODDER])


@cache
def workplace() -> Path:
    return Path(tempfile.mkdtemp(prefix="headspan-fuzz-"))


def file_of(name: str, content: bytes) -> Path:
    path = workplace() / name
    path.write_bytes(content)
    return path


def quietly(action: Callable[[], Any]) -> None:
    """Only the errors of headspan may come out, each in one line."""
    said = ""
    try:
        action()
    except HeadspanError as refusal:
        said = str(refusal)
    assert "\n" not in said
    assert len(said) <= LONGEST


def as_json(intact: Any) -> st.SearchStrategy[bytes]:
    """A JSON document with a field replaced by anything, or some bytes damaged, or anything at all."""
    whole = json.dumps(intact).encode()
    names = st.sampled_from(sorted(intact)) if isinstance(intact, dict) else st.nothing()
    replaced = st.tuples(names, JSON).map(lambda pair: json.dumps({**intact, pair[0]: pair[1]}).encode())
    return replaced | damaged(whole) | JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)


def manifest(content: bytes) -> None:
    folder = workplace() / "store"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(content)

    def read() -> None:
        store = Store.found(folder)
        store.series(), store.settings()

    quietly(read)


def description(content: bytes) -> None:
    from headspan.sweeps.checkpoints import _place

    folder = workplace() / "descriptions"
    folder.mkdir(exist_ok=True)
    _place("demo", Settings(), folder).write_bytes(content)
    quietly(lambda: kept_description("demo", Settings(), folder))


MANIFEST = {
    "schema": "headspan.sweep/2",
    "settings": {"fold": "none", "stack": None},
    "lenses": ["ranks"],
    "series": {"a": {"1": "demo"}},
    "failures": [],
}
DESCRIPTION = {
    "schema": "headspan.sweep-checkpoint/2",
    "source": "demo",
    "content_hash": "x",
    "revision": "",
    "fingerprint": "",
    "shape": {"family": "gpt2", "n_layers": 2},
    "skip_reasons": {"ranks": None},
    "blocks": {"ranks": {"all": {}}},
    "warnings": [],
}
LISTING = {"sha": "a" * 40, "siblings": [{"rfilename": "x", "size": 3, "blobId": "b" * 40}]}
TOKENIZER = {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}, "model": {"vocab": {}}}
RECIPE = json.loads(json.dumps({**asdict(Recipe()), "betas": [0.9, 0.98]}))
LABELS = b"classes:\n  a: [L0H1, 1.1]\nmodel: {n_layers: 2}\nsource: x\n"
LIST = b"a: [demo, b@step1]\nb:\n  3: demo\n"
PAIRS = b"word;clue\ncat;animal\ndog;animal\n"
SETTING = st.tuples(st.sampled_from(["layers", "seed", "norm", "text", "x", ""]), STRANGE).map("=".join)


def _object(content: bytes) -> dict[str, Any]:
    return input_files.json_object(content, "x")


Kind = tuple[Callable[[Any], None], st.SearchStrategy[Any]]
KINDS: dict[str, Kind] = {
    "manifest": (manifest, as_json(MANIFEST)),
    "description": (description, as_json(DESCRIPTION)),
    "recipe": (lambda content: quietly(lambda: Recipe.of(_object(content))), as_json(RECIPE)),
    "listing": (lambda content: quietly(lambda: parse_listing(_object(content), "host")), as_json(LISTING)),
    "tokenizer": (lambda c: quietly(lambda: check_tokenizer(file_of("tokenizer.json", c))), as_json(TOKENIZER)),
    "labels": (lambda c: quietly(lambda: head_classes(file_of("labels.yaml", c), SHAPE)), damaged(LABELS)),
    "list of checkpoints": (lambda c: quietly(lambda: parse_series(file_of("list.yaml", c))), damaged(LIST)),
    "pairs": (lambda c: quietly(lambda: read_pairs(file_of("pairs.csv", c))), damaged(PAIRS)),
    "text": (lambda c: quietly(lambda: text_tokens(file_of("text.txt", c))), st.binary(max_size=60)),
    "archive": (lambda c: quietly(lambda: read_archive(file_of("x.npz", c))), st.deferred(lambda: damaged(archive()))),
    "netCDF": (lambda c: quietly(lambda: read_netcdf(file_of("x.nc", c))), st.deferred(lambda: damaged_netcdf())),
    "settings": (lambda pair: quietly(lambda: parse_settings([pair], {"layers": "int", "seed": "int"})), SETTING),
    "names of models": (lambda text: quietly(lambda: parse_series([text])), STRANGE),
}


@cache
def archive() -> bytes:
    from headspan.frames import nodes_of
    from headspan.lenses.catalog import lens
    from headspan.storage import write_archive

    path = workplace() / "intact.npz"
    write_archive(path, nodes_of(lens("ranks").function("demo").data), attrs={})
    return path.read_bytes()


@cache
def netcdf() -> bytes:
    return headspan.ranks("demo").save(workplace() / "intact.nc").read_bytes()


def damaged_netcdf() -> st.SearchStrategy[bytes]:
    """A file with other bytes before its checksum, or one that ends too early.

    Damage in a file without a checksum meets HDF5, which may take gigabytes or minutes: docs/security.md says so.
    """
    content, line = netcdf()[:-LENGTH], netcdf()[-LENGTH:]
    other = damaged(content).map(lambda found: found + line)
    return other | st.integers(0, len(content)).map(lambda end: content[:end])


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command on a model that is not there, with options that it has and values that nobody expects."""
    name, command = draw(st.sampled_from(sorted(commands().items())))
    found = [name, draw(STRANGE.filter(lambda text: not text.startswith("-")))]
    options = [each for each in command.params if each.opts[0].startswith("-")]
    for option in draw(st.lists(st.sampled_from(options), max_size=3)):
        found.append(draw(st.sampled_from(option.opts)))
        if not getattr(option, "is_flag", False):
            found.append(draw(STRANGE))
    return found


def command(arguments: list[str]) -> None:
    """Run a command line as `main` does; only exits and errors on purpose may come out of it."""
    if "demo" in arguments:
        return  # this would work for minutes
    try:
        quietly(lambda: app(arguments, standalone_mode=False))
    except (typer.Exit, SystemExit):
        pass
    except Exception as problem:
        if not any("ClickException" in kind.__name__ for kind in type(problem).__mro__):
            raise


def run(check: Callable[[Any], None], strategy: st.SearchStrategy[Any], cases: int) -> None:
    """So many cases, each quick, all together in little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings(max_examples=cases, database=None, suppress_health_check=list(HealthCheck))(
        given(strategy)(lambda value: quick(check, value))
    )()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_MEMORY


@pytest.mark.parametrize("name", KINDS)
def test_a_document_of_any_kind_ends_in_a_value_or_in_one_line(name: str) -> None:
    run(*KINDS[name], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_documents_of_every_kind_end_in_a_value_or_in_one_line(name: str) -> None:
    run(*KINDS[name], MANY)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_options_of_every_command_end_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: object) -> None:
    monkeypatch.chdir(tmp_path)
    run(command, command_lines(), 300)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_of_every_command_ends_in_one_line_whatever_its_value(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: object
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [each for each in commands()[name].params if each.opts[0].startswith("-")]
    for option in options:
        for value in [None] if getattr(option, "is_flag", False) else ODD:
            given_value = [] if value is None else [value]
            quick(command, [name, "./nothing-here", option.opts[0], *given_value])
    assert options


if __name__ == "__main__":
    for each in KINDS.values():
        run(*each, int(sys.argv[1]))
    run(command, command_lines(), int(sys.argv[1]) // 10)
