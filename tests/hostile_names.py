"""Ids that mean something to a shell, a file system, a file pattern, a page, a terminal, SQL, YAML or a broker."""

from __future__ import annotations

HOSTILE = (
    "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned #', "a && touch pwned", "| touch pwned",
    "../../pwned", "..", ".", "/etc/passwd", "*", "temp-?", "[a-z]", "~root", "-rf", "--help", "%2e%2e%2f", "%s%n",
    "{site}", "{0}", "${HOME}", "$HOME", "%n%i", "a\\b", "<script>alert(1)</script>", "</script><b>", '"><img src=x>',
    "&amp;", "<!--", "'", '"', "[bold]", "[/red]", "$\\frac{", "$x$", "# a", "a: b", "- a", "&a", "*a", "!!int 1", "no",
    "null", "1e3", "007", "=1+1", "a,b", "a;b", "a b", "a+b", "a/b", "a#b", "topic/+/x", "naïve", "数据", "🦊", "CON",
    "'; DROP TABLE t; --", "x" * 300, "a.b", "%", "_", "@x", "a\u00a0b",
)  # fmt: skip
"""Printable, so they are ids like any other."""
REFUSED = ("a\ntouch pwned", "a\rb", "a\tb", "a\x00b", "a\x1b[2Jb", "a\x7fb", "a\u2028b", "a\u202eb", "a\x85b",
           "a\u200eb", "a\u200fb", "a\u061cb", "a\u200bb", "a\u2060b", "a\ufff9b")  # fmt: skip
"""Not printable: refused at the door."""
