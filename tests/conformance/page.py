"""docs/ops.md from results.jsonl: PYTHONPATH=tests python -m conformance.page > docs/ops.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from statistics import median

import torch
from torch._ops import OpOverload

from conformance.samples import DTYPES
from conformance.sweep import Entry, load_results, verdict
from tpu_export.converters.stablehlo.ops import find_rule

INTRODUCTION = """\
# Ops: what is covered, and what is right

Written from `tests/conformance/results.jsonl` by `make docs`; do not edit. Each entry of
torch's own `op_db` and `module_db` is exported as a small module around its sample inputs,
lowered, written as a `.tpuexe`, loaded, run on the CPU and compared with torch eager.
`make test-ops` repeats it (hours); CI repeats a part and fails where an entry that passed does not.

* **pass**: right on every sample that was run. Random ops pass when shape and dtype are right.
* **wrong**: it ran and a value, shape or dtype differs from torch's: the kind that must not be.
* **refused**: an error of ours says why not. **failed**: any other failure.
* Right on the samples that were run may be wrong on others: the tables say how many that were.
* Percentages are of the entries that torch.export takes; the others have no say.

An element is right when it is within tolerance of eager (float32: 1e-4 relative plus 2e-5), or
when it is about as near to the result in float64 as eager itself is. Integers and booleans
are exact.
Measured with torch {torch}, jax {jax}.
"""
PEERS = """\
## Next to other exporters

float32, torch 2.13.0. Samples an op: theirs up to three, through their exporters; ours {each}
(median).

| exporter | right on all samples | silently wrong |
| --- | --- | --- |
| tpu-export (this page) | {ours} | {wrong} |
| torchax 0.0.13 (662 entries that export) | 84.7 % | 11 |
| litert-torch 0.10.0, StableHLO (247 entries drawn at random) | 59.5 % | 4 |
"""
# Core ops without a rule. That torch decomposes them rightly is tested in
# tests/converters/stablehlo/ops/test_gradients.py.
OTHERWISE = {
    "aten.atan2.out": "decomposed",
    "aten.max_pool2d_with_indices_backward.default": "decomposed",
    "aten.native_group_norm_backward.default": "decomposed",
    "aten.native_layer_norm_backward.default": "decomposed",
    "aten.resize_.default": "refused: every node that names the tensor would change",
    "aten.sym_is_contiguous.default": "in no graph: torch.export answers it",
}


def rows(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    header = list(header)
    table = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n"


def totals(entries: Iterable[Entry]) -> Counter[str]:
    """Count the entries by verdict."""
    return Counter(map(verdict, entries))


def share(counts: Mapping[str, int]) -> str:
    """Return the passing share of what exports."""
    seen = sum(
        counts.get(k, 0) for k in ("pass", "wrong", "refused", "failed", "crashed")
    )
    return f"{100 * counts.get('pass', 0) / seen:.1f} %" if seen else "–"


def samples(entries: Iterable[Entry]) -> str:
    """Return how many samples the entry in the middle was run on."""
    return f"{median(sum(e['counts'].values()) for e in entries):g}"


def total_table(suite: str, results: list[Entry]) -> str:
    """Return the totals of a suite, a line per dtype."""
    lines = []
    chosen = [e for e in results if e["suite"] == suite]
    for dtype in [*DTYPES, "all"]:
        part = [e for e in chosen if dtype in ("all", e["dtype"])]
        counts = totals(part)
        if part:
            names = ("pass", "wrong", "refused", "failed", "crashed", "not exportable")
            numbers = [str(counts.get(k, 0)) for k in names]
            size = [str(len(part)), samples(part)]
            lines.append([dtype, *size, *numbers, share(counts)])
    header = ["dtype", "entries", "median samples", "pass", "wrong", "refused", "failed", "crashed",
              "not exportable", "pass of exportable"]  # fmt: skip
    return rows(header, lines)


def core_ops() -> list[OpOverload]:
    """Return the overloads that torch tags as core ATen."""
    found = []
    for (
        full
    ) in torch._C._dispatch_get_all_op_names():  # dir() lists what was used so far
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name) if namespace == "aten" else None
        op = getattr(packet, overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            found.append(op)
    return sorted(found, key=str)


def core_table(results: list[Entry]) -> str:
    """Return the core ATen overloads and what stands behind each."""
    seen: dict[str, int] = Counter()
    for entry in results:
        if verdict(entry) == "pass":
            seen.update(entry.get("ops", ()))
    lines = []
    for op in core_ops():
        how = "rule" if find_rule(op, "xla") else OTHERWISE.get(str(op), "none")
        lines.append([f"`{op}`", how, str(seen.get(str(op), 0))])
    count = sum(line[1] in ("rule", "decomposed") for line in lines)
    head = (
        f"## Core ATen: {count} of {len(lines)}\n\nThe last column counts passing entries "
        "above whose exported graph holds the op.\n\n"
    )
    return head + rows(["overload", "lowered by", "passing entries"], lines)


def failures(results: list[Entry]) -> str:
    """Return every entry that exports and does not pass, with its reason."""
    lines = []
    for entry in results:
        status = verdict(entry)
        if status in ("wrong", "failed", "crashed", "refused"):
            why = entry["reasons"].get(status, "").replace("|", "\\|")
            good = entry["counts"].get("pass", 0)
            many = sum(entry["counts"].values())
            name = f"{entry['name']} ({entry['suite']})"
            lines.append([name, entry["dtype"], status, f"{good} of {many}", why])
    return rows(["entry", "dtype", "verdict", "samples right", "first reason"], lines)


def matrix(suite: str, results: list[Entry]) -> str:
    """Return verdicts by entry and dtype: a letter or a sign each."""
    marks = {"pass": "✓", "wrong": "✗", "refused": "r", "failed": "f", "crashed": "c",
             "not exportable": "–", "no sample": "·"}  # fmt: skip
    found: dict[str, dict[str, str]] = {}
    for entry in results:
        if entry["suite"] == suite:
            found.setdefault(entry["name"], {})[entry["dtype"]] = marks[verdict(entry)]
    dtypes = list(DTYPES)
    lines = [
        [name, *(cells.get(d, "") for d in dtypes)] for name, cells in found.items()
    ]
    return rows(["entry", *dtypes], lines)


def page() -> str:
    """Return the page."""
    results = list(load_results().values())
    ops = [e for e in results if e["suite"] == "op" and e["dtype"] == "float32"]
    counts = totals(ops)
    legend = (
        "✓ pass, ✗ wrong, r refused, f failed, – torch.export refuses, · no sample, "
        "blank: not a dtype of the entry.\n"
    )
    return "\n".join([
        INTRODUCTION.format(torch=version("torch"), jax=version("jax")),
        "## op_db\n", total_table("op", results),
        "## module_db\n", total_table("module", results),
        PEERS.format(ours=share(counts), wrong=counts.get("wrong", 0), each=samples(ops)),
        core_table(results),
        "## Everything that does not pass\n", failures(results),
        "## op_db, entry by entry\n", legend, matrix("op", results),
        "## module_db, entry by entry\n", matrix("module", results),
    ])  # fmt: skip


if __name__ == "__main__":
    print(page(), end="")
