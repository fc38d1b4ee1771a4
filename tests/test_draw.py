"""Pictures as files: they open, and they show something."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
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


DRIVE = """
<script>
window.onerror = e => document.documentElement.setAttribute('data-error', e);
addEventListener('load', () => {
  const told = {}, texts = () => [...document.querySelectorAll('#table tbody tr')].map(row => row.cells[3].textContent);
  const type = word => { const box = document.getElementById('search'); box.value = word; box.oninput(); };
  const inside = name => {
    const frame = document.getElementById('map').getBoundingClientRect();
    return [...document.querySelectorAll(name)].every(one => {
      const box = one.getBoundingClientRect();
      return box.left >= frame.left && box.right <= frame.right && box.top >= frame.top && box.bottom <= frame.bottom;
    });
  };
  told.nodes = document.querySelectorAll('#map [data-node]').length;
  told.flows = document.querySelectorAll('#map .flow').length;
  told.names = [...document.querySelectorAll('#map text.name')].map(one => one.textContent);
  told.clipped = !inside('#map text.name');
  told.rows = texts();
  told.sinks = [...document.querySelectorAll('#sinks b')].map(one => one.textContent);
  const heads = document.querySelectorAll('#table th');
  heads[5].click();
  const rate = row => parseFloat(row.cells[5].textContent.replace(/,/g, ''));
  told.by_rate = [...document.querySelectorAll('#table tbody tr')].map(rate);
  heads[3].click();
  told.by_host = texts();
  type('h2');
  told.found = texts();
  type('nothing-like-this');
  told.none = texts();
  type('');
  for (const id of ['all', 'in', 'out', 'fit']) document.getElementById(id).click();
  document.querySelector('#map [data-node]').dispatchEvent(new MouseEvent('click', {bubbles: true}));
  told.clicked = document.getElementById('search').value;
  document.documentElement.setAttribute('data-told', JSON.stringify(told));
});
</script>
"""


def in_browser(file: Path, folder: Path, script: str) -> str:
    """The page's elements after a browser has run it together with a script."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs a browser, one of {', '.join(BROWSERS)}: script/browser installs Debian's")
    page = folder / "driven.html"
    page.write_text(file.read_text(encoding="utf-8").replace("<head>", f"<head>{script}"), encoding="utf-8")
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
    words += [f"--user-data-dir={folder}", "--virtual-time-budget=10000", "--dump-dom", page.as_uri()]
    home = {**os.environ, "HOME": str(folder)}
    return subprocess.run(words, capture_output=True, text=True, timeout=400, check=True, env=home).stdout


@pytest.mark.parametrize("size", ["few", "many"])
def test_html_in_a_browser(tmp_path: Path, size: str) -> None:
    problem = handmade.problem()
    plan = handmade.plan(problem)
    if size == "many":
        problem, plan = handmade.crowd(3000)
    file = draw(problem, plan, tmp_path / "plan.html")
    assert file.stat().st_size < (60_000 if size == "few" else 3_000_000)
    page = in_browser(file, tmp_path, DRIVE)
    assert " data-error=" not in page
    found = re.search(r'data-told="([^"]*)"', page)
    assert found, "the page did not run to its end"
    told = json.loads(unescape(found[1]))
    assert told["nodes"] >= (6 if size == "few" else 1000)
    assert told["flows"] > 0
    assert not told["clipped"]
    assert told["by_rate"] == sorted(told["by_rate"], reverse=True)
    assert told["none"] == []
    assert told["clicked"]
    if size == "few":
        assert {"h1", "h2", "sink"} <= set(told["names"])
        assert told["sinks"] == ["sink"]
        assert told["by_host"] == sorted(told["rows"])
        assert told["found"]
        assert set(told["found"]) == {"h2"}


def test_hostile_names_in_a_browser(tmp_path: Path) -> None:
    import pyarrow as pa

    problem = handmade.problem()
    ids = pa.array(["</script><script>document.title='owned'</script>", '"><img src=x onerror="document.title=1">',
                    "<!--", "&lt;b&gt;", "${1}", "`'"])  # fmt: skip
    nodes = problem.nodes.__class__(**{**problem.nodes.__dict__, "ids": ids})
    problem = problem.__class__(**{**problem.__dict__, "nodes": nodes})
    page = in_browser(draw(problem, handmade.plan(problem), tmp_path / "plan.html"), tmp_path, DRIVE)
    assert "<title>Nova: " in page
    assert "<img" not in page
    assert " data-error=" not in page
    assert "data-told=" in page
