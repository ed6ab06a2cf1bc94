"""tpu-export demo: one photograph through eager, .tpuexe and .tflite."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tpu_export.cli.failures import writable_folder
from tpu_export.cli.output import ProgressLines, print_result
from tpu_export.runtime.errors import TpuExportError

MODEL = "efficientnet-lite0"
TOP = 5
# What a serving process does. It proves that torch was not needed.
SERVE = """
import sys
import numpy as np
from tpu_export.runtime.program import load
program = load(sys.argv[1])
np.save(sys.argv[3], program(np.load(sys.argv[2])))
assert "torch" not in sys.modules
print(program.device, "|", "; ".join(program.origin.values()))
"""


class ServeError(TpuExportError):
    """The process that serves the .tpuexe ended without an answer."""

    code = "TPX-0003"

    def __init__(self, status: int, stderr: str) -> None:
        """Say how it ended, and its last line."""
        end = f"signal {-status}" if status < 0 else f"exit status {status}"
        last = (stderr.strip().splitlines() or ["it wrote nothing"])[-1].strip()
        super().__init__(
            f"the process that loads the .tpuexe ended with {end}: {last}",
            hint="all that it wrote to standard error is above; see also `tpu-export doctor`",
        )


@click.command("demo")
@click.option(
    "-o", "--output", default="demo-output", show_default=True, type=click.Path()
)
@click.option("-q", "--quiet", is_flag=True, help="No progress lines.")
def command(output: str, quiet: bool) -> None:
    """Export EfficientNet-Lite0 for both targets and compare what they see in a photograph."""
    from tpu_export.cli.models import source
    from tpu_export.parity.export import export

    folder = writable_folder(output)
    results = []
    for target, suffix in (("cloud-tpu", ".tpuexe"), ("litert", ".tflite")):
        click.echo(f"\n== {MODEL} for {target}")
        progress = ProgressLines(quiet=quiet)
        path = folder / f"{MODEL}{suffix}"
        results.append(
            export(
                source(f"zoo:{MODEL}"), target=target, output=path, progress=progress
            )
        )
        print_result(results[-1])
    click.echo("\n== the photograph")
    for line in answers(folder):
        click.echo(line)
    click.echo("\nfiles: " + ", ".join(str(r.output) for r in results))


def answers(folder: Path) -> list[str]:
    """Return the five likeliest classes from eager, .tpuexe and .tflite, side by side."""
    import torch

    from tpu_export.model_zoo.zoo import entry

    model, args, _ = entry(MODEL).build()
    tensor: Any = args[0]
    photograph = tensor.numpy()
    run: Any = model
    with torch.no_grad():
        eager = run(tensor).numpy()
    served, how = serve(folder / f"{MODEL}.tpuexe", photograph)
    edge = on_phone(folder / f"{MODEL}.tflite", photograph)
    columns = [likeliest(logits) for logits in (eager, served, edge)]
    lines = [f".tpuexe in a fresh process without torch, on {how}"]
    lines.append("".join(f"{name:<24}" for name in ("eager", ".tpuexe", ".tflite")))
    lines += [
        "".join(f"class {number:<4} {p:8.5f}     " for number, p in row)
        for row in zip(*columns, strict=True)
    ]
    return [*lines, "(652 is ImageNet's military uniform)"]


def serve(artifact: Path, photograph: Any) -> tuple[Any, str]:
    """Run the .tpuexe in a process of its own; returns logits and what ran them.

    Raises:
        ServeError: that process failed; what it wrote is shown first.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npy", Path(folder) / "out.npy"
        np.save(source, photograph)
        done = subprocess.run(
            [sys.executable, "-c", SERVE, str(artifact), str(source), str(target)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            click.echo(done.stderr, err=True, nl=False)
            raise ServeError(done.returncode, done.stderr)
        return np.load(target), done.stdout.strip()


def on_phone(path: Path, photograph: Any) -> Any:
    """Run the .tflite that was written, in LiteRT's Interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path)).get_signature_runner("forward")
    (name,) = runner.get_input_details()
    (logits,) = runner(**{name: photograph}).values()
    return logits


def likeliest(logits: Any) -> list[tuple[int, float]]:
    """Return (class, probability) of the likeliest classes."""
    import numpy as np

    exps = np.exp(logits[0].astype(np.float64) - logits.max())
    shares = exps / exps.sum()
    return [(int(i), float(shares[i])) for i in np.argsort(-shares)[:TOP]]
