"""The one progress bar: on a terminal or in a notebook, silent elsewhere; and durations in words."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from headspan import progress
from headspan.progress import Countdown, duration, progress_bar, show_nothing


def on_a_terminal(program: str) -> str:
    """What a program draws on a terminal, without colors."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, stderr=theirs, check=True, timeout=300)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    return shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (3.2, "3 s"), (89.4, "89 s"), (90, "2 min"), (300, "5 min"), (5399, "90 min"), (9000, "2.5 h")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_nothing_is_shown_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(3, "tasks") as step:
        step("one")
        step("two", done=2)
    assert step is show_nothing
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_names_amounts_and_time_left() -> None:
    shown = on_a_terminal(
        "import time\n"
        "from headspan.progress import progress_bar\n"
        "with progress_bar(3, 'seed 0') as step:\n"
        "    for name in ('one', '[two]', 'three'):\n"
        "        step(name); time.sleep(0.3)\n"
    )
    assert "seed 0 one" in shown
    assert "seed 0 [two]" in shown
    assert "0/3" in shown, "a step is complete when the next begins"
    assert re.search(r"2/3, \d s left", shown)
    assert "3/3" not in shown


def test_the_amount_done_can_be_said_outright() -> None:
    shown = on_a_terminal(
        "import time\n"
        "from headspan.progress import progress_bar\n"
        "with progress_bar(400) as step:\n"
        "    step('loss 0.1', done=120); time.sleep(0.3)\n"
    )
    assert "loss 0.1" in shown
    assert "120/400" in shown


def test_without_a_total_the_time_spent_is_shown() -> None:
    shown = on_a_terminal(
        "import time\n"
        "from headspan.progress import progress_bar\n"
        "with progress_bar() as step:\n"
        "    step('open'); time.sleep(0.3)\n"
    )
    assert "open" in shown
    assert "0 s" in shown
    assert "left" not in shown


def test_a_bar_that_is_not_to_be_shown_is_not() -> None:
    program = "from headspan.progress import progress_bar\nwith progress_bar(shown=False) as step: step('x')\n"
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", program + "import sys; sys.stderr.write('end')"], stderr=theirs, check=True)
    assert os.read(ours, 1000).decode() == "end"
    os.close(ours)
    os.close(theirs)


def test_a_notebook_sees_a_line_that_is_empty_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython import display

    shell, texts = type("ZMQInteractiveShell", (), {})(), []
    handle = SimpleNamespace(update=lambda data, raw: texts.append(data["text/plain"]))
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(display, "display", lambda data, **options: handle)
    monkeypatch.setattr(progress, "REDRAWN", -1.0)
    with progress_bar(4, "seed 0") as step:
        step("one")
        step("two", done=2)
    assert texts[1] == "seed 0 one 0/4"
    assert re.fullmatch(r"seed 0 two 2/4, \d+ s left", texts[2])
    assert texts[-1] == ""


def test_the_module_loads_no_drawing_library() -> None:
    program = "import sys, headspan.progress; assert 'rich' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_a_log_counts_steps_and_says_about_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 0.0, 20.0, 40.0))
    monkeypatch.setattr("headspan.progress.monotonic", lambda: next(clock))
    countdown = Countdown(3)
    lines = [countdown.line(name) for name in ("Ranks", "Affinity", "Spectra")]
    assert lines == ["1/3 Ranks ...", "2/3 Affinity ... (about 40 s left)", "3/3 Spectra ... (about 20 s left)"]
