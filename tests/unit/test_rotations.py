"""Rotary settings out of a config."""

from __future__ import annotations

import pytest

from headspan.checkpoint import open_checkpoint
from headspan.checkpoint.families.logits import Stretch
from headspan.errors import CheckpointError
from tests.families.tiny_models import CASES


def test_fast_pairs_keep_their_frequency_and_slow_ones_are_slowed() -> None:
    stretch = Stretch(factor=8.0, low=1.0, high=4.0, context=8192.0)
    turn = 2 * 3.141592653589793 / 8192
    assert stretch.divisor(5 * turn) == 1.0
    assert stretch.divisor(0.5 * turn) == 8.0
    assert stretch.divisor(2.5 * turn) == pytest.approx(1 / (0.5 + 0.5 / 8))


@pytest.mark.parametrize("settings", [{"high_freq_factor": 1.0}, {"factor": 0.5}])
def test_a_stretch_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    case = next(case for case in CASES if case.name == "llama-with-a-stretched-context")
    model = case.model()
    # A dictionary of its own: the case's settings are shared by all tests.
    model.config.rope_parameters = {**model.config.rope_parameters, **settings}
    with pytest.raises(CheckpointError, match="needs factor >= 1 and high_freq_factor above low_freq_factor"):
        open_checkpoint(model)
