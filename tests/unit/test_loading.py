"""What is imported is not walked through by the garbage collector meanwhile; everything else is as before."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from headspan.loading import uncollected


def test_nothing_is_collected_within_and_collection_goes_on_after() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_failed_import_leaves_collection_on() -> None:
    with pytest.raises(ImportError, match="absent"), uncollected():
        raise ImportError("absent")
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_first_call_walks_through_its_modules_at_most_once() -> None:
    script = """
import gc
whole = lambda: gc.get_stats()[2]["collections"]
import headspan
before = whole()
headspan.ranks("demo")
assert whole() - before <= 1, whole() - before
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_files_that_were_left_open_are_still_written(tmp_path) -> None:
    script = f"""
import headspan
file = open({str(tmp_path / "left.txt")!r}, "w")
file.write("whole")
class Cycle: pass
cycle = Cycle(); cycle.itself = cycle; cycle.file = file
headspan.ranks("demo")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
    assert (tmp_path / "left.txt").read_text() == "whole"
