"""Detected labels as head classes, for models whose heads nobody has labeled."""

from __future__ import annotations

from headspan.errors import HeadspanError
from headspan.heads.classes import HeadClasses
from headspan.lenses.detect.schema import DETECTORS, REPEATED
from headspan.result import Result


def labeled_heads(result: Result, prompt: str = REPEATED) -> dict[str, list[str]]:
    """For each detector that labels any, the labeled heads on one kind of prompt, strongest first."""
    found = {}
    for name in DETECTORS:
        here = result.dataset().sel(prompt=prompt)
        chosen = here[name].isel(head=here[f"{name}_label"].values.nonzero()[0])
        if chosen.size:
            found[name] = [str(head) for head in chosen["head"].values[(-chosen.values).argsort(kind="stable")]]
    return found


def detected_classes(result: Result) -> HeadClasses:
    """Class of every head that a detector labels on repeated random tokens; heads may be in several.

    Parameters
    ----------
    result
        Of `headspan.detect`.
    """
    order = {str(head): place for place, head in enumerate(result["head"].values)}
    classes = {name: tuple(sorted(heads, key=order.__getitem__)) for name, heads in labeled_heads(result).items()}
    above = result.attrs["threshold"]
    if not classes:
        raise HeadspanError(
            f"no head scores above {above} for any detector on repeated random tokens; there are no detected labels "
            "to use"
        )
    return HeadClasses(classes, f"detected on repeated random tokens, score above {above}")
