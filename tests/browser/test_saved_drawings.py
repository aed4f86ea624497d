"""Files that the diagram saves, read by what people read them with: networkx, pandas, a decoder of pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Browser

import headspan
from tests.browser.chromium import Watched, opened

VIEW = "show=embedding,mlp,logits&tier=out,background"
DRAWN = "() => [...document.querySelectorAll('.wires .edge')].map((edge) => edge.dataset.edge)"


@pytest.fixture(scope="module")
def everything(browser: Browser, demo_report: Path) -> Iterator[Watched]:
    """The demo model's diagram with every tier and every kind of node."""
    with opened(browser, demo_report, VIEW) as page:
        page.settle()
        yield page
        assert page.complaints == []


def saved(page: Watched, kind: str) -> bytes:
    """What a person gets who opens the menu and clicks."""
    page.locator("summary", has_text="Save").click()
    with page.expect_download() as waiting:
        page.locator(f"[data-save={kind}]").click()
    page.keyboard.press("Escape")
    return Path(waiting.value.path()).read_bytes()


def drawn(page: Watched) -> set[str]:
    return set(page.evaluate(DRAWN))


def test_networkx_reads_the_graph_with_every_kind_of_node(everything: Watched) -> None:
    graph = nx.read_graphml(io.BytesIO(saved(everything, "graphml")), force_multigraph=True)
    found = {f"{src}-{dst}-{each['pairing']}" for src, dst, each in graph.edges(data=True)}
    assert found == drawn(everything)
    assert {kind for _, kind in graph.nodes(data="kind")} == {"head", "mlp", "embedding", "logits"}
    assert graph.nodes["L1H6"]["layer"] == 1
    assert "layer" not in graph.nodes["logits"]
    kernel = headspan.affinity("demo")["OK"].projection_kernel
    (edge,) = [each for each in graph["L0H3"]["L1H6"].values() if each["pairing"] == "OK"]
    assert edge["score"] == pytest.approx(float(kernel.sel(src="L0H3", dst="L1H6")), rel=1e-12)
    assert edge["metric"] == "projection_kernel"
    assert {each["metric"] for _, _, each in graph.in_edges("logits", data=True)} == {"share"}


def test_scores_of_different_kinds_have_columns_of_their_own(everything: Watched) -> None:
    table = pd.read_csv(io.BytesIO(saved(everything, "csv")))
    assert set(table["src"] + "-" + table["dst"] + "-" + table["pairing"]) == drawn(everything)
    heads = table["pairing"].isin(["OQ", "OK", "OV"])
    assert table.loc[heads, "projection_kernel"].notna().all()
    assert table.loc[heads, "share"].isna().all()
    assert table.loc[~heads, "projection_kernel"].isna().all()
    assert table.loc[~heads, "share"].between(0, 1).all()
    assert table.loc[~heads, "q_share"].notna().any()


def test_a_file_without_other_nodes_has_no_columns_for_them(everything: Watched) -> None:
    everything.look_at("pairing=OK")
    assert "share" not in pd.read_csv(io.BytesIO(saved(everything, "csv"))).columns
    everything.look_at(VIEW)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_has_the_nodes_the_arrows_and_the_paper_of_the_screen(everything: Watched, scheme: str) -> None:
    """The decoded picture is the screenshot of the diagram, apart from how edges of shapes are smoothed."""
    everything.emulate_media(color_scheme=scheme)
    everything.look_at("pairing=OK")
    picture = Image.open(io.BytesIO(saved(everything, "png"))).convert("RGB")
    everything.mouse.move(5, 5)
    shown = Image.open(io.BytesIO(everything.locator(".wires").first.screenshot())).convert("RGB")
    assert picture.width == pytest.approx(3 * shown.width, abs=6)
    small = np.asarray(picture.resize(shown.size, Image.Resampling.BOX), float)
    screen = np.asarray(shown, float)
    paper = 0 if scheme == "dark" else 255
    assert (np.abs(screen - paper) > 55).any(axis=2).mean() > 0.01
    assert np.abs(small - screen).mean() < 4
    assert np.corrcoef(small.ravel(), screen.ravel())[0, 1] > 0.75
    everything.emulate_media(color_scheme="light")
    everything.look_at(VIEW)
