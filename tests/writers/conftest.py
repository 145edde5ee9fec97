"""A pair of nodes for all writers, and a place of its own in it for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_of_nodes import DATA_PATHS, Node, nodes
from tests.writers.place import Place


@pytest.fixture(
    scope="module", params=[pytest.param("passthrough", marks=pytest.mark.root), "portable"]
)
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Node, Node]]:
    """Node a, mounted on each data path, with its replicas at node b."""
    extra = DATA_PATHS[request.param]
    with nodes(tmp_path_factory.mktemp("writers"), "ab", extra=extra) as (a, b):
        b.start_peer()
        a.mount()
        assert a.report()["data_path"] == request.param
        yield a, b


@pytest.fixture
def place(cluster: tuple[Node, Node], tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """An empty directory in the mount for one test."""
    made = Place(request.node.name.partition("[")[0], *cluster, tmp_path)
    made.path.mkdir()
    made.plain.mkdir()
    return made
