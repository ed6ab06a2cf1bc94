"""Embeddings are one op of LiteRT's, that the quantizer knows."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.quantize import quantize, read_recipe

Body = Callable[..., LiteRtModel]


def test_a_lookup_is_one_op_and_its_table_shared_and_quantized(
    right_in_both: Body,
) -> None:
    table = torch.randn(300, 32)

    def tied(index: torch.Tensor) -> torch.Tensor:
        return F.linear(F.embedding(index, table), table)

    plain = right_in_both(tied, torch.tensor([[1, 299, 0], [7, 7, 8]]))
    assert plain.report.ops["forward"]["EMBEDDING_LOOKUP"] == 1
    assert "GATHER_ND" not in plain.report.ops["forward"]
    small = quantize(plain, read_recipe("dynamic-int8")).model
    assert plain.report.size > table.nbytes > 2 * small.report.size


def test_lookups_of_other_shapes_and_dtypes(right_in_both: Body) -> None:
    integers = torch.arange(12).view(4, 3)
    index = torch.tensor(2, dtype=torch.int32)

    def several(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one_row = torch.ones(1, 5)
        return (
            F.embedding(index, torch.ones(4, 3)),
            F.embedding(index, integers),
            F.embedding(index[None] * 0, one_row),
        )

    right_in_both(several, index)
