"""Measure everything in one run and write docs/benchmarks.md.

    python benchmarks/run.py --output docs/benchmarks.md [--models resnet50,bert-base]

Each measurement is a process of its own; ratios compare contenders of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
MODELS = ("resnet50", "vit-b-16", "bert-base", "smollm2-135m", "efficientnet-lite0")
PACKAGES = ("torch", "jax", "jaxlib", "libtpu", "onnxruntime", "transformers", "numpy")


def measure(script: str, name: str, folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, str(HERE / script), name, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"},
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    sys.exit(f"{script} {name} failed:\n{done.stderr[-3000:]}")


def import_times() -> dict[str, float]:
    def best(*argv: str) -> float:
        took = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([*argv], check=True, capture_output=True)
            took.append(time.perf_counter() - start)
        return min(took)

    command = str(Path(sys.executable).with_name("tpu-export"))
    bare = best(sys.executable, "-c", "pass")
    return {
        "python -c pass": bare,
        "import tpu_export": best(sys.executable, "-c", "import tpu_export") - bare,
        "tpu-export --help": best(command, "--help"),
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def build_section(results: dict[str, dict]) -> str:
    rows = []
    for name, r in results.items():
        b = r["build"]
        t = b["times"]
        rows.append(
            [
                name,
                f"{t['torch.export']:.2f}",
                f"{t['lower']:.2f}",
                f"{t['compile v5e + v6e + cpu']:.1f}",
                f"{t['write']:.2f}",
                f"{b['onnx_export']:.1f}",
                f"{b['weights'] / 1e6:.1f}",
                f"{b['artifact_over_weights_and_executables']:.4f}",
                f"{b['memory_over_weights']:.2f}",
            ]
        )
    header = ["model", "torch.export s", "lower s", "compile v5e+v6e+cpu s", "write s"]
    header += [
        "torch.onnx.export s",
        "weights MB",
        "artifact / (weights + executables)",
    ]
    return table([*header, "peak memory above the model / weights"], rows)


def ratio_section(results: dict[str, dict], key: str, unit: float) -> str:
    labels = list(next(iter(results.values()))[key])
    rows = []
    for name, r in results.items():
        ours = r[key]["tpuexe"]
        rows.append(
            [name, f"{ours * unit:.2f}"]
            + [f"{r[key][k] / ours:.2f}" for k in labels if k != "tpuexe"]
        )
    header = ["model", "tpuexe " + ("ms" if unit == 1e3 else "s")]
    return table(header + [f"{k} / tpuexe" for k in labels if k != "tpuexe"], rows)


def estimate_section(results: dict[str, dict]) -> str:
    rows = []
    for name, r in results.items():
        for topology, report in r["build"]["estimates"].items():
            cycles = report["cycles"]
            rows.append([name, topology, f"{cycles / 1e3:.0f}"])
    return table(["model", "topology", "estimated kilocycles"], rows)


def document(results: dict[str, dict], imports: dict[str, float]) -> str:
    versions = ", ".join(f"{p} {version(p)}" for p in PACKAGES)
    lines = "\n".join(f"* `{k}`: {v * 1e3:.0f} ms" for k, v in imports.items())
    compiles = {n: r["cold"]["xla_compiles"] for n, r in results.items()}
    return f"""# Benchmarks

Written by `make bench` ({time.strftime("%Y-%m-%d")}). Do not edit.

{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python
{platform.python_version()}; {versions}.
Minimum of interleaved rounds in one run. A ratio above 1 means that the contender is
slower than ours. No TPU was used: TPU figures are the compiler's estimates.
LiteRT files next to litert-torch's: [litert-benchmarks.md](litert-benchmarks.md).

## Building

{build_section(results)}

Peak memory is the growth of the exporting process above the loaded model; the compile
workers are processes of their own.

## Latency on the CPU

{ratio_section(results, "latency", 1e3)}

## Cold start: process start to first answer

{ratio_section(results, "cold_seconds", 1.0)}

XLA compilations during a cold start: {compiles}.

## TPU estimates

Next to the peers' programs, compiled by the same libtpu: [tpu-estimates.md](tpu-estimates.md).

{estimate_section(results)}

## Import and help

{lines}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            print(f"measuring {name}", file=sys.stderr)
            build = measure("build_times.py", name, Path(folder))
            latency = measure("latency.py", name, Path(folder))
            cold = measure("cold_start.py", name, Path(folder))
            results[name] = {
                "build": build,
                "latency": latency,
                "cold": cold,
                "cold_seconds": cold["seconds"],
            }
    options.output.write_text(document(results, import_times()))


if __name__ == "__main__":
    main()
