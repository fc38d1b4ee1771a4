"""SMACOF: exact on layouts with a truth, against scikit-learn, with missing pairs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import smacof

from nova.costspace import CostSpace, mds, phantom
from nova.model.errors import InvalidInput


@pytest.mark.parametrize("truth", [phantom.line(20), phantom.grid(5), phantom.clusters(30)])
def test_full_matrices_of_layouts_are_exact(truth: CostSpace) -> None:
    latency = phantom.measured(truth)
    x, heights = mds.solve(len(truth), latency.first, latency.second, latency.rtt_ms, dimensions=2)
    space = CostSpace(x, heights)
    assert np.allclose(space.between(latency.first, latency.second), latency.rtt_ms, rtol=0.02)


def test_missing_pairs_have_no_weight() -> None:
    truth = phantom.grid(6)
    latency = phantom.measured(truth, m=10)
    space = CostSpace(*mds.solve(36, latency.first, latency.second, latency.rtt_ms, dimensions=2))
    first, second = np.triu_indices(36, 1)
    real = truth.between(first, second)
    assert float(np.median(np.abs(space.between(first, second) - real) / real)) < 0.02


def test_stress_is_no_worse_than_scikit_learns() -> None:
    """Same weighted problem where all RTTs weigh alike: distances drawn between 90 and 110 ms that fit no plane."""
    rng = np.random.default_rng(0)
    matrix = rng.uniform(90, 110, size=(15, 15))
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 0)
    first, second = np.triu_indices(15, 1)
    rtt = matrix[first, second]
    space = CostSpace(*mds.solve(15, first.astype(np.int32), second.astype(np.int32), rtt, dimensions=2))
    theirs, _ = smacof(matrix, n_components=2, n_init=1, init=space.coordinates * 1.3, random_state=0, metric=True)

    def stress(x: np.ndarray) -> float:
        away = np.linalg.norm(x[first] - x[second], axis=1)
        return float(((away - rtt) ** 2 / rtt).sum())

    assert stress(space.coordinates) <= 1.02 * stress(theirs)


def test_too_many_nodes_are_refused_with_advice() -> None:
    with pytest.raises(InvalidInput, match="Maybe use embedding: stress"):
        mds.solve(mds.LARGEST + 1, np.zeros(1, np.int32), np.ones(1, np.int32), np.ones(1))
