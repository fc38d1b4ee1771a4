"""What tests of the laboratory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nova_lab.cluster.cluster import Cluster, cluster


@pytest.fixture(scope="package")
def two() -> Iterator[Cluster]:
    """Two sites, without cgroups: they take longer to start than what runs on them."""
    with cluster(2, limits="not in this test") as made:
        yield made
