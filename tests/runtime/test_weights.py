from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.manifest import Manifest
from tpu_export.runtime.weights import Weights, WeightUpdateError

Make = Callable[..., Path]


def tie(manifest: Manifest) -> Manifest:
    """Give the bias a second name."""
    bias = manifest.weights["bias"]
    return replace(manifest, weights={**manifest.weights, "tied": bias})


def test_they_are_mapped_not_read(artifact: Make) -> None:
    weights = Weights(Artifact(artifact("linear")))
    assert list(weights) == ["bias", "weight"]
    assert not weights["weight"].flags.owndata
    assert not weights["weight"].flags.writeable


def test_tied_names_change_together(artifact: Make) -> None:
    weights = Weights(Artifact(artifact("linear", edit=tie)))
    assert weights["bias"] is weights["tied"]
    weights.update({"tied": np.zeros(4, np.float32)}, ["tied"])
    assert weights["bias"] is weights["tied"]
    np.testing.assert_array_equal(weights["bias"], np.zeros(4))


def test_an_update_is_a_copy(artifact: Make) -> None:
    weights = Weights(Artifact(artifact("linear")))
    mine = np.zeros(4, np.float32)
    weights.update({"bias": mine}, ["bias"])
    mine[:] = 5
    np.testing.assert_array_equal(weights["bias"], np.zeros(4))


def test_an_update_needs_all_to_fit(artifact: Make) -> None:
    weights = Weights(Artifact(artifact("linear")))
    good = np.zeros(4, np.float32)
    with pytest.raises(WeightUpdateError, match="no weight 'x'") as caught:
        weights.update({"bias": good, "x": good, "weight": good}, ["bias", "weight"])
    assert "weight is float32[4], expected float32[3, 4]" in caught.value.message
    assert caught.value.code == "TPX-0506"
    assert weights["bias"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "change", [{"key": "none"}, {"shape": (2, 2)}, {"dtype": "int32"}]
)
def test_a_weight_that_is_not_as_stated(change: Any, artifact: Make) -> None:
    def edit(manifest: Manifest) -> Manifest:
        spare = replace(manifest.weights["bias"], **change)
        return replace(manifest, weights={**manifest.weights, "spare": spare})

    with pytest.raises(ArtifactCorruptedError, match="'spare' is not as stated"):
        Weights(Artifact(artifact("linear", edit=edit)))
