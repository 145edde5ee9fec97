"""A handler that fails is one failed call, not the end of the mount (s3ql#255, pyfuse3#93)."""

from __future__ import annotations

import errno

import pyfuse3
import pytest
import trio

from cachexfs.durability.life import IllegalEvent
from cachexfs.mount.operations import guarded


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("a bug"), errno.EIO),
        (IllegalEvent("a bug"), errno.EIO),
        (KeyError(3), errno.EIO),
        (OSError(errno.ENOENT, "no"), errno.ENOENT),
        (OSError("without a number"), errno.EIO),
        (pyfuse3.FUSEError(errno.ESTALE), errno.ESTALE),
    ],
)
def test_case_19_an_exception_becomes_an_errno(raised: Exception, told: int) -> None:
    @guarded
    async def handler() -> None:
        raise raised

    with pytest.raises(pyfuse3.FUSEError) as caught:
        trio.run(handler)
    assert caught.value.errno == told


def test_every_handler_that_may_fail_is_guarded() -> None:
    from cachexfs.mount.operations import Operations

    unguarded = {
        name
        for name, handler in vars(Operations).items()
        if not name.startswith("_") and callable(handler) and not hasattr(handler, "__wrapped__")
    }
    assert unguarded == {"forget"}
