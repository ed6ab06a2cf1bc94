"""An artifact is loaded by a process that has lowered nothing: what lowering set up is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tpu_export as tx

CODE = """
import sys
import numpy as np
import tpu_export

program = tpu_export.load(sys.argv[1], device="cpu", executables="require")
np.savez(sys.argv[2], *program(np.load(sys.argv[3])))
assert "torch" not in sys.modules
"""


class Lapack(torch.nn.Module):
    def forward(self, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        symmetric = a @ a.mT
        return (
            torch.linalg.inv(a),
            torch.linalg.svdvals(a),
            torch.linalg.eigvalsh(symmetric),
            torch.linalg.cholesky(symmetric + torch.eye(4, dtype=a.dtype)),
            torch.linalg.qr(a).R.abs(),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lapack(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    a = torch.randn(4, 4, dtype=dtype)
    path, out, given = (tmp_path / n for n in ("m.tpuexe", "y.npz", "a.npy"))
    tx.export(Lapack(), (a,), topologies=(), output=path)
    np.save(given, a.numpy())
    subprocess.run(
        [sys.executable, "-c", CODE, path, out, given], check=True, timeout=120
    )
    found = np.load(out)
    for name, expected in zip(found.files, Lapack()(a), strict=True):
        np.testing.assert_allclose(found[name], expected.numpy(), rtol=1e-4, atol=1e-5)


SAVED = """
import sys
import torch
from torch.ao.quantization.fx import _decomposed
ops = torch.ops.quantized_decomposed

class M(torch.nn.Module):
    def forward(self, x):
        q = ops.quantize_per_tensor.default(x, 0.1, 3, -128, 127, torch.int8)
        return ops.dequantize_per_tensor.default(q, 0.1, 3, -128, 127, torch.int8)

torch.export.save(torch.export.export(M(), (torch.randn(4),)), sys.argv[1])
"""


def test_a_quantized_program_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    subprocess.run([sys.executable, "-c", SAVED, path], check=True, timeout=120)
    code = """
import sys
import tpu_export
tpu_export.export(sys.argv[1], target="stablehlo", output=sys.argv[2])
"""
    command = [sys.executable, "-c", code, path, tmp_path / "out"]
    subprocess.run(command, check=True, timeout=120)
