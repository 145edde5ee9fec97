"""Rows of a CSV file, plain or gzipped, and their fields; what is wrong names file and line."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO, cast

from tools.replay.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The file as text, unpacked if it is gzipped. Raises TraceError if it cannot be read."""
    try:
        opener = gzip.open if _is_gzipped(path) else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            yield cast(TextIO, text)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(path, None, f"it cannot be read: {reason}") from error


def _is_gzipped(path: Path) -> bool:
    with path.open("rb") as raw:
        return raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC


class Row:
    """One line of a table: fields by the name of their column."""

    __slots__ = ("_columns", "_fields", "_path", "line")

    def __init__(self, path: Path, line: int, columns: dict[str, int], fields: list[str]) -> None:
        self._path, self.line = path, line
        self._columns, self._fields = columns, fields

    def text(self, column: str) -> str:
        """The field, or "" where the table lacks the column."""
        at = self._columns.get(column)
        return "" if at is None else self._fields[at].strip()

    def number(self, column: str) -> float:
        """The field as a finite number. Raises TraceError."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(f"{column} is {text!r}, not a number") from None
        if not math.isfinite(value):
            raise self.wrong(f"{column} is {text!r}, not a finite number")
        return value

    def count(self, column: str) -> int:
        """The field as a whole number, not negative; `8.0` is one. Raises TraceError."""
        value = self.number(column)
        if value < 0 or value != int(value):
            raise self.wrong(f"{column} is {self.text(column)!r}, not a number of things")
        return int(value)

    def seconds(self, column: str) -> float:
        """The field as a length of time in seconds. Raises TraceError."""
        value = self.number(column)
        if value < 0:
            raise self.wrong(f"{column} is {self.text(column)!r}, a negative time")
        return value

    def time(self, column: str) -> float | None:
        """A date and time as `epoch_s` gives it, None where it is empty. Raises TraceError."""
        text = self.text(column)
        if text in {"", "None", "nan", "NaN", "NaT"}:
            return None
        try:
            return epoch_s(text)
        except ValueError:
            raise self.wrong(f"{column} is {text!r}, not a date and time") from None

    def wrong(self, problem: str) -> TraceError:
        """An error that names this line."""
        return TraceError(self._path, self.line, problem)


def epoch_s(text: str) -> float:
    """`2017-10-06 12:00:00`, with or without an offset, in seconds since 1970. Raises ValueError.

    Without an offset it is read as UTC: only differences count.
    """
    at = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def rows(path: Path, needed: Sequence[str], header: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a table whose first line names its columns, or of one without, with `header`.

    Raises TraceError for a file without rows, a missing column, a line with too few fields.
    """
    with opened(path) as text:
        lines = csv.reader(text)
        names = list(header) or [name.strip() for name in next(lines, [])]
        columns = {name: at for at, name in enumerate(names)}
        _check_header(path, needed, columns)
        empty = True
        for fields in _parsed(path, lines):
            if fields:
                if len(fields) < len(names):
                    problem = f"it has {len(fields)} fields, and there are {len(names)} columns"
                    raise TraceError(path, lines.line_num, problem)
                yield Row(path, lines.line_num, columns, fields)
                empty = False
    if empty:
        raise TraceError(path, None, "there are no jobs in it")


def _parsed(path: Path, lines: Iterator[list[str]]) -> Iterator[list[str]]:
    number = 1
    while True:
        try:
            fields = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            raise TraceError(path, number + 1, f"it is not CSV: {error}") from error
        number += 1
        yield fields


def _check_header(path: Path, needed: Sequence[str], columns: dict[str, int]) -> None:
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TraceError(path, 1, f"there is no column {', '.join(missing)}")
