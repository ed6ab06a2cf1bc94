"""Compare LiteRT exports with litert-torch, ONNX Runtime and ExecuTorch; write a page.

    python benchmarks/litert_peers.py --output docs/litert-benchmarks.md
        [--models mobilenetv2,resnet50] [--heavy] [--recipes dynamic-int8,static-int8]
        [--peer-python PATH] [--executorch-python PATH] [--keep FOLDER]

Each measurement is a process of its own. The peers' environments are made once, in a cache
folder (TPU_EXPORT_BENCH_CACHE). With --keep, a model whose result is in the folder is not
measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_environments as environments
import litert_models as models
import litert_page

from tpu_export.converters.litert.quantize import read_recipe

HERE = Path(__file__).parent
RECIPES = ("dynamic-int8", "weight-int8", "static-int8", "fp16")


def measure(python: Path, script: str, *argv: str) -> dict[str, Any]:
    """Return what a script found, or why it failed."""
    done = subprocess.run(
        [str(python), str(HERE / script), *argv],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(HERE.parent / "src"),
        },
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return found
    words = [s for s in done.stderr.splitlines() if s.strip()][-1:]
    return {"failed": f"{script}, status {done.returncode}: {' '.join(words)[:300]}"}


def model_result(
    name: str, folder: Path, peer: Path | str, executorch: Path | str, recipes: Any
) -> dict[str, Any]:
    """Measure one model; its files come and go in the folder."""
    (folder / "recipes.json").write_text(json.dumps(recipes))
    own = Path(sys.executable)
    where = str(folder)
    ours = measure(own, "litert_ours.py", name, where)
    if "failed" in ours:
        return {"ours": ours}
    sides: dict[str, Any] = {"ours": {k: ours[k] for k in ("inputs", "outputs")}}
    sides["theirs"] = {"inputs": None, "outputs": None}
    (folder / "sides.json").write_text(json.dumps(sides))
    theirs = _of(peer, lambda p: measure(p, "litert_theirs.py", name, where))
    race = measure(own, "litert_race.py", where)
    third = _of(executorch, lambda p: measure(p, "litert_executorch.py", where))
    watched = ("--watch",)
    ours_watched = measure(own, "litert_ours.py", name, where, *watched)
    theirs_watched = _of(
        peer, lambda p: measure(p, "litert_theirs.py", name, where, *watched)
    )
    return {
        "ours": ours,
        "theirs": theirs,
        "ours watched": ours_watched,
        "theirs watched": theirs_watched,
        "race": race,
        "executorch": third,
    }


def _of(python: Path | str, call: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    return {"failed": python} if isinstance(python, str) else call(python)


def _python(given: Path | None, made: Callable[[], Path]) -> Path | str:
    if given is not None:
        return given
    try:
        return made()
    except environments.UnavailableError as error:
        print(f"not installed: {error}", file=sys.stderr)
        return f"not installed: {error}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", default=",".join(models.MODELS))
    parser.add_argument("--heavy", action="store_true", help="smollm2-135m too")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("--executorch-python", type=Path)
    parser.add_argument("--keep", type=Path, help="folder of results, to go on from")
    options = parser.parse_args()
    peer = _python(options.peer_python, environments.litert_torch)
    executorch = _python(options.executorch_python, environments.executorch)
    names = [*options.models.split(","), *(models.HEAVY if options.heavy else ())]
    wanted = [r for r in options.recipes.split(",") if r]
    recipes = {r: read_recipe(r).rules[0].configs() for r in wanted}
    results: dict[str, Any] = {}
    for name in names:
        kept = options.keep / f"{name}.json" if options.keep else None
        if kept is None or not kept.exists():
            print(f"measuring {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                found = model_result(name, Path(folder), peer, executorch, recipes)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found))
            results[name] = found
        else:
            results[name] = json.loads(kept.read_text())
    options.output.write_text(litert_page.document(results))


if __name__ == "__main__":
    main()
