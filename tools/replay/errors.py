"""What a person is told when a trace or an option is wrong."""

from __future__ import annotations


class ReplayError(Exception):
    """Ends the command; `str()` is one clear sentence."""

    exit_code = 2


class TraceError(ReplayError):
    """A trace cannot be read; the sentence names the file and, where there is one, the line."""

    def __init__(self, path: object, line: int | None, problem: str) -> None:
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")


class LogError(TraceError):
    """An event log cannot be read, or does not lead to the state that it says."""


class OptionError(ReplayError):
    """An option asks for something that there is not."""
