"""Pictures as files: they open, and they show something."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import handmade
from nova.draw import draw
from nova.model.errors import InvalidInput

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def test_png_shows_the_plan(tmp_path: Path) -> None:
    problem = handmade.problem()
    picture = imread(draw(problem, handmade.plan(problem), tmp_path / "deep" / "plan.png"))
    assert picture.shape[0] >= 1000
    assert picture.shape[1] >= 1800
    overload = np.abs(picture[..., :3] - np.array([0xD1, 0x33, 0x4B]) / 255).max(axis=2) < 0.02
    assert overload.sum() > 500  # the overloaded host and its bar


def test_png_of_a_crowd(tmp_path: Path) -> None:
    problem, plan = handmade.crowd(3000)
    picture = imread(draw(problem, plan, tmp_path / "crowd.png"))
    assert (picture[..., :3].min(axis=2) < 0.9).mean() > 0.02


def test_html_is_whole_and_names_what_it_shows(tmp_path: Path) -> None:
    problem = handmade.problem()
    page = draw(problem, handmade.plan(problem), tmp_path / "plan.html").read_text(encoding="utf-8")
    scripts: list[str | None] = []

    class Scripts(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("script", "link"):
                scripts.append(dict(attrs).get("src") or dict(attrs).get("href"))

    Scripts().feed(page)
    assert scripts
    assert not any(scripts), "the page must not load anything from elsewhere"
    for name in ("h1", "h2", "overloaded host", "virtual position"):
        assert name in page


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    import pyarrow as pa

    problem = handmade.problem()
    evil = pa.array(["s1", "s2", "s3", "<script>alert(1)</script>", "h2", "sink"])
    nodes = problem.nodes.__class__(**{**problem.nodes.__dict__, "ids": evil})
    problem = problem.__class__(**{**problem.__dict__, "nodes": nodes})
    page = draw(problem, handmade.plan(problem), tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page


def test_other_endings_are_refused(tmp_path: Path) -> None:
    problem = handmade.problem()
    with pytest.raises(InvalidInput, match=r"\.html or \.png"):
        draw(problem, handmade.plan(problem), tmp_path / "plan.svg")


@pytest.mark.parametrize("size", ["few", "many"])
def test_html_in_a_browser(tmp_path: Path, size: str) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}")
    if size == "few":
        problem = handmade.problem()
        plan = handmade.plan(problem)
    else:
        problem, plan = handmade.crowd(3000)
    file = draw(problem, plan, tmp_path / "plan.html")
    errors = "<script>window.onerror = e => document.documentElement.setAttribute('data-error', e)</script>"
    file.write_text(file.read_text(encoding="utf-8").replace("<head>", f"<head>{errors}"), encoding="utf-8")
    run = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,900",
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=10000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert " data-error=" not in run.stdout
    assert "main-svg" in run.stdout, "plotly drew nothing"
    marks = len(re.findall(r'<path class="point', run.stdout))
    assert marks > (10 if size == "few" else 2000)
    if size == "few":
        assert re.search(r"<text[^>]*>h1</text>", run.stdout)
