"""Compiled executables by content: building the same program twice is a read.

An entry is one file: the SHA-256 of what follows, a line of JSON with the sizes of the
parts, and the parts. It is written to a temporary name and renamed; one that does not
match its hash is removed and counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory() -> Path:
    """Return $TPU_EXPORT_CACHE, else tpu-export in the user's cache folder."""
    if own := os.environ.get("TPU_EXPORT_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu-export"


def cache_key(facts: Mapping[str, object], modules: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over everything that decides what a compiler makes."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(modules):
        digest.update(f"\n{name}:{len(modules[name])}\n".encode())
        digest.update(modules[name])
    return digest.hexdigest()


def read_entry(directory: Path, key: str) -> dict[str, bytes] | None:
    """Return an entry's parts, or None when it is absent or damaged."""
    path = directory / key[:2] / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    parts = _unpack(data)
    if parts is None:
        with contextlib.suppress(OSError):
            path.unlink()
    return parts


def write_entry(directory: Path, key: str, parts: Mapping[str, bytes]) -> None:
    """Store an entry; a cache that cannot be written to is not an error."""
    path = directory / key[:2] / key
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(parts))
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise


def _pack(parts: Mapping[str, bytes]) -> bytes:
    sizes = {name: len(data) for name, data in parts.items()}
    hashed = json.dumps(sizes).encode() + b"\n" + b"".join(parts.values())
    return hashlib.sha256(hashed).hexdigest().encode() + b"\n" + hashed


def _unpack(data: bytes) -> dict[str, bytes] | None:
    expected, _, hashed = data.partition(b"\n")
    if hashlib.sha256(hashed).hexdigest().encode() != expected:
        return None
    line, _, body = hashed.partition(b"\n")
    parts, start = {}, 0
    for name, size in json.loads(line).items():
        parts[name] = body[start : start + size]
        start += size
    return parts
