"""The shortest way through everything."""

from __future__ import annotations

from tests.cluster_of_nodes import Node


def test_a_closed_file_gets_to_the_peer_and_to_the_source(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    (a.mountpoint / "file").write_bytes(b"x" * 100_000)
    a.wait("durable")
    a.wait("replicated")
    assert (a.source / "file").read_bytes() == b"x" * 100_000
    assert a.ls()[0]["state"] == "durable"
    a.umount()
