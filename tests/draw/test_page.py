"""The page holds everything it shows, numbers its figures, and lets no text become markup."""

from __future__ import annotations

import math
import re

import pytest

from nova.draw.page import Figure, Grid, Section, cell, number, render, rich, standalone


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (7, "7"),
        (12_345, "12,345"),
        (3.14159, "3.14"),
        (31.4159, "31.4"),
        (314.159, "314"),
        (0.5, "0.50"),
        (0.00023, "0.00023"),
        (-2.5, "−2.50"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-0.0, "0"),
    ],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert number(value) == text


def test_cells_show_what_is_not_known_as_a_dash():
    assert cell(None) == cell(math.nan) == "–"
    assert cell("text") == "text"
    assert cell(1000) == "1,000"


def test_text_is_escaped_and_marks_become_tags():
    assert rich("a < b & `x*y` is *so*") == "a &lt; b &amp; <code>x*y</code> is <em>so</em>"
    assert rich("5 * 3") == "5 * 3"


def test_the_page_is_self_contained_and_numbered():
    picture = Figure("<svg xmlns='http://www.w3.org/2000/svg'/>", "A picture.")
    grid = Grid("A table.", ["name", "value"], [["<x>", 1.5], ["y", None]], ours=[0])
    sections = [
        Section(f"s{i}", f"Section {i}", "Why?", "So.", [picture, grid], ["Found.", "More."], ["the rest."])
        for i in (1, 2)
    ]
    text = render("Title", "by", "lead", sections, ["note"])
    assert re.findall(r"<b>(Figure|Table) (\d)\.</b>", text) == [
        ("Figure", "1"),
        ("Table", "1"),
        ("Figure", "2"),
        ("Table", "2"),
    ]
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text)
    assert "&lt;x&gt;" in text
    assert text.count("Found.") == 4  # in the abstract and in the section, twice each
    assert "Left out: the rest." in text


def test_a_page_of_figures_alone():
    text = standalone("Compared", [Grid("All.", ["a"], [["b"]])])
    assert "<h1>Compared</h1>" in text
    assert "Table 1." in text
