"""Every message of the peers' protocol with every value that its types allow, for hypothesis."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
from hypothesis import strategies as st

from cachexfs.peers import messages as m

KINDS: tuple[type[m.Message], ...] = typing.get_args(m.Message)
ODD_NAMES = [b"", b".", b"..", b"/", b"../x", b"/etc/passwd", b"a\0b", b"a//b", b"\xff" * 300]
"""What a name or a path may hold that ours never do."""


def any_message(kinds: tuple[type[m.Message], ...] = KINDS) -> st.SearchStrategy[m.Message]:
    """One of these messages."""
    return st.sampled_from(kinds).flatmap(_struct)


def offers(volume: str) -> st.SearchStrategy[m.Message]:
    """Offers of files without content, and of other things: with sizes that do not contradict."""
    places = st.sampled_from([b"a", b"d", b"d/a", b"d/b", b"e"])
    replica = _struct(
        m.Replica, volume=st.just(volume), path=places, size_bytes=st.just(0), crcs=st.just(b""),
        owner=st.just("other"), job=st.just(""),
    )  # fmt: skip
    return st.builds(m.Offer, id=st.integers(0, 8), replica=replica)


def _struct(kind: type[Any], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {f.name: _value(hints[f.name]) for f in msgspec.structs.fields(kind)}
    return st.builds(kind, **(fields | known))


def _value(hint: Any) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        meta = next(part for part in inner if isinstance(part, msgspec.Meta))
        least = -(1 << 63) if meta.ge is None else int(meta.ge)
        most = (1 << 64) - 1 if meta.le is None else int(meta.le)
        return st.integers(max(least, -8), 8) | st.integers(least, most)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is list:
        return st.lists(_value(inner[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(_value(inner[0]), _value(inner[1]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(_value, inner))
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if part is type(None) else _value(part) for part in inner))
    return _PLAIN[hint] if hint in _PLAIN else st.deferred(lambda: _struct(hint))


_PLAIN: dict[type[Any], st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(1 << 63), (1 << 64) - 1),
    str: st.sampled_from(["", "v", "/v\0", "\x1b[2J", "n" * 5000]) | st.text(max_size=8),
    bytes: st.sampled_from([b"a", b"d/a", b"d", *ODD_NAMES]) | st.binary(max_size=12),
}
