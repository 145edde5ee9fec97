"""The documents say what the code says."""

from __future__ import annotations

from pathlib import Path

from cachexfs.cli import COMMANDS
from cachexfs.durability.states import markdown

ROOT = Path(__file__).parents[2]


def test_the_table_of_states_in_the_design_is_the_one_in_the_code() -> None:
    text = (ROOT / "docs/design.md").read_text()
    between = text.partition("<!-- states: begin -->\n")[2].partition("<!-- states: end -->")[0]
    assert between.strip() == markdown()


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"cachexfs {name}" not in text] == []
