"""An order that is not carried out, as an exception on the way to `Refused`."""

from __future__ import annotations

from cachexfs.peers.messages import REFUSALS


class Refusal(Exception):
    """`code` is one of `REFUSALS`; `retry` says whether asking again can help."""

    def __init__(self, code: str, detail: str = "", *, retry: bool = False) -> None:
        super().__init__(detail or REFUSALS[code])
        self.code = code
        self.detail = detail or REFUSALS[code]
        self.retry = retry
