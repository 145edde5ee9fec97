"""What a program is told."""

from __future__ import annotations

import os


def answer(code: int) -> OSError:
    """An OSError with the text of its number."""
    return OSError(code, os.strerror(code))
