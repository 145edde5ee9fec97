"""Tables on a page of the documentation, between markers. Pure."""

from __future__ import annotations

from cachexfs.errors import UsageError


def with_table(page: str, part: str, table: str) -> str:
    """The page with the table of a part between its markers. Raises `UsageError`."""
    begin, end = (f"<!-- predict {part}: {which} -->" for which in ("begin", "end"))
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UsageError(f"the page has no place for the table: {begin} ... {end}")
    return f"{before}{begin}\n{table}\n{end}{after}"
