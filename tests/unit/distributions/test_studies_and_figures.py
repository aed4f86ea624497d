"""Studies and their figures: as data, against the functions they come from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headspan.distributions import entropy_study, expected_entropy, path_study, random_layers, token_course
from headspan.errors import ArgumentError
from headspan.ledger.figures import divergence_along_paths, entropy_over_variance, token_courses


def test_a_study_of_paths_holds_the_average_against_its_law() -> None:
    study = path_study(30, 2.0, 1.2, pairs=600, shown=3, seed=4)
    assert study.kl.shape == study.fit.curve.shape == (3, 41)
    inner = slice(0, 38)
    # The law's scale is estimated as well, from ten times the draws: a tenth of the variance more.
    z = (study.mean - study.law)[inner] / (study.error[inner] * math.sqrt(1.1))
    assert float(z.abs().max()) < 4
    assert study.residual < 0.02
    assert float(study.jsd[-1]) == pytest.approx(0, abs=1e-12)
    assert path_study(30, 2.0, pairs=5, seed=4).kl.tolist() == path_study(30, 2.0, pairs=5, seed=4).kl.tolist()


def test_paths_are_drawn_as_they_are() -> None:
    studies = [path_study(10, radius, pairs=20, shown=2, steps=11) for radius in (0.5, 1.0, 3.0)]
    figure = divergence_along_paths(studies)
    assert len(figure.data) == 3 * 6
    last = [trace for trace in figure.data if trace.xaxis == "x3"]
    np.testing.assert_allclose(last[0].y, studies[2].kl[0])
    np.testing.assert_allclose(last[1].y, studies[2].fit.curve[0])
    np.testing.assert_allclose(last[4].y, studies[2].mean)
    np.testing.assert_allclose(last[5].y, studies[2].law[::2])
    assert sum(bool(trace.showlegend) for trace in figure.data) == 4
    assert "radius 3, n = 10" in figure.layout.annotations[2].text


def test_courses_are_drawn_depth_by_depth() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(2, 8, 8, generator=generator, dtype=torch.float64)
    layers = random_layers(8, 9, generator)
    courses = {"no skip": token_course(X, layers), "half": token_course(X, layers, beta=0.5, norm=True)}
    figure = token_courses(courses)
    assert len(figure.data) == 8
    cosine, residual, rank, entropy = figure.data[:4]
    np.testing.assert_allclose(cosine.y, courses["no skip"].cosine)
    assert list(cosine.x) == list(range(10))
    assert list(entropy.x) == list(range(1, 10))
    np.testing.assert_allclose(rank.y, courses["no skip"].rank)
    assert min(residual.y) == 1e-16
    assert figure.layout.yaxis2.type == "log"
    assert [trace.name for trace in figure.data if trace.showlegend] == ["no skip", "half"]


def test_entropy_is_drawn_beside_the_law_of_many_keys() -> None:
    study = entropy_study((16, 1024), largest=50.0, steps=12)
    np.testing.assert_allclose(
        study.exact[1], expected_entropy(study.variance, torch.tensor(1024)) / math.log(1024), rtol=1e-12
    )
    figure = entropy_over_variance(study)
    np.testing.assert_allclose(figure.data[2].y, study.exact[1])
    np.testing.assert_allclose(figure.data[1].y, study.flat[0])
    assert figure.data[1].y[0] == pytest.approx(1 - 0.005 / math.log(16))
    assert np.isnan(figure.data[1].y[-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: path_study(5, 1.0, pairs=3, shown=4), "no more than it has, found 4 of 3"),
        (lambda: entropy_study((1, 5)), "lengths of at least 2"),
        (lambda: entropy_study((5,), largest=1e4), r"largest variance in \(0.01, 400\]"),
    ],
)
def test_studies_of_nothing_are_refused(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
