"""Each rule of docs/tpuexe.md section 3 is broken once, and named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.conformance import check_manifest
from tpu_export.runtime.manifest import Manifest
from tpu_export.runtime.signature import Dim, Parameter
from tpu_export.runtime.tree_rules import MAX_DEPTH

Make = Callable[..., Path]


def change(value: Any, steps: list[str], new: Any) -> Any:
    """Return a frozen value with the part at the end of the steps replaced: new(old)."""
    if not steps:
        return new(value) if callable(new) else new
    head, *rest = steps
    if isinstance(value, dict):
        return {**value, head: change(value.get(head), rest, new)}
    if isinstance(value, tuple):
        i = int(head)
        return (*value[:i], change(value[i], rest, new), *value[i + 1 :])
    return replace(value, **{head: change(getattr(value, head), rest, new)})


def nested(depth: int) -> dict[str, object]:
    tree: dict[str, object] = {"leaf": 0}
    for _ in range(depth):
        tree = {"list": [tree]}
    return tree


SIGNATURE = "programs/forward/signature"
MAIN = "programs/forward/main"
PREPARE = "programs/forward/prepare"
TREE = f"{SIGNATURE}/output_tree"
RUN = "executables/0"
BROKEN: tuple[tuple[str, str, Any, str], ...] = (
    ("linear", "version", 0, "3.3"),
    ("linear", "entries/weights~model.safetensors/sha256", "0" * 63 + "G", "3.2"),
    ("linear", "entries/weights~model.safetensors/size", -1, "3.2"),
    ("linear", f"{SIGNATURE}/name", "backward", "3.5"),
    ("linear", "weights/bias/dtype", "int4", "3.5"),
    ("linear", "weights/bias/key", "a\nb", "3.5"),
    ("linear", "weights/bias/shape", (-4,), "3.5"),
    ("linear", "weights/bias/shape", (5,), "3.6"),
    ("linear", "weights", lambda w: {"bias": w["bias"]}, "3.6"),
    ("linear", f"{SIGNATURE}/inputs/0/name", "x\x7f", "3.5"),
    ("linear", f"{SIGNATURE}/inputs/0/name", "", "3.5"),
    ("linear", f"{SIGNATURE}/inputs/0/name", "n" * 1025, "3.5"),
    ("linear", f"{SIGNATURE}/inputs/0/shape", (1,) * 33, "3.5"),
    ("linear", f"{SIGNATURE}/inputs/0/shape", (2**63,), "3.5"),
    ("linear", f"{SIGNATURE}/inputs/0/shape", ("n", 3), "3.7"),
    ("linear", f"{SIGNATURE}/inputs/0/shape", (3, 2), "3.6"),
    ("linear", f"{SIGNATURE}/inputs", lambda i: i * 2, "3.5"),
    ("linear", f"{SIGNATURE}/inputs", (), "3.9"),
    ("linear", f"{SIGNATURE}/outputs", (), "3.9"),
    ("linear", f"{SIGNATURE}/mutated_inputs", ("y",), "3.5"),
    ("linear", f"{SIGNATURE}/mutated_inputs", ("x",), "3.6"),
    ("linear", f"{SIGNATURE}/parameters", lambda p: p * 2, "3.5"),
    ("linear", f"{SIGNATURE}/parameters/0", Parameter("x", "keyword", {}), "3.9"),
    ("linear", f"{SIGNATURE}/parameters/0/name", "\n", "3.5"),
    ("linear", f"{SIGNATURE}/dims", (Dim("n"), Dim("n")), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("max"),), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("class"),), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("2n"),), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("n", 3, 2),), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("n", -1),), "3.7"),
    ("linear", f"{SIGNATURE}/dims", (Dim("n"),), "3.8"),
    ("linear", f"{MAIN}/arguments/1/name", "unknown", "3.6"),
    ("linear", f"{MAIN}/arguments/1/dtype", "int32", "3.6"),
    ("linear", f"{MAIN}/arguments", lambda a: (a[0], a[0], *a[1:]), "3.6"),
    ("linear", f"{MAIN}/arguments", lambda a: a[::-1], "3.6"),
    ("linear", f"{MAIN}/arguments", lambda a: a[1:], "3.6"),
    ("linear", f"{MAIN}/arguments/2/kind", "state", "3.6"),
    ("linear", f"{MAIN}/results/0/kind", "input", "3.6"),
    ("linear", f"{MAIN}/results", lambda r: r * 2, "3.6"),
    ("linear", "programs/forward/main_modules", {"cpu": "x"}, "3.6"),
    ("linear", "programs/forward/main_modules/gpu", "x", "3.6"),
    ("linear", "programs/forward/prepare_modules", {}, "3.6"),
    ("linear", PREPARE, None, "3.6"),
    ("linear", f"{PREPARE}/arguments/0/kind", "input", "3.6"),
    ("linear", f"{PREPARE}/arguments/0/name", "unknown", "3.6"),
    ("linear", f"{PREPARE}/arguments", lambda a: (*a, a[0]), "3.6"),
    ("linear", f"{PREPARE}/results/0/kind", "output", "3.6"),
    ("linear", f"{PREPARE}/results/0/shape", (4, 3), "3.6"),
    ("linear", f"{PREPARE}/results", lambda r: r * 2, "3.6"),
    ("linear", f"{PREPARE}/results", (), "3.6"),
    ("linear", f"{RUN}/signature", "other", "3.8"),
    ("linear", f"{RUN}/platform", "gpu", "3.8"),
    ("linear", f"{RUN}/dims", {"n": 1}, "3.8"),
    ("linear", f"{RUN}/layouts", (None,), "3.8"),
    ("linear", f"{RUN}/layouts/0", (0, 0), "3.8"),
    ("linear", f"{RUN}/layouts/0", (0, 1, 2), "3.8"),
    ("linear", f"{RUN}/prepare", None, "3.8"),
    ("counter", f"{RUN}/prepare", "x", "3.8"),
    ("counter", f"{SIGNATURE}/state/0/name", "other", "3.6"),
    ("counter", f"{SIGNATURE}/state/0/dtype", "int64", "3.6"),
    ("counter", "weights/count/shape", (1,), "3.6"),
    ("counter", f"{SIGNATURE}/state", lambda s: s * 2, "3.5"),
    ("counter", f"{SIGNATURE}/state", (), "3.6"),
    ("counter", f"{MAIN}/results", lambda r: r[:1], "3.6"),
    ("dynamic", f"{SIGNATURE}/inputs/0/shape", ("batch +", 2), "3.7"),
    ("dynamic", f"{SIGNATURE}/inputs/0/shape", ("__import__('os')", 2), "3.7"),
    ("dynamic", f"{RUN}/dims", {}, "3.8"),
    ("dynamic", f"{RUN}/dims", {"batch": 9}, "3.8"),
    ("dynamic", f"{RUN}/dims", {"batch": -1}, "3.8"),
    *(
        ("constrained", f"{SIGNATURE}/constraints", (constraint,), "3.10")
        for constraint in (
            "", "rows", "rows <= ", " <= rows", "rows<=columns", "rows  <= columns", "x > 2",
            "rows <= columns <= 9", "rows =< columns", "m > 2", "rows <= y", "rows / 2 <= 3",
            "rows <= columns and n > 2", "rows in columns",
        )
    ),
    ("constrained", "features", (), "3.10"),
    ("constrained", "features", ("constraints",) * 2, "3.10"),
    ("dynamic", "features", ("constraints",), "3.10"),
    ("engines", "features", (), "3.10"),
    ("dynamic", "features", ("cpu_engines",), "3.10"),
    ("engines", "cpu_engines", (), "3.10"),
    ("engines", "cpu_engines/0/signature", "backward", "3.13"),
    ("engines", "cpu_engines/0/engine", "onnx", "3.13"),
    ("engines", "cpu_engines/0/main", None, "3.13"),
    ("engines", "cpu_engines/1/main", "litert/model.tflite", "3.13"),
    ("engines", "cpu_engines/1/dims", {"batch": 1}, "3.13"),
    ("engines", "cpu_engines/1/dims", {"batch": 9}, "3.13"),
    ("engines", "cpu_engines/1/dims", {}, "3.13"),
    ("engines", "cpu_engines/0/microseconds", {"onnx": 1}, "3.13"),
    ("engines", "cpu_engines/0/microseconds", {"xla": -1}, "3.13"),
    ("engines", "cpu_engines/0/producers", {"x": "\n"}, "3.13"),
    ("ranged", "features", ("constraints",), "3.10"),
    ("ranged", "features", (), "3.10"),
    ("ranged", f"{SIGNATURE}/ranges", lambda r: r * 2, "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/0/name", "z", "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/0/low", 4, "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/0/high", 2**63, "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/1/high", 2**31, "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/1/because", "", "3.11"),
    ("ranged", f"{SIGNATURE}/ranges/1/because", "\n", "3.11"),
    *(
        ("linear", TREE, tree, "3.9")
        for tree in (
            {}, {"leaf": 1}, {"leaf": -1}, {"leaf": True}, {"leaf": "0"}, {"leaf": 0, "a": 1},
            {"const": [1]}, {"list": {"leaf": 0}}, {"list": [{"leaf": 0}, {"leaf": 0}]},
            {"list": [0]}, {"dict": [["a"]]}, {"dict": [[None, {"leaf": 0}]]},
            {"dict": [[["a"], {"leaf": 0}]]}, {"dict": {"a": {"leaf": 0}}},
            {"dict": [["a", {"leaf": 0}], ["a", {"const": 1}]]},
            {"record": "R", "kind": "class", "fields": [["a", {"leaf": 0}]]},
            {"record": "R", "kind": "namedtuple", "fields": [["_a", {"leaf": 0}]]},
            {"record": "R", "kind": "namedtuple", "fields": [["if", {"leaf": 0}]]},
            {"record": "R S", "kind": "namedtuple", "fields": [["a", {"leaf": 0}]]},
            {"record": 1, "kind": "mapping", "fields": [["a", {"leaf": 0}]]},
            nested(MAX_DEPTH),
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize(("name", "path", "new", "rule"), BROKEN)
def test_broken(name: str, path: str, new: Any, rule: str, artifact: Make) -> None:
    manifest = sound(name, artifact)
    steps = [step.replace("~", "/") for step in path.split("/")]  # ~ is an entry's /
    broken = change(manifest, steps, new)
    with pytest.raises(ArtifactCorruptedError, match=re.escape(f"(rule {rule})")):
        check_manifest(broken)


def sound(name: str, artifact: Make) -> Manifest:
    if name not in _SOUND:
        compiled = [{"batch": 2} if name == "dynamic" else {}]
        if name in ("constrained", "ranged", "engines"):
            compiled = []
        _SOUND[name] = Artifact(artifact(name, compiled=compiled)).manifest
    return _SOUND[name]


_SOUND: dict[str, Manifest] = {}


@pytest.mark.parametrize(
    "name", ["linear", "counter", "dynamic", "constrained", "ranged", "engines"]
)
def test_sound(name: str, artifact: Make) -> None:
    check_manifest(sound(name, artifact))


def test_the_deepest_tree(artifact: Make) -> None:
    manifest = sound("linear", artifact)
    steps = TREE.split("/")
    check_manifest(change(manifest, steps, nested(MAX_DEPTH - 1)))


def test_a_weight_of_one_signature_is_no_state_of_another(artifact: Make) -> None:
    linear, counter = sound("linear", artifact), sound("counter", artifact)
    slot = replace(linear.programs["forward"].main.arguments[1], kind="state")
    spec = replace(linear.programs["forward"].signature.inputs[0], name="bias")
    spec = replace(spec, shape=slot.shape, dtype=slot.dtype)
    other = counter.programs["forward"]
    for steps, new in (
        ("signature/name", "other"),
        ("signature/state/0", spec),
        ("main/arguments/0", slot),
        ("main/results/1", slot),
    ):
        other = change(other, steps.split("/"), new)
    alone = replace(linear, programs={"other": other}, executables=())
    check_manifest(alone)
    both = replace(alone, programs={**linear.programs, "other": other})
    with pytest.raises(ArtifactCorruptedError, match="both weight and state"):
        check_manifest(both)
