"""A mount that the tests of one module share, each in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_of_nodes import Node, nodes


class Place:
    """One directory, seen in the mount and on the source."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.mine = node.mountpoint / name
        self.source = node.source / name
        self.mine.mkdir()

    def publish(self) -> None:
        """Wait until the source has all of it."""
        self.node.wait("durable", self.name)


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A mounted node without peers, for a whole module."""
    with nodes(tmp_path_factory.mktemp("shared")) as (node,):
        node.mount()
        yield node
        print(node.log)
        assert "Traceback" not in node.log


@pytest.fixture
def place(shared_node: Node, request: pytest.FixtureRequest) -> Place:
    """A fresh directory in the shared mount."""
    name: str = request.node.name
    return Place(shared_node, "".join(c if c.isalnum() else "-" for c in name)[:60])
