"""Puts the figures of a run into a page, between two marks."""

from __future__ import annotations

from pathlib import Path

from cachexfs.errors import UsageError

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def filled(page: str, text: str) -> str:
    """The page with this text between its marks. Raises `UsageError`."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page has no {BEGIN} with {END} after it")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def write(path: Path, text: str) -> None:
    """Change the file. Raises `UsageError`, OSError."""
    path.write_text(filled(path.read_text(encoding="utf-8"), text), encoding="utf-8")
