"""What can be asked of the mixing lens, checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headspan.errors import ArgumentError

FEWEST_SEQUENCES, FEWEST_TOKENS, FEWEST_DRAWS = 2, 4, 2
MOST_TEMPERATURES = 16


def checked_temperatures(
    sequences: int, length: int, inverse_temperatures: str | Sequence[float], draws: int
) -> tuple[float, ...]:
    """The inverse temperatures as distinct numbers in order; anything out of range is refused by name."""
    for name, value, fewest in (
        ("sequences", sequences, FEWEST_SEQUENCES),
        ("length", length, FEWEST_TOKENS),
        ("draws", draws, FEWEST_DRAWS),
    ):
        if value < fewest:
            raise ArgumentError(f"{name}={value} is too small; it is at least {fewest}")
    given = inverse_temperatures
    try:
        numbers = [float(part) for part in (given.split(",") if isinstance(given, str) else given)]
    except (TypeError, ValueError) as problem:
        raise ArgumentError(f"inverse_temperatures={given!r:.60} are not numbers; write them like 0.1,1,2") from problem
    if not 1 <= len(numbers) <= MOST_TEMPERATURES or not all(math.isfinite(each) and each >= 0 for each in numbers):
        raise ArgumentError(
            f"inverse_temperatures={given!r:.60} need 1 to {MOST_TEMPERATURES} numbers of at least 0, such as 0.1,1,2"
        )
    return tuple(sorted(set(numbers)))
