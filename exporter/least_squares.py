"""torch.linalg.lstsq, whose own kernel torch.export cannot run on fake tensors."""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tpu_export.converters.stablehlo.location import source_line
from tpu_export.exporter.refusals import NotExportableError

LSTSQ = torch.ops.aten.linalg_lstsq.default


def _lstsq(
    a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return solution, residuals, rank and singular values as torch does at full rank."""
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if vector else b
    solution = torch.linalg.pinv(a) @ columns
    values = a.new_empty(0).real
    residuals, rank = values, a.new_empty(0, dtype=torch.int64)
    if a.shape[-2] > a.shape[-1] and driver in ("gels", "gelsd", "gelss"):
        residuals = (a @ solution - columns).abs().square().sum(-2)
    if driver != "gels":
        rank = torch.linalg.matrix_rank(a)
    if driver in ("gelsd", "gelss"):
        values = torch.linalg.svdvals(a)
    return solution.squeeze(-1) if vector else solution, residuals, rank, values


KERNELS = ((LSTSQ, _lstsq),)


def check_residuals(program: ExportedProgram) -> ExportedProgram:
    """Return a program that reads no residuals whose size depends on the data.

    Raises:
        NotExportableError: it does; gelsd and gelss give none below full rank.
    """
    for node in program.graph.find_nodes(op="call_function", target=LSTSQ):
        driver = node.kwargs.get("driver")
        read = any(
            user.target is operator.getitem and user.args[1] == 1 and user.users
            for user in node.users
        )
        if read and driver in ("gelsd", "gelss") and node.meta["val"][1].numel():
            raise NotExportableError(
                f"the residuals of torch.linalg.lstsq at {source_line(node)} are there only "
                f"at full rank, with the driver {driver}",
                hint="compute them: (a @ solution - b).abs().square().sum(-2)",
            )
    return program
