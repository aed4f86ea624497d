"""The one door for documents: what it refuses, in one line, and what it lets through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headspan.errors import HeadspanError, StoreError
from headspan.input_files import (
    DEEPEST,
    checked,
    csv_rows,
    file_bytes,
    file_text,
    json_value,
    read_json,
    user_path,
    yaml_value,
)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(HeadspanError, match=f"is {kind}, not a regular file"):
            file_text(path)
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(HeadspanError, match="is a device"):
        file_bytes(tmp_path / "link", 10)


def test_a_file_has_a_largest_size_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert file_bytes(tmp_path / "a", 11) == b"x" * 11
    with pytest.raises(StoreError, match="larger than 10 bytes"):
        file_bytes(tmp_path / "a", 10, StoreError)
    with pytest.raises(HeadspanError, match="larger than 10 bytes"):  # /proc says that its files are empty
        file_bytes(Path("/proc/self/status"), 10)


@pytest.mark.parametrize(("name", "reason"), [("~nosuchuser/x", "home"), ("a\0b", "null"), ("a\ud800", "surrogate")])
def test_what_can_be_nobodys_path_is_refused(name: str, reason: str) -> None:
    with pytest.raises(HeadspanError, match=reason):
        file_text(user_path(name))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, f"nested more than {DEEPEST} deep"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, f"nested more than {DEEPEST} deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer of 5,000 digits"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\udfff": 1}', "half of a surrogate pair"),
        (b'"\xed\xa0\x80"', "not in UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not in UTF-8"),
        (b'"' + b'\\"' * 100_000, "Unterminated string"),
        (b'{"a": 1, "a": 2}', "a name occurs twice"),
        (b"", "Expecting value"),
    ],
)
def test_json_that_is_no_document_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(HeadspanError, match=reason) as refusal:
        json_value(content, "x.json", unique=True)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_json_that_looks_odd_is_read() -> None:
    assert json_value(b'\xef\xbb\xbf{"a": "\\ud83d\\ude42 [[[[", "b": [[1e3]]}', "x") == {"a": "🙂 [[[[", "b": [[1e3]]}
    brackets = ("[" * DEEPEST + "]" * DEEPEST).encode()
    assert json_value(brackets, "x")
    assert json_value(b'["' + b"[" * 1000 + b'"]' + b" " * 10, "x") == ["[" * 1000]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 2001-01-01", {"a": "2001-01-01"}),
        ("no: yes", {"no": "yes"}),
        ("a: 1:30", {"a": "1:30"}),
        ("4: [4.7, 1e-3, -3, ~, true]", {4: [4.7, "1e-3", -3, None, True]}),
        ("", None),
    ],
)
def test_yaml_means_what_it_seems_to(text: str, found: Any) -> None:
    assert yaml_value(text, "x.yaml") == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x 1\nb: *x", "refers to an anchor"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("[" * 1000, "nested more than"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ("a: " + "9" * 5000, "an integer of 5,000 digits"),
        ("a: 1\na: 2", "a name occurs twice"),
        ("? [1]\n: 2", "unhashable"),
        ("a: \x00", "special characters"),
    ],
)
def test_yaml_beyond_its_plain_core_is_refused(text: str, reason: str) -> None:
    with pytest.raises(HeadspanError, match=reason) as refusal:
        yaml_value(text, "x.yaml")
    assert "\n" not in str(refusal.value)


def test_a_table_is_read_by_rows_and_a_cell_without_end_is_refused() -> None:
    assert csv_rows("a;b\n1;2", "x.csv", ";") == [["a", "b"], ["1", "2"]]
    with pytest.raises(HeadspanError, match="not a table separated by semicolons"):
        csv_rows("a;" + "b" * 200_000, "x.csv", ";")


@dataclass
class Shelf:
    name: str
    rows: dict[str, list[int]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"name": 1, "rows": {}}, r"shelf\.json: 'name' is wrong: expected 'str', got 'int'"),
        ({"name": "a"}, r"shelf\.json: it lacks the field 'rows'"),
        ({"name": "a", "rows": {"b": [1, "2"]}}, r"'rows\[\.\.\.\]\[1\]' is wrong: expected 'int', got 'str'"),
        ([], r"shelf\.json: expected 'object', got 'array'"),
    ],
)
def test_the_wrong_field_is_named(value: Any, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        checked(value, Shelf, "shelf.json", StoreError)
    assert checked({"name": "a", "rows": {"b": [1]}, "more": 1}, Shelf, "x") == Shelf("a", {"b": [1]})


def test_every_document_comes_through_the_door() -> None:
    """No other module parses JSON, YAML or CSV from a file, or reads one whole, but for files of the package itself."""
    import re

    import headspan

    root = Path(headspan.__file__).parent
    parsing = re.compile(
        r"json\.loads?\(|yaml\.(safe_)?load\(|csv\.reader\(|\.read_text\(|\.read_bytes\(|\.expanduser\("
    )
    allowed = {
        "input_files.py",
        "checkpoint/config.py",  # defaults, which are part of the package
        "heads/classes.py",  # published labels, which are part of the package
        "heads/memory.py",  # /proc/self/statm
        "checkpoint/formats/packed/store.py",  # bytes of a store of tensors, not of a document
        "lenses/vocabulary/relations.py",  # word lists that are part of the package
    }
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if parsing.search(path.read_text("utf-8"))}
    outside = {name for name in found if not name.startswith("explorer/")}
    assert outside <= allowed


def test_read_json_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(StoreError, match=r"x\.json holds a JSON list, not an object"):
        read_json(tmp_path / "x.json", StoreError)
