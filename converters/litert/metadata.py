"""Metadata of a .tflite: named bytes, put in front of the file without parsing all of it.

Offsets of a flatbuffer point forward, so a new root table, a new list of buffers and
the new bytes go before the old file, and point at its parts where they lie.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

# The new root: header (8 bytes), vtable (24), then the table: its offset and 10 fields.
_FIELDS, _VTABLE, _ROOT = 10, 8, 32
_VERSION, _BUFFERS, _METADATA = 0, 4, 6
_ALIGNMENT = 64  # of the old file in the new one; the runtime wants 16 of each buffer


def add_metadata(source: Path, target: Path, entries: Mapping[str, bytes]) -> None:
    """Write `source` with `entries` as `target`; memory is that of the entries."""
    with source.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        front = _front(data, sorted(entries.items()))
        moved = _outside_offsets(data)
        with target.open("wb") as out:
            out.write(front)
            shutil.copyfileobj(file, out, 1 << 20)
            for place, offset in moved:
                out.seek(len(front) + place)
                out.write(struct.pack("<Q", offset + len(front)))


def _u32(data: mmap.mmap, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _field(data: mmap.mmap, table: int, slot: int) -> int:
    """Return where field `slot` of a table lies, 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 4 + 2 * slot >= size:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * slot)[0])
    return table + offset if offset else 0


def _target(data: mmap.mmap, place: int) -> int:
    return place + _u32(data, place)


def _children(data: mmap.mmap, place: int) -> list[int]:
    """Return where the tables of the vector that a field points at lie."""
    if not place:
        return []
    vector = _target(data, place)
    length = _u32(data, vector)
    return [_target(data, vector + 4 + 4 * i) for i in range(length)]


def _outside_offsets(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return place and value of each buffer's offset from the start of the file.

    Files of 2 GB and more have their weights after the flatbuffer.
    """
    buffers = _children(data, _field(data, _u32(data, 0), _BUFFERS))
    places = [place for table in buffers if (place := _field(data, table, 1))]
    found = [(place, struct.unpack_from("<Q", data, place)[0]) for place in places]
    return [(place, offset) for place, offset in found if offset > 1]


def _front(data: mmap.mmap, entries: list[tuple[str, bytes]]) -> bytes:
    """Return what goes before the old file."""
    root = _u32(data, 0)
    fields = [_field(data, root, slot) for slot in range(_FIELDS)]
    buffers, metadata = (_children(data, fields[s]) for s in (_BUFFERS, _METADATA))
    front = _new_root([slot for slot, place in enumerate(fields) if place])
    new_buffers = _append_vector(front, len(buffers) + len(entries), _BUFFERS)
    new_metadata = _append_vector(front, len(metadata) + len(entries), _METADATA)
    for i, (name, content) in enumerate(entries):
        _pad(front, 4)
        _link(front, new_metadata + 4 * (len(metadata) + i))
        _append_entry(front, name, len(buffers) + i)
        _pad(front, 4)
        _link(front, new_buffers + 4 * (len(buffers) + i))
        _append_buffer(front, content)
    _pad(front, _ALIGNMENT)
    old = [(new_buffers + 4 * i, at) for i, at in enumerate(buffers)]
    old += [(new_metadata + 4 * i, at) for i, at in enumerate(metadata)]
    old += [
        (_place(slot), _target(data, at))
        for slot, at in enumerate(fields)
        if at and slot not in (_VERSION, _BUFFERS, _METADATA)
    ]
    for place, at in old:
        struct.pack_into("<I", front, place, len(front) + at - place)
    if fields[_VERSION]:
        version = _u32(data, fields[_VERSION])
        struct.pack_into("<I", front, _place(_VERSION), version)
    return bytes(front)


def _new_root(slots: Iterable[int]) -> bytearray:
    """Return a header and a root table with these fields, buffers and metadata; all are 0."""
    kept = {*slots, _BUFFERS, _METADATA}
    front = bytearray(struct.pack("<I4sHH", _ROOT, b"TFL3", 24, 4 + 4 * _FIELDS))
    front += struct.pack(
        "<10H", *(4 + 4 * slot if slot in kept else 0 for slot in range(_FIELDS))
    )
    front += struct.pack("<i", _ROOT - _VTABLE) + bytes(4 * _FIELDS)
    return front


def _place(slot: int) -> int:
    return _ROOT + 4 + 4 * slot


def _append_vector(front: bytearray, length: int, slot: int) -> int:
    """Append an empty vector as a field of the root; return where its items lie."""
    _link(front, _place(slot))
    front += struct.pack("<I", length) + bytes(4 * length)
    return len(front) - 4 * length


def _append_entry(front: bytearray, name: str, buffer: int) -> None:
    """Append a table {name, buffer}, its vtable and its name."""
    text = name.encode()
    table = len(front)
    front += struct.pack("<iII", -12, 12, buffer)
    front += struct.pack("<HHHH", 8, 12, 4, 8)
    struct.pack_into("<I", front, table + 4, len(front) - table - 4)
    front += struct.pack("<I", len(text)) + text + b"\0"


def _append_buffer(front: bytearray, content: bytes) -> None:
    """Append a table {data} whose bytes are aligned as the runtime wants them."""
    table = len(front)
    front += struct.pack("<iI", -8, 0) + struct.pack("<HHH", 6, 8, 4)
    front += bytes(-(len(front) + 4) % 16)
    struct.pack_into("<I", front, table + 4, len(front) - table - 4)
    front += struct.pack("<I", len(content)) + content


def _link(front: bytearray, place: int) -> None:
    struct.pack_into("<I", front, place, len(front) - place)


def _pad(front: bytearray, size: int) -> None:
    front += bytes(-len(front) % size)
