"""What changes along training is found where it was put, and wandering is not taken for change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from headspan.cli.main import app
from headspan.errors import HeadspanError
from headspan.sweeps import evolution
from headspan.sweeps.course import curves as curves_module
from headspan.sweeps.course.curves import Axis, Curve, distinct_curves, step_changes
from headspan.sweeps.course.documents import document, write_page
from headspan.sweeps.course.figures import figures
from headspan.sweeps.course.findings import findings
from headspan.sweeps.course.wiring import _times

STEPS = np.arange(0, 2400, 100)
WALKS = 39
HEADS = [f"L{layer}H{head}" for layer in range(2) for head in range(5)]


def leading(values: np.ndarray, *dims: str) -> tuple[tuple[str, ...], np.ndarray]:
    return ("model", "step", *dims), values[np.newaxis]


def facts(steps: np.ndarray) -> dict[str, object]:
    same = np.where(steps == 300, 200.0, np.where(steps == 200, 300.0, np.nan))
    text = np.array([f"sha256:{step if step != 300 else 200}" for step in steps])
    return {
        "source": leading(np.array([f"run/step-{step}" for step in steps])),
        "revision": leading(np.array([""] * len(steps))),
        "content_hash": leading(text),
        "identical_to": leading(same),
    }


def pairing_node(steps: np.ndarray) -> xr.Dataset:
    """Two layers of five heads; L0H1 to L1H2 stands out from step 1200 on, L0H0 to L1H0 at steps 100 to 500."""
    random = np.random.default_rng(3)
    shape = (len(steps), 2, 5, 2, 5)
    forward = np.zeros((2, 5, 2, 5), dtype=bool)
    forward[0, :, 1, :] = True
    kernel = np.where(forward, 2 + 0.05 * random.normal(size=shape), np.nan)
    q = np.where(forward, 0.8, np.nan) * np.ones(shape)
    rise = 1 / (1 + np.exp(-(steps - 1150) / 60.0))
    kernel[:, 0, 1, 1, 2] += 4 * rise
    q[:, 0, 1, 1, 2] = np.where(steps >= 1200, 0.001, 0.8)
    q[:, 0, 0, 1, 0] = np.where((steps >= 100) & (steps <= 500), 0.01, 0.8)
    backward = np.where(forward.transpose(2, 1, 0, 3), 2.0, np.nan) * np.ones(shape)
    backward[:, 1, 0, 0, 0] = 9.0  # above all that is possible, so that q-values alone decide

    def pairs(values: np.ndarray, *dims: str) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
        flat = values.reshape(*values.shape[:-4], 10, 10)
        return (*leading(flat, *dims, "src", "dst"), {"long_name": "projection kernel"})

    both = np.broadcast_to(q[:, None], (len(steps), 2, *shape[1:]))
    return xr.Dataset(
        {
            "projection_kernel": pairs(kernel),
            "projection_kernel_reverse": pairs(backward),
            "projection_kernel_q": pairs(both, "null"),
            "projection_kernel_null": pairs(np.full_like(both, 2.0), "null"),
            "projection_kernel_null_sd": pairs(np.full_like(both, 0.2), "null"),
        },
        coords={"model": ["run"], "step": steps, "src": HEADS, "dst": HEADS, "null": ["haar", "reverse"]},
    )


def store(steps: np.ndarray = STEPS) -> xr.DataTree:
    """As `open_store` gives it: a lens with one quantity that jumps at step 1150, and affinity."""
    random = np.random.default_rng(0)
    jump = 3 - 2 / (1 + np.exp(-(steps - 1150) / 80.0)) + 0.02 * random.normal(size=len(steps))
    coords = {"model": ["run"], "step": steps}
    measured = {
        "stable_rank": (*leading(np.stack([jump, jump], -1), "layer"), {"long_name": "stable rank"}),
        "stable_rank_null": leading(np.full(len(steps), 5.0)),
        "stable_rank_null_sd": leading(random.uniform(size=len(steps))),
        "stable_rank_z": leading(random.uniform(size=len(steps))),
        "leading_p": leading(random.uniform(size=len(steps))),
        "still": leading(np.ones(len(steps))),
    }
    roots = {lens: xr.Dataset(facts(steps), coords, {"model": "run", "lens": lens}) for lens in ("spectra", "affinity")}
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs={"store": "here"}),
            "run/spectra": roots["spectra"],
            "run/spectra/W_Q": xr.Dataset(measured, coords),
            "run/affinity": roots["affinity"],
            "run/affinity/OQ": pairing_node(steps),
        }
    )


@pytest.fixture(scope="module")
def course() -> xr.DataTree:
    return evolution(store(), walks=WALKS)


def test_a_planted_change_is_found_with_an_interval_that_holds_it(course: xr.DataTree) -> None:
    row = course["run/quantities"].to_dataset().sel(quantity="spectra W_Q stable_rank")
    assert float(row["low"]) - 50 <= 1150 <= float(row["high"]) + 50
    assert float(row["change"]) == pytest.approx(1150, abs=50)
    assert float(row["before"]) == pytest.approx(3, abs=0.1)
    assert float(row["after"]) == pytest.approx(1, abs=0.1)
    assert float(row["change_p"]) == pytest.approx(1 / (WALKS + 1))
    np.testing.assert_array_equal(row["value_null"], 5.0)


def test_nulls_p_values_and_constants_are_no_quantities(course: xr.DataTree) -> None:
    names = set(course["run/quantities"]["quantity"].values)
    assert names == {"spectra W_Q stable_rank", "affinity OQ projection_kernel"}


def test_a_random_walk_passes_for_a_change_as_often_as_stated() -> None:
    random = np.random.default_rng(11)
    walks = random.normal(size=(60, 20)).cumsum(1)
    p = step_changes(walks, np.arange(20), walks=WALKS)["change_p"].values
    share = np.mean(np.nan_to_num(p, nan=1.0) <= 0.05)
    assert share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_a_straight_line_is_no_change_however_steep() -> None:
    points = step_changes(np.arange(20.0)[None] ** np.array([[1.0], [0.5]]), np.arange(20), walks=WALKS)
    assert np.isnan(points["change"].values).all()


def test_seven_checkpoints_have_no_change_points() -> None:
    points = step_changes(np.array([[0.0, 0, 0, 0, 1, 1, 1]]), np.arange(7), walks=WALKS)
    assert np.isnan(points["change"].values).all()


def test_steps_kept_ever_more_rarely_are_taken_by_their_logarithm() -> None:
    assert Axis.of(np.array([0, 1, 2, 4, 8, 16, 512])).name == "log"
    assert Axis.of(STEPS).name == "linear"
    axis = Axis(logarithmic=True)
    assert axis.step(float(axis.places(np.array([37]))[0])) == pytest.approx(37)


def test_an_edge_appears_where_it_was_put_and_one_that_vanished_is_said_to(course: xr.DataTree) -> None:
    wiring = course["run/wiring"].to_dataset()
    assert list(zip(wiring["src"].values, wiring["dst"].values, strict=True)) == [("L0H1", "L1H2"), ("L0H0", "L1H0")]
    np.testing.assert_array_equal(wiring["appears"], [1200, np.nan])
    np.testing.assert_array_equal(wiring["vanishes"], [np.nan, 600])
    np.testing.assert_array_equal(
        wiring["n_edges"].sel(counted_pairing="OQ"), (STEPS >= 1200) + 0 + ((STEPS >= 100) & (STEPS <= 500))
    )
    assert float(wiring["change"][0]) == pytest.approx(1150, abs=60)
    assert wiring.attrs["null"] == "reverse"


@pytest.mark.parametrize(
    ("held", "times"),
    [
        ("1111", (0.0, np.nan)),
        ("0111", (1.0, np.nan)),
        ("1011", (2.0, np.nan)),
        ("0001", (np.nan, np.nan)),
        ("0110", (np.nan, 3.0)),
        ("1100", (np.nan, 2.0)),
    ],
)
def test_an_edge_must_hold_to_the_end_for_two_checkpoints(held: str, times: tuple[float, float]) -> None:
    np.testing.assert_array_equal(_times(np.array([mark == "1" for mark in held]), np.arange(4)), times)


def test_findings_name_change_edge_and_twins(course: xr.DataTree) -> None:
    found = findings(course)
    text = " ".join(finding.statement for finding in found)
    assert found[0].statement == "Steps 200 and 300 have identical weights."
    assert re.search(r"Stable rank \(W_Q\) falls from (3|2\.9)\S* to (1|0\.9)\S* around step 11", text)
    assert "L0H1 → L1H2 becomes a Q-composition edge at step 1200 and stays one" in text
    assert "1 appeared in between and stayed, 1 vanished" in text
    assert [finding.weight for finding in found] == sorted((finding.weight for finding in found), reverse=True)


def test_the_figures_draw_what_the_tables_say(course: xr.DataTree) -> None:
    drawn = figures(course)
    assert list(drawn) == ["When quantities change", "Wiring over training", "Spectra over training"]
    edge = next(trace for trace in drawn["Wiring over training"].data if trace.name == "L0H1 → L1H2, OQ")
    np.testing.assert_array_equal(edge.y, course["run/wiring"]["score"].values[0])
    changes = drawn["When quantities change"].data
    drawn_at = {name: x for trace in changes for name, x in zip(trace.y, trace.x, strict=True)}
    row = course["run/quantities"].to_dataset().sel(quantity="spectra W_Q stable_rank")
    assert drawn_at["Stable rank (W_Q)"] == float(row["change"])


def test_the_page_and_the_json_hold_the_findings(course: xr.DataTree, tmp_path: Path) -> None:
    found = findings(course)
    page = write_page(course, found, tmp_path / "evolution.html").read_text()
    assert "Steps 200 and 300 have identical weights." in page
    assert "run/step-1200" in page
    written = json.loads(json.dumps(document(course, found), allow_nan=False))
    assert written["schema"] == "headspan.evolution/2"
    model = written["models"]["run"]
    assert {row["quantity"] for row in model["change_points"]} >= {"spectra W_Q stable_rank"}
    assert model["edges"][0]["appears"] == 1200
    assert model["checkpoints"][3]["identical_to"] == 200


def test_one_step_evolves_nowhere() -> None:
    with pytest.raises(HeadspanError, match=r"nothing evolves here: no model in this store has two finished steps"):
        evolution(store(np.array([0])), walks=WALKS)


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["evolution", str(tmp_path / "none")])
    assert "there is no sweep in" in str(done.exception)


def test_a_table_and_its_mean_are_one_quantity(course: xr.DataTree) -> None:
    for model in course.children.values():
        rows = model["quantities"]["value"].values
        same = [(i, j) for i in range(len(rows)) for j in range(i) if np.allclose(rows[i], rows[j], 1e-9, 0, True)]
        across = model["quantities"]["lens"].values
        assert all(across[i] != across[j] for i, j in same)


def test_of_equal_curves_the_one_with_an_expected_value_stays() -> None:
    steps, values, none = np.arange(3), np.array([1.0, 2.0, 3.0]), np.full(3, np.nan)
    table = Curve("affinity", "kernel", "Kernel", steps, values, none)
    mean = Curve("affinity", "mean", "Mean", steps, values * (1 + 1e-12), np.ones(3))
    other = Curve("affinity", "other", "Other", steps, values + 1, none)
    assert [curve.name for curve in distinct_curves([table, mean, other])] == ["mean", "other"]


def test_a_mean_is_the_same_however_many_steps_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(size=(7, 3, 11))
    values[2], values[4, 1] = np.nan, np.nan
    variable = xr.DataArray(values.transpose(1, 0, 2), dims=("layer", "step", "head"))
    whole = curves_module.mean_over_heads(variable)
    np.testing.assert_allclose(whole, [np.nan if step == 2 else np.nanmean(values[step]) for step in range(7)])
    monkeypatch.setattr(curves_module, "AT_ONCE", 3 * values[0].nbytes)
    np.testing.assert_array_equal(curves_module.mean_over_heads(variable), whole)


def test_a_step_too_small_to_matter_is_counted_but_not_told_of(course: xr.DataTree) -> None:
    shrunk = course.copy(deep=True)
    node = next(iter(shrunk.children.values()))
    table = node["quantities"].to_dataset()
    node["quantities"] = xr.DataTree(table.assign(after=table["before"] * 1.001))
    before, after = (" ".join(one.statement for one in findings(each)) for each in (course, shrunk))
    assert " around step " in before
    assert " around step " not in after
    assert "change abruptly (p <= 0.05 against gradual curves)" in after
