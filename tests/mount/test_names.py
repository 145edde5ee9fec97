"""Names whose change meets others that are still on their way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.cluster_of_nodes import Node, eventually, run
from tests.mount.conftest import Place
from tests.mount.two_trees import EXCHANGE, NOREPLACE, difference, renameat2, snapshot


def _agree(place: Place) -> None:
    """The source has what the mount shows, soon."""
    place.publish()
    eventually(
        lambda: not difference(snapshot(place.mine), snapshot(place.source)), "agreement", 10
    )


def test_exchange_with_a_file_that_is_not_published(place: Place) -> None:
    (place.mine / "published").write_bytes(b"published")
    place.publish()
    with (place.mine / "open").open("wb", buffering=0) as file:
        file.write(b"open")
        renameat2(place.mine / "open", place.mine / "published", EXCHANGE)
    assert (place.mine / "open").read_bytes() == b"published"
    assert (place.mine / "published").read_bytes() == b"open"
    _agree(place)


def test_exchange_of_two_files_that_were_just_written(place: Place) -> None:
    for name in ("a", "b"):
        (place.mine / name).write_bytes(name.encode())
    renameat2(place.mine / "a", place.mine / "b", EXCHANGE)
    assert (place.mine / "a").read_bytes() == b"b"
    _agree(place)
    assert (place.source / "b").read_bytes() == b"a"


def test_a_chain_of_renames_is_followed_to_its_end(place: Place) -> None:
    (place.mine / "0").write_bytes(b"content")
    for number in range(10):
        (place.mine / f"{number}").rename(place.mine / f"{number + 1}")
        (place.mine / f"{number + 1}").chmod(0o600 + number % 2)
    _agree(place)
    assert [path.name for path in place.source.iterdir()] == ["10"]
    assert (place.source / "10").stat().st_mode & 0o777 == 0o601


def test_noreplace_and_missing_names(place: Place) -> None:
    (place.mine / "a").touch()
    (place.mine / "b").touch()
    with pytest.raises(FileExistsError):
        renameat2(place.mine / "a", place.mine / "b", NOREPLACE)
    with pytest.raises(FileNotFoundError):
        renameat2(place.mine / "a", place.mine / "c", EXCHANGE)
    renameat2(place.mine / "a", place.mine / "c", NOREPLACE)
    _agree(place)


def test_rename_over_a_file_that_is_open_elsewhere(place: Place) -> None:
    (place.mine / "file").write_bytes(b"old")
    reader = (place.mine / "file").open("rb")
    (place.mine / "new").write_bytes(b"new")
    (place.mine / "new").rename(place.mine / "file")
    assert reader.read() == b"old"
    assert os.fstat(reader.fileno()).st_nlink == 0
    reader.close()
    assert (place.mine / "file").read_bytes() == b"new"
    _agree(place)


def test_case_03_bytes_written_after_a_rename_are_not_lost(place: Place) -> None:
    with (place.mine / "temporary").open("wb", buffering=0) as file:
        file.write(b"before, ")
        (place.mine / "temporary").rename(place.mine / "file")
        file.write(b"after")
    assert (place.mine / "file").read_bytes() == b"before, after"
    _agree(place)


def test_links_of_open_and_of_published_files(place: Place) -> None:
    with (place.mine / "open").open("wb", buffering=0) as file:
        file.write(b"x")
        os.link(place.mine / "open", place.mine / "open-link")
        assert os.fstat(file.fileno()).st_nlink == 2
    place.publish()
    os.link(place.mine / "open", place.mine / "published-link")
    (place.mine / "open").unlink()
    assert (place.mine / "open-link").stat().st_nlink == 2
    (place.mine / "open-link").chmod(0o600)
    _agree(place)
    eventually(
        lambda: (place.source / "published-link").stat().st_mode & 0o777 == 0o600, "the mode"
    )


def test_directories_are_replaced_only_when_empty(place: Place) -> None:
    for name in ("full", "empty", "moved"):
        (place.mine / name).mkdir()
    (place.mine / "full" / "file").touch()
    with pytest.raises(OSError) as caught:
        (place.mine / "moved").rename(place.mine / "full")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as caught:
        (place.mine / "full").rmdir()
    assert caught.value.errno == errno.ENOTEMPTY
    (place.mine / "full").rename(place.mine / "empty")
    _agree(place)
    assert (place.source / "empty" / "file").exists()


def test_a_name_is_used_again_and_again(place: Place) -> None:
    path: Path = place.mine / "name"
    for number in range(10):
        path.write_text(f"{number}")
        path.unlink()
        path.mkdir()
        path.rmdir()
        path.symlink_to("nowhere")
        path.unlink()
    path.write_text("last")
    _agree(place)
    assert (place.source / "name").read_text() == "last"


def test_an_inode_number_that_the_source_gives_out_again_is_another_file(place: Place) -> None:
    for number in range(30):
        path = place.mine / f"{number}"
        path.write_bytes(b"content")
        place.publish()
        with path.open("rb"):
            path.unlink()
            path.mkdir()
            assert path.is_dir()
        (path / "file").write_bytes(b"x")


def test_a_link_to_an_evicted_file_counts_before_the_source_has_it(node: Node) -> None:
    (node.mountpoint / "file").write_bytes(b"x" * 1000)
    node.wait("durable")
    run("evict", node.mountpoint / "file")
    (node.mountpoint / "other").write_bytes(b"so that the link has to wait its turn")
    os.link(node.mountpoint / "file", node.mountpoint / "second")
    assert (node.mountpoint / "file").stat().st_nlink == 2
    assert (node.mountpoint / "second").stat().st_nlink == 2
