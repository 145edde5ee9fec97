"""Which chunks go ahead, and what an offer can build on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachexfs.durability.checksum import CHUNK_BYTES
from cachexfs.peers.ahead import MAX_DRAFTS, NOTHING, Ahead, Piece, Scrapped, Sent
from cachexfs.peers.chase import (
    CHANGED_AT_MOST,
    FRESH_STARTS,
    LAG_BYTES,
    Chase,
    Verdict,
    changed,
    is_steady,
)


def content() -> int | None:
    return None


def grown(chase: Chase, *sizes: int) -> list[int]:
    """How many chunks are complete after each look at a file without holes."""
    complete = []
    for size in sizes:
        assert chase.look(1, size, size) is Verdict.FOLLOW
        complete.append(chase.complete)
    return complete


def test_a_chunk_is_complete_when_the_data_goes_on_well_past_it() -> None:
    sizes = [0, CHUNK_BYTES, CHUNK_BYTES + LAG_BYTES - 1, CHUNK_BYTES + LAG_BYTES, 10 * CHUNK_BYTES]
    assert grown(Chase(1), *sizes) == [0, 0, 0, 1, 9]


def test_a_hole_ends_what_is_complete() -> None:
    chase = Chase(1)
    chase.look(1, 100 * CHUNK_BYTES, 3 * CHUNK_BYTES)
    assert (chase.complete, chase.seek_from) == (2, 2 * CHUNK_BYTES)


def test_what_was_offered_is_not_sent_ahead_again() -> None:
    chase = Chase(1)
    chase.offered(6)
    assert grown(chase, 5 * CHUNK_BYTES + 1, 8 * CHUNK_BYTES) == [5, 7]
    assert chase.first == 5


def test_a_file_that_shrinks_or_gets_other_bytes_begins_afresh_and_is_given_up_at_last() -> None:
    chase = Chase(1)
    grown(chase, 9 * CHUNK_BYTES)
    assert chase.look(1, 7 * CHUNK_BYTES, 7 * CHUNK_BYTES) is Verdict.AFRESH
    assert (chase.first, chase.complete) == (0, 0)
    verdicts = [chase.look(blob, 9, 9) for blob in range(2, 2 + FRESH_STARTS)]
    assert verdicts[-1] is Verdict.STOP


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30)), max_size=20))
def test_nothing_is_complete_beyond_the_data(looks: list[tuple[int, int]]) -> None:
    chase = Chase(1)
    for size, end in looks:
        before = chase.complete
        verdict = chase.look(1, size, end)
        if verdict is not Verdict.FOLLOW:
            assert chase.complete == 0
        elif chase.complete > before:
            assert chase.complete * CHUNK_BYTES + LAG_BYTES <= min(size, end)


def test_changed_chunks_are_counted() -> None:
    assert changed(range(2, 10), [(0, 1), (1, 3), (9, 12)]) == 2
    assert changed(range(0), [(0, 5)]) == 0
    assert is_steady(CHANGED_AT_MOST) and not is_steady(CHANGED_AT_MOST + 1)


def test_each_chunk_goes_ahead_once_and_the_offer_knows_which() -> None:
    ahead = Ahead()
    assert ahead.offer(7, 0, 2, content)
    assert not ahead.offer(7, 0, 2, content)
    assert [ahead.next(), ahead.next(), ahead.next()] == [
        Piece(1, 0, content), Piece(1, 1, content), None,
    ]  # fmt: skip
    ahead.offer(7, 0, 4, content)
    assert ahead.next() == Piece(1, 2, content)
    assert ahead.take(7) == Sent(1, range(3))
    assert ahead.take(7) == NOTHING
    assert ahead.next() is None


def test_what_was_begun_is_scrapped_and_what_was_not_is_forgotten() -> None:
    ahead = Ahead()
    ahead.offer(7, 3, 5, content)
    ahead.offer(8, 0, 1, content)
    ahead.next()
    ahead.drop(7)
    ahead.drop(8)
    assert [ahead.next(), ahead.next()] == [Scrapped(1), None]


def test_after_a_new_connection_drafts_begin_again_with_new_numbers() -> None:
    ahead = Ahead()
    ahead.offer(7, 3, 5, content)
    ahead.next()
    ahead.offer(8, 0, 1, content)
    ahead.next(), ahead.next(), ahead.drop(8)
    ahead.reconnected()
    assert ahead.next() == Piece(3, 3, content)
    assert ahead.take(7) == Sent(3, range(3, 4))


def test_only_so_many_drafts_at_a_time() -> None:
    ahead = Ahead()
    for key in range(MAX_DRAFTS + 5):
        ahead.offer(key, 0, 2, content)
    pieces = []
    while isinstance(piece := ahead.next(), Piece):
        pieces.append(piece.draft)
    assert len(set(pieces)) == MAX_DRAFTS
