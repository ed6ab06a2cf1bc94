"""Small models of well-known kinds, with seeded random weights."""

from __future__ import annotations

import torch
from torch import nn

from tpu_export.model_zoo.seeds import noise, seeded, tokens
from tpu_export.model_zoo.zoo import Built


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 256),
            nn.GELU(),
            nn.LayerNorm(256),
            nn.Linear(256, 256),
            nn.SiLU(),
            nn.Linear(256, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def mlp(seed: int) -> Built:
    return seeded(MLP, seed), (noise(8, 64, seed=seed),), {}


class ConvAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 2, stride=2),
            nn.Sigmoid(),
        )

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        code = self.encoder(image)
        return {"code": code, "reconstruction": self.decoder(code)}


def conv_autoencoder(seed: int) -> Built:
    return seeded(ConvAutoencoder, seed), (noise(1, 3, 64, 64, seed=seed),), {}


class LSTMTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 17)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(token_ids))
        scores: torch.Tensor = self.head(states).log_softmax(-1)
        return scores


def lstm_tagger(seed: int) -> Built:
    return seeded(LSTMTagger, seed), (tokens(2, 20, limit=1000, seed=seed),), {}


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [
                _double(3, width),
                _double(width, 2 * width),
                _double(2 * width, 4 * width),
            ]
        )
        self.pool = nn.MaxPool2d(2)
        self.bottom = _double(4 * width, 8 * width)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * n, n, 2, stride=2)
            for n in (4 * width, 2 * width, width)
        )
        self.merge = nn.ModuleList(
            _double(2 * n, n) for n in (4 * width, 2 * width, width)
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skips = []
        x = image
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        scores: torch.Tensor = self.head(x)
        return scores


def unet(seed: int) -> Built:
    return seeded(UNet, seed), (noise(1, 3, 96, 96, seed=seed),), {}
