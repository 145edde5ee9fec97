"""The choice of a data path, over everything that can be asked."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachexfs.mount.datapath import Choice, DataPath, Use, Wish, choose

BOOLS = (False, True)
WISHES = [Wish(*values) for values in product(BOOLS, repeat=4)]
USES = [Use(False, 0), Use(False, 1), Use(True, 1), Use(True, 2)]
ALL = list(product(BOOLS, USES, WISHES))


@pytest.mark.parametrize(("available", "use", "wish"), ALL)
def test_an_inode_is_never_open_in_both_modes(available: bool, use: Use, wish: Wish) -> None:
    choice = choose(available, use, wish)
    if use.opens and not choice.afresh:
        assert (choice.path is DataPath.PASSTHROUGH) == use.passthrough


@pytest.mark.parametrize(("available", "use", "wish"), ALL)
def test_a_backing_file_is_never_exchanged_under_an_open_file(
    available: bool, use: Use, wish: Wish
) -> None:
    choice = choose(available, use, wish)
    assert not (choice.copy_first and use.opens), "the copy would be another backing file"
    if use.passthrough and wish.writing and not wish.in_ram:
        assert choice.afresh, "the source's file would be written past us"


@pytest.mark.parametrize(("available", "use", "wish"), ALL)
def test_what_is_written_past_the_daemon_is_in_the_ram_tier(
    available: bool, use: Use, wish: Wish
) -> None:
    choice = choose(available, use, wish)
    if wish.writing and choice.path is DataPath.PASSTHROUGH:
        assert wish.in_ram or choice.copy_first or choice.afresh


@pytest.mark.parametrize("wish", WISHES)
def test_without_the_kernels_help_everything_goes_through_the_daemon(wish: Wish) -> None:
    assert choose(False, Use(False, 0), wish) == Choice(DataPath.PORTABLE)


@pytest.mark.parametrize("in_ram", BOOLS)
def test_a_writer_that_there_is_no_room_for_goes_through_the_daemon(in_ram: bool) -> None:
    wish = Wish(writing=True, in_ram=in_ram, tier_is_full=True, can_back=True)
    assert choose(True, Use(False, 0), wish) == Choice(DataPath.PORTABLE)


def test_a_full_tier_is_no_matter_for_readers() -> None:
    wish = Wish(writing=False, in_ram=True, tier_is_full=True, can_back=True)
    assert choose(True, Use(False, 0), wish) == Choice(DataPath.PASSTHROUGH)


@pytest.mark.parametrize("in_ram", BOOLS)
def test_what_cannot_back_is_read_through_the_daemon(in_ram: bool) -> None:
    wish = Wish(writing=False, in_ram=in_ram, tier_is_full=False, can_back=False)
    assert choose(True, Use(False, 0), wish) == Choice(DataPath.PORTABLE)


def test_what_cannot_back_is_written_in_the_ram_tier() -> None:
    wish = Wish(writing=True, in_ram=False, tier_is_full=False, can_back=False)
    assert choose(True, Use(False, 0), wish) == Choice(DataPath.PASSTHROUGH, copy_first=True)
    there = wish._replace(in_ram=True)  # a blob in the overflow directory stays where it is
    assert choose(True, Use(False, 0), there) == Choice(DataPath.PORTABLE)


@given(st.lists(st.tuples(st.sampled_from(WISHES), st.booleans()), max_size=40))
def test_any_sequence_of_opens_and_closes_keeps_an_inode_in_one_mode(
    steps: list[tuple[Wish, bool]],
) -> None:
    """As OpenFiles keeps the books: an open joins, copies up first, or gets another inode."""
    opens, passthrough, in_ram = 0, False, False
    for asked, is_close in steps:
        if is_close:
            opens = max(0, opens - 1)
            passthrough = passthrough and opens > 0
            continue
        choice = choose(True, Use(passthrough, opens), asked._replace(in_ram=in_ram))
        if choice.afresh:
            opens, passthrough, in_ram = 0, False, True
            continue
        past = choice.path is DataPath.PASSTHROUGH
        assert opens == 0 or past == passthrough
        in_ram = in_ram or choice.copy_first
        opens, passthrough = opens + 1, past
