"""The report in a real browser: pictures load without a network, nothing runs off the page on a narrow screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nova.draw.page import Grid, render, standalone
from nova_lab.report.experiment import Setting
from nova_lab.report.experiments import overload

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    "--hide-scrollbars",
)
PROBE = """<script>addEventListener('load', () => { document.title = 'PROBE' + JSON.stringify({
  wide: document.documentElement.scrollWidth, seen: innerWidth,
  pictures: [...document.images].map(i => i.naturalWidth) }) + 'EBORP' })</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium (Debian: apt install chromium)")


def look(page: str, folder: Path, width: int) -> dict[str, object]:
    """Load a page and read off its width and its pictures."""
    file = folder / "page.html"
    file.write_text(page.replace("</main>", PROBE + "</main>"), encoding="utf-8")
    own = [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"]
    command = [str(BROWSER), *FLAGS, *own, "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    found = re.search("PROBE(.*)EBORP", done.stdout)
    assert found is not None, done.stderr[-2000:]
    return dict(json.loads(found[1].replace("&quot;", '"')))


@pytest.mark.parametrize("width", [1200, 500])
def test_pictures_load_and_nothing_runs_off_the_page(tmp_path, width, overload_rows):
    section = overload.section(Setting(), overload_rows(0, 6.0))
    seen = look(render("Report", "by", "lead", [section]), tmp_path, width)
    assert seen["pictures"]
    assert all(size > 0 for size in seen["pictures"])
    assert seen["wide"] <= seen["seen"]


def test_a_wide_table_scrolls_in_its_own_frame(tmp_path):
    grid = Grid("Wide.", [f"column {i}" for i in range(40)], [[f"value{i}" for i in range(40)]])
    seen = look(standalone("Wide", [grid]), tmp_path, 800)
    assert seen["wide"] <= seen["seen"]
