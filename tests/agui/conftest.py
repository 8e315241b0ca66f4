"""The processes that all tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agui.site import Node, Site, open_site
from tests.kit.fork_server import ForkServer
from tests.kit.warm_python import warm


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.agui.programs")) as forks:
        yield forks


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


@pytest.fixture(scope="module")
def site(forks: ForkServer, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for tests that do not kill it. Each test has threads of its own."""
    folder: Path = tmp_path_factory.mktemp("agui")
    with open_site(forks, node, folder) as site:
        yield site
