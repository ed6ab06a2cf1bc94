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
