"""The one door for documents: every JSON, YAML, CSV, text, tokenizer or state file that headspan reads comes in here.

1. Only a regular file is read: a pipe would be waited for, a device would never end. It is opened once and looked at
   through the open file, so that it cannot be exchanged in between.
2. Each kind of document has a size that no real one reaches.
3. Text is UTF-8. Half of a surrogate pair is no text, and integers of hundreds of digits are no numbers.
4. Nesting is counted before a parser that recurses sees the document.
5. YAML is its plain core: maps, lists, text, whole numbers, numbers with a point, true, false and null. Dates and `yes`
   are text; anchors and tags are refused.
6. `checked` holds what was read against a type (a dataclass, or any type of Python's) and names the field that is
   wrong. msgspec does that: decision 0080.

Whoever calls says which error is raised, so that a broken config is a `CheckpointError` and a broken store a
`StoreError`.
"""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from headspan.errors import HeadspanError

T = TypeVar("T")
Error = type[HeadspanError]

LARGEST_TEXT = 16 * 2**20
"""Bytes of a text, such as a prompt or a table of pairs."""
LARGEST_JSON = 64 * 2**20
"""Bytes of a JSON document: a config, an index, a manifest."""
LARGEST_YAML = 2**20
"""Bytes of a YAML document: some ten thousand names."""
LARGEST_TOKENIZER = 256 * 2**20
"""Bytes of one file of a tokenizer; large vocabularies take 40 MB."""
LARGEST_STATE = 64 * 2**30
"""Bytes of a kept state or result, which is headspan's own."""
DEEPEST = 64
"""Brackets within brackets; a config has five."""
MOST_DIGITS = 40
"""Digits of an integer; 64 bits have 20."""

_STRING = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def user_path(text: str | os.PathLike[str], error: Error = HeadspanError) -> Path:
    """The path that a user named, with `~` for a home folder; refused where it can be nobody's path."""
    try:
        path = Path(text).expanduser()
        os.fsencode(path)
    except (RuntimeError, ValueError) as problem:
        raise error(f"'{_short(text)}' is no path: {_reason(problem)}") from problem
    if "\0" in str(path):
        raise error(f"'{_short(text)}' is no path: it holds a null character")
    return path


def check_regular(path: Path, most: int, error: Error = HeadspanError) -> int:
    """The size of a file that another library will read; refused unless it is a regular one of at most that size."""
    handle, size = _opened(path, most, error)
    os.close(handle)
    return size


def file_bytes(path: Path, most: int, error: Error = HeadspanError) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    handle, size = _opened(path, most, error)
    try:
        with os.fdopen(handle, "rb") as file:
            content = file.read(size + 1)
            if len(content) > size:  # files of /proc say that they are empty, and a file may grow
                content += file.read(min(most, LARGEST_TEXT))
    except OSError as problem:
        raise error(f"'{path}' cannot be read: {_reason(problem)}") from problem
    if len(content) > max(size, min(most, LARGEST_TEXT)):
        raise error(f"'{path}' is larger than {most:,} bytes, more than any real one")
    return content


def _opened(path: Path, most: int, error: Error) -> tuple[int, int]:
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        raise error(f"'{_short(path)}' cannot be read: {_reason(problem)}") from problem
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_size <= most:
        return handle, found.st_size
    os.close(handle)
    if stat.S_ISREG(found.st_mode):
        raise error(f"'{path}' is larger than {most:,} bytes, more than any real one")
    raise error(f"'{path}' is {_kind(found.st_mode)}, not a regular file; save its content in a file and name that")


def _kind(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}
    return next((name for test, name in kinds.items() if test(mode)), "something else")


def decoded(content: bytes, place: object, error: Error = HeadspanError) -> str:
    """UTF-8 text, without a byte order mark; surrogates, which are no text, are refused by the decoder."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"'{place}' is not text in UTF-8 ({problem.reason}); save it in that encoding") from problem


def file_text(path: Path, most: int = LARGEST_TEXT, error: Error = HeadspanError) -> str:
    """The text of a file."""
    return decoded(file_bytes(path, most, error), path, error)


def csv_rows(text: str, place: object, delimiter: str = ",", error: Error = HeadspanError) -> list[list[str]]:
    """The cells of a table, row by row."""
    try:
        return list(csv.reader(text.splitlines(), delimiter=delimiter))
    except csv.Error as problem:
        named = {",": "commas", ";": "semicolons", "\t": "tabs"}.get(delimiter, repr(delimiter))
        raise error(f"'{place}' is not a table separated by {named}: {problem}") from problem


def json_value(content: bytes, place: object, error: Error = HeadspanError, unique: bool = False) -> Any:
    """What a JSON document spells; with `unique`, a name that occurs twice in one object is refused."""
    try:
        text = content.decode("utf-8-sig")
        _check_nesting(text)
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_unique if unique else None)
        _check_text(value, "\\u" in text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{place} cannot be read as JSON: {_reason(problem)}") from problem
    return value


def json_object(content: bytes, place: object, error: Error = HeadspanError) -> dict[str, Any]:
    """The JSON object that `content` spells."""
    value = json_value(content, place, error)
    if not isinstance(value, dict):
        raise error(f"{place} holds a JSON {type(value).__name__}, not an object")
    return value


def yaml_value(text: str, place: object, error: Error = HeadspanError) -> Any:
    """What a YAML document spells; dates are text."""
    import yaml

    try:
        value = yaml.load(text, Loader=_yaml_loader())
        _check_text(value, "\\" in text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        said = getattr(problem, "problem", None) or _reason(problem)
        raise error(f"'{place}' is not valid YAML{where}: {said}") from problem
    return value


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader with the plain core of YAML, without anchors and tags, and with a limit to nesting."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}  # type: ignore[misc]
        yaml_constructors: ClassVar[dict[Any, Any]] = {
            tag: make
            for tag, make in yaml.SafeLoader.yaml_constructors.items()
            if tag is None or tag.rpartition(":")[2] in {"null", "bool", "float", "str", "seq", "map"}
        }
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it refers to an anchor; write the value out")
            self.depth += 1
            if self.depth > DEEPEST:
                raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise yaml.YAMLError("a name occurs twice in one map")
            return found

    for name, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(rf"(?:{pattern})\Z"), first)

    def integer(loader: Any, node: Any) -> int:
        return _integer(loader.construct_scalar(node))

    Loader.add_constructor("tag:yaml.org,2002:int", integer)
    return Loader


def checked(value: Any, kind: type[T], place: object, error: Error = HeadspanError) -> T:
    """`value` as a `kind`; the message names the first field that is missing or of another type."""
    import msgspec

    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, RecursionError) as problem:
        said, _, where = str(problem).partition(" - at `$")
        field = f"'{where.rstrip('`').lstrip('.')}' is wrong: " if where.strip("`") else ""
        said = said.replace("Object missing required field", "it lacks the field").replace("`", "'")
        raise error(f"{place}: {field}{said[:1].lower()}{said[1:]}") from problem


def read_json(path: Path, error: Error = HeadspanError, most: int = LARGEST_JSON) -> dict[str, Any]:
    """The JSON object in a file."""
    return json_object(file_bytes(path, most, error), path.name, error)


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"it holds an integer of {len(text):,} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _check_nesting(text: str) -> None:
    """Count brackets outside of strings; only a document that has more of them than are allowed is looked at."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} deep")


def _check_text(value: Any, escaped: bool) -> None:
    """Refuse half surrogate pairs, which only an escape can bring in."""
    if not escaped:
        return
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no text") from None


def _reason(problem: BaseException) -> str:
    """Why, in a few words and without the content that it came from."""
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    if isinstance(problem, UnicodeEncodeError):
        return "it holds half of a surrogate pair, which is no text"
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not in UTF-8 ({problem.reason})"
    return _short(getattr(problem, "strerror", None) or problem)


def _short(text: object, most: int = 200) -> str:
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."
