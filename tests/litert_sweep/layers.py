"""Layers: recurrent, embedding, norms, activations, attention; cumulative ops."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litert_sweep.case import case


def _recurrent(kind: type[nn.RNNBase], **options: Any) -> tuple[Any, ...]:
    """Lengths 1, 5 and 32."""
    layer = kind(3, 4, num_layers=2, bidirectional=True, batch_first=True, **options)

    def forward(x: Tensor, layer: nn.Module) -> list[Tensor]:
        found = [layer(x[:, :n]) for n in (1, 5, 32)]
        return [y for pair in found for y in (pair[0], *_flat(pair[1]))]

    return forward, torch.randn(2, 32, 3), layer


def _flat(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@case("recurrent")
def lstm() -> Any:
    return _recurrent(nn.LSTM)


@case("recurrent")
def lstm_projected() -> Any:
    return _recurrent(nn.LSTM, proj_size=2)


@case("recurrent")
def gru() -> Any:
    return _recurrent(nn.GRU)


@case("recurrent")
def rnn() -> Any:
    return _recurrent(nn.RNN, nonlinearity="relu")


@case("recurrent")
def recurrent_one_way() -> Any:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = nn.LSTM(3, 4), nn.GRU(4, 5)
            self.cell = nn.LSTMCell(5, 2)

        def forward(self, x: Tensor, h: Tensor) -> Any:
            y, _ = self.gru(self.lstm(x, (h, h * 0))[0])
            return y, self.cell(y[0])

    return Two(), torch.randn(5, 2, 3), torch.randn(1, 2, 4)


@case("embedding")
def embedding() -> Any:
    table = nn.Embedding(9, 4, padding_idx=2)
    return table, torch.randint(0, 9, (2, 5))


@case("embedding")
def embedding_bag() -> Any:
    bags = [nn.EmbeddingBag(9, 4, mode=m) for m in ("sum", "mean", "max")]

    def forward(i: Tensor, *bags: nn.Module) -> list[Tensor]:
        return [bag(i) for bag in bags]

    return forward, torch.randint(0, 9, (3, 5)), *bags


@case("cumulative")
def running_sums() -> Any:
    def forward(x: Tensor, i: Tensor) -> list[Tensor]:
        whole = [i.cumsum(0), (i % 5).cumprod(1)]
        return [x.cumsum(1), x.cumsum(0), x.cumprod(1), *whole, x.diff(dim=1)]

    return forward, torch.randn(3, 33), torch.randint(-9, 9, (3, 12))


@case("cumulative")
def running_extremes() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        return [*torch.cummax(x, 1), *torch.cummin(x, 0)]

    return forward, torch.randn(3, 33)


@case("cumulative", quick=True)
def logcumsumexp() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        far = torch.cat([x * 100, x[:, :1] - float("inf")], 1)
        return [x.logcumsumexp(1), x.logcumsumexp(0), far.logcumsumexp(1)]

    return forward, torch.randn(3, 33)


@case("activation")
def activations() -> Any:
    names = "gelu hardswish softplus silu mish hardsigmoid elu selu celu relu6 tanh"
    more = "leaky_relu logsigmoid softsign hardtanh tanhshrink softshrink hardshrink"

    def forward(x: Tensor) -> list[Tensor]:
        found = [getattr(F, n)(x) for n in f"{names} {more}".split()]
        tanh = F.gelu(x, approximate="tanh")
        return [*found, tanh, F.glu(x), F.softmax(x, 0), F.log_softmax(x, 1), x.erf()]

    return forward, torch.randn(4, 10) * 3


@case("norm")
def norms() -> Any:
    def forward(x: Tensor, *layers: nn.Module) -> list[Tensor]:
        return [*(layer(x) for layer in layers), F.normalize(x, dim=1)]

    layers = [
        nn.LayerNorm([6, 5]),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.BatchNorm2d(4),
        nn.LocalResponseNorm(3),
        nn.RMSNorm(5),
    ]
    return forward, torch.randn(2, 4, 6, 5), *layers


@case("attention")
def attentions() -> Any:
    def forward(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        bias = q @ k.repeat_interleave(2, 1).mT
        return [
            F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
            F.scaled_dot_product_attention(q, q, q, attn_mask=bias > 0.1),
            F.scaled_dot_product_attention(q, q, q, attn_mask=bias, scale=0.3),
        ]

    return forward, *(torch.randn(2, h, 5, 8) for h in (4, 2, 2))


@case("attention")
def multihead() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return lambda x, layer: layer(x, src_mask=mask), torch.randn(2, 5, 8), layer


@case("shape")
def einsums() -> Any:
    def forward(x: Tensor, y: Tensor) -> list[Tensor]:
        rules = ("bij,bjk->bik", "bij,bjk->ik", "bij,bjk->kib", "bij,bkj->bjik")
        return [torch.einsum(r, x, y) for r in rules]

    return forward, torch.randn(2, 4, 4), torch.randn(2, 4, 4)


@case("shape")
def rolls_flips_pads() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        modes = ("reflect", "replicate", "circular")
        pads = [F.pad(x, (1, 2, 2, 1), mode=m) for m in modes]
        crops = [F.pad(x, (-1, 2), value=3.0), F.pad(x, (0, 0, 1, 1))]
        return [x.roll(2, -1), x.roll((1, -1), (2, 3)), x.flip(1, 3), *pads, *crops]

    return forward, torch.randn(1, 2, 5, 6)


@case("shape")
def shapes() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        return [
            *x.split((2, 3), 1),
            *x.chunk(2, 2),
            torch.stack([x, x * 2], -1),
            x.repeat(1, 2, 1),
            x.repeat_interleave(3, 1),
            x.permute(2, 0, 1)[::2],
            x.unfold(1, 2, 1),
            torch.meshgrid(x[0, :, 0], x[0, 0], indexing="ij")[1].contiguous(),
            x.rot90(1, (1, 2)),
            torch.tensordot(x, x, ([0, 1], [0, 1])),
        ]

    return forward, torch.randn(2, 5, 6)


@case("shape")
def reductions() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        return [
            x.sum(1),
            x.mean((0, 2)),
            x.amax(2),
            x.prod(1),
            x.std(1),
            x.var(2, correction=0),
            x.logsumexp(1),
            x.norm(dim=1),
            x.norm(1, dim=0),
            torch.cdist(x, x),
        ]

    return forward, torch.randn(2, 5, 6)
