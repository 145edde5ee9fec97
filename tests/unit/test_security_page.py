"""docs/security.md names tests that exist and limits that are in force."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from cachexfs.units import parse_duration, parse_size

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
ROWS = re.findall(
    r"^\| [^|]+ \| ([^|]+) \| ((?:`[\w.]+\.[A-Z_]+`(?:, )?)+) \|$", PAGE, re.MULTILINE
)


def limits() -> list[tuple[str, str]]:
    pairs = [(values.split(", "), names.split(", ")) for values, names in ROWS]
    return [
        (value, name.strip("`"))
        for values, names in pairs
        for value, name in zip(values, names, strict=True)
    ]


@pytest.mark.parametrize(("value", "name"), limits())
def test_a_limit_is_the_one_in_the_code(value: str, name: str) -> None:
    module, _, constant = name.rpartition(".")
    found = getattr(importlib.import_module(f"cachexfs.{module}"), constant)
    is_time = value.endswith(" s")
    assert found == (parse_duration(value.replace(" ", "")) if is_time else parse_size(value))


def test_the_limits_were_found() -> None:
    assert len(limits()) > 18


def test_the_tests_that_it_names_exist() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 15
    assert [name for name in sorted(named) if f"def {name}(" not in code] == []
    files = re.findall(r"tests/\w+/\w+\.py", PAGE)
    assert files and all((ROOT / file).exists() for file in files)
