"""The models of the LiteRT benchmark, and inputs: the same in every environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tpu_export.model_zoo.zoo import entry

Example: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
CAUSAL = "causal-5m"
MODELS = (
    "mobilenetv2",
    "efficientnet-lite0",
    "resnet50",
    "minilm-l6-v2",
    "bert-base",
    CAUSAL,
)
HEAVY = ("smollm2-135m",)
CALLS = 4  # real or seeded ones: for calibration, and for the errors


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        qkv = self.qkv(self.norm_1(x)).view(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Causal(nn.Module):
    """Six layers of width 256: 5 million parameters."""

    def __init__(self, vocabulary: int = 1000, length: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 256)
        self.places = nn.Embedding(length, 256)
        self.blocks = nn.ModuleList(_Block(256, 4) for _ in range(6))
        self.norm = nn.LayerNorm(256)
        self.register_buffer("positions", torch.arange(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(self.positions)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def build(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a model, and the args and kwargs of its example."""
    if name != CAUSAL:
        built = entry(name).build()
        for tensor in (*built[0].parameters(), *built[0].buffers()):
            tensor.sum()  # one that is mapped from a file is loaded when it is read
        return built
    torch.manual_seed(0)
    return Causal().eval(), (torch.randint(0, 1000, (1, 128)),), {}


class Flat(nn.Module):
    """A model whose result is a tuple of tensors: no class of a library that must be there."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        leaves = pytree.tree_leaves(self.model(*args, **kwargs))
        return tuple(t for t in leaves if isinstance(t, torch.Tensor))


def calls(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Example]:
    """Return the example, then the zoo's own inputs or seeded ones like the example."""
    found: list[Example] = [(args, kwargs)]
    for seed in range(1, CALLS):
        own = entry(name).second_inputs(seed) if name != CAUSAL else None
        found.append(own or _like((args, kwargs), seed))
    return found


def _like(example: Example, seed: int) -> Example:
    generator = torch.Generator().manual_seed(seed)

    def draw(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_floating_point():
            return torch.randn(value.shape, generator=generator)
        if value.numel() == 0 or int(value.max()) <= 1:
            return value  # a mask
        return torch.randint(0, int(value.max()) + 1, value.shape, generator=generator)

    args, kwargs = pytree.tree_map(draw, example)
    return args, kwargs


def weight_bytes(model: nn.Module) -> int:
    tensors = {*model.parameters(), *model.buffers()}
    return sum(t.numel() * t.element_size() for t in tensors)


def labelled(example: Example) -> dict[str, np.ndarray]:
    """Return the tensors by "0", "1" … or their keyword."""
    args, kwargs = example
    flat = {str(i): value for i, value in enumerate(args)} | kwargs
    return {n: t.numpy() for n, t in flat.items() if isinstance(t, torch.Tensor)}


def expected(model: nn.Module, examples: list[Example]) -> list[dict[str, np.ndarray]]:
    """Return torch eager's outputs in float64, by "0", "1" … or their key."""
    double = model.double()

    def wide(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if is_float else value

    with torch.no_grad():
        return [
            _outputs(double(*args, **kwargs))
            for args, kwargs in (pytree.tree_map(wide, e) for e in examples)
        ]


def _outputs(result: Any) -> dict[str, np.ndarray]:
    if isinstance(result, Mapping):
        items = dict(result)
    else:
        items = {str(i): t for i, t in enumerate(pytree.tree_leaves(result))}
    return {n: t.numpy() for n, t in items.items() if isinstance(t, torch.Tensor)}
