"""tpu-export diff A.tflite B.tflite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.output import print_json, size_text
from tpu_export.cli.tflite import is_tflite

MOST = 20  # tensors that are named


@click.command("diff")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def command(first: str, second: str, *, as_json: bool) -> None:
    """Say how two .tflite files differ; the exit status is 1 where they do.

    Compared are signatures, dtypes, shapes and scales, ops, weights by their values, and
    metadata. Weights that have another name and the same bytes are the same.
    """
    from tpu_export.cli.tflite_inspect import summary

    for path in (first, second):
        if not is_tflite(path):
            raise UsageError(
                f"{path} is no .tflite", hint="`tpu-export inspect` shows a .tpuexe"
            )
    same = _same_bytes(Path(first), Path(second))
    a, b = (summary(Path(p), hashes=True) for p in (first, second))
    found = [] if same else [*differences(a, b)]
    if not same and not found:
        found = [{"what": "bytes", "text": "only the arrangement of the bytes"}]
    if as_json:
        print_json({"same": same, "differences": found})
    else:
        click.echo("the same bytes" if same else "\n".join(d["text"] for d in found))
    click.get_current_context().exit(0 if same else 1)


def _same_bytes(first: Path, second: Path) -> bool:
    if first.stat().st_size != second.stat().st_size:
        return False
    return first.read_bytes() == second.read_bytes()


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what differs between two summaries: {"what", "text"} and details."""
    if a["size"] != b["size"]:
        text = f"size: {size_text(a['size'])} -> {size_text(b['size'])}"
        yield {"what": "size", "text": text, "first": a["size"], "second": b["size"]}
    for name in _both(a["signatures"], b["signatures"]):
        one, other = a["signatures"].get(name), b["signatures"].get(name)
        if one is None or other is None:
            side = "second" if one is None else "first"
            yield {"what": "signature", "text": f"{name}: only in the {side}"}
        else:
            yield from _signature(name, one, other)
    yield from _weights(a["constants"], b["constants"])
    yield from _metadata(a["metadata"] or {}, b["metadata"] or {})


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _signature(
    name: str, a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for side in ("inputs", "outputs"):
        one, other = ({s["name"]: s["text"] for s in x[side]} for x in (a, b))
        for slot in _both(one, other):
            if one.get(slot) != other.get(slot):
                text = f"{name}: {side[:-1]} {slot}: {one.get(slot, 'none')}"
                text += f" -> {other.get(slot, 'none')}"
                yield {"what": side, "text": text}
        if list(one) != list(other) and set(one) == set(other):
            yield {"what": side, "text": f"{name}: the order of the {side}"}
    for op in _both(a["ops"], b["ops"]):
        before, after = a["ops"].get(op, 0), b["ops"].get(op, 0)
        if before != after:
            yield {"what": "ops", "text": f"{name}: {op} {before} -> {after}"}


def _weights(a: list[Any], b: list[Any]) -> Iterator[dict[str, Any]]:
    one, other = ({c["sha256"]: c for c in side} for side in (a, b))
    gone = [c for digest, c in one.items() if digest not in other]
    fresh = [c for digest, c in other.items() if digest not in one]
    named = {c["name"]: c for c in fresh}
    for constant in gone[:MOST]:
        after = named.pop(constant["name"], None)
        what = f"weight {constant['name']}: {_type(constant)}"
        if after is None:
            text = f"{what}: only in the first"
        elif _type(constant) == _type(after):
            text = f"{what}: other values"
        else:
            text = f"{what} -> {_type(after)}"
        yield {"what": "weights", "text": text}
    for constant in list(named.values())[:MOST]:
        text = f"weight {constant['name']}: {_type(constant)}: only in the second"
        yield {"what": "weights", "text": text}
    more = max(len(gone) - MOST, 0) + max(len(named) - MOST, 0)
    if more:
        yield {"what": "weights", "text": f"{more} further weights"}


def _type(constant: Mapping[str, Any]) -> str:
    scales = f" of {constant['scales']} scales" if constant["scales"] else ""
    return f"{constant['dtype']}{list(constant['shape'])}{scales}"


def _metadata(
    a: Mapping[str, Any], b: Mapping[str, Any], path: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the paths whose values differ, down to what is no object."""
    for key in _both(a, b):
        here = f"{path}.{key}" if path else key
        one, other = a.get(key), b.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _metadata(one, other, here)
        elif one != other:
            text = f"metadata {here}: {_short(one)} -> {_short(other)}"
            yield {"what": "metadata", "text": text}


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
