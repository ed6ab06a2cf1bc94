"""DLRM: a recommender over dense features and bags of categories."""

from __future__ import annotations

import torch
from torch import nn

from tpu_export.model_zoo.seeds import noise, seeded, tokens
from tpu_export.model_zoo.zoo import Built, Example

_DENSE, _TABLES, _ROWS, _WIDTH, _BATCH, _BAG = 13, 3, 1000, 16, 4, 5


class DLRM(nn.Module):
    """Bottom perceptron, embedding bags, pairwise dot products, top perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(
            nn.Linear(_DENSE, 64), nn.ReLU(), nn.Linear(64, _WIDTH), nn.ReLU()
        )
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(_ROWS, _WIDTH, mode=mode) for mode in ("sum", "mean", "sum")
        )
        features = _TABLES + 1
        pairs = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.top = nn.Sequential(
            nn.Linear(_WIDTH + pairs.shape[1], 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(
        self, dense: torch.Tensor, categories: list[torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Score samples: dense [batch, 13] f32, each category [batch, bag] i64."""
        x = self.bottom(dense)
        bags = [table(ids) for table, ids in zip(self.tables, categories, strict=True)]
        features = torch.stack([x, *bags], 1)
        products = features @ features.mT
        assert isinstance(self.pairs, torch.Tensor)
        crossed = products[:, self.pairs[0], self.pairs[1]]
        score = self.top(torch.cat([x, crossed], 1)).squeeze(1)
        return {"click": score.sigmoid()}


def dlrm(seed: int) -> Built:
    args, kwargs = dlrm_inputs(seed)
    return seeded(DLRM, seed), args, kwargs


def dlrm_inputs(seed: int) -> Example:
    ids = [
        tokens(_BATCH, _BAG, limit=_ROWS, seed=seed + table) for table in range(_TABLES)
    ]
    return (noise(_BATCH, _DENSE, seed=seed), ids), {}
