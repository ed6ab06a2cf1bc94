"""The ZIP profile of a .tpuexe: stored entries, aligned, nothing between, nothing twice.

docs/tpuexe.md section 2 states the rules; errors cite them.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from tpu_export.runtime.errors import TpuExportError, counted

ALIGNMENT = 4096
MAX_ENTRIES = 100_000
NAME = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.=+\-]*(/[A-Za-z0-9_][A-Za-z0-9_.=+\-]*){0,7}\Z"
)
MAX_NAME = 512
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_ZIP64_END = struct.Struct("<4sQHHIIQQQQ")
_ZIP64_LOCATOR = struct.Struct("<4sIQI")
_PADDING_ID = 0x5450  # "PT"
_VERSION, _FLAGS, _DATE = 45, 0x0800, 0x0021  # UTF-8 names; 1980-01-01
_WIDE = 0xFFFFFFFF
_END_RECORD = _END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _WIDE, _WIDE, 0)
_TAIL = _ZIP64_END.size + _ZIP64_LOCATOR.size + _END.size
_TAIL_OF_TOOLS = (
    2**20
)  # where the central directory of another tool's ZIP is looked for
_STAMP = (_VERSION, _FLAGS, 0, 0, _DATE)  # of every local header


class ArtifactCorruptedError(TpuExportError):
    """The file breaks a rule of the format: cut short, changed, or not a .tpuexe."""

    code = "TPX-0401"

    def __init__(self, rule: str, what: str, *, hint: str = "") -> None:
        """Name the rule of docs/tpuexe.md that is broken.

        Args:
            rule: its number.
            what: is wrong.
            hint: what to do with a file that is whole, but no .tpuexe.
        """
        super().__init__(
            f"{'' if hint else 'corrupted artifact: '}{what} (rule {rule})",
            hint=hint or "export it again, or copy it again and compare its checksum",
        )
        self.rule, self.what = rule, what


@dataclass(frozen=True)
class Member:
    """One entry: where its bytes lie."""

    name: str
    offset: int
    size: int
    crc: int


class ArchiveWriter:
    """Writes entries one after another, each payload streamed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._members: list[tuple[Member, int, int]] = []  # member, header, extra size
        self._names: set[str] = set()

    def add(self, name: str, chunks: Iterable[bytes | memoryview]) -> Member:
        """Append an entry.

        Raises:
            ValueError: the name is outside the grammar or there already, or too many.
        """
        bad = not NAME.match(name) or len(name) > MAX_NAME
        if bad or name in self._names or len(self._members) >= MAX_ENTRIES:
            message = f"bad or repeated entry name {name!r}"
            raise ValueError(message)
        header = self._file.tell()
        fixed = header + _LOCAL.size + len(name) + 20 + 4
        padding = -fixed % ALIGNMENT
        offset = fixed + padding
        self._file.write(b"\0" * (offset - header))
        size = crc = 0
        for chunk in chunks:
            self._file.write(chunk)
            crc = zlib.crc32(chunk, crc)
            size += memoryview(chunk).nbytes
        member = Member(name, offset, size, crc)
        end = self._file.tell()
        self._file.seek(header)
        self._file.write(_local_header(member, padding))
        self._file.seek(end)
        self._members.append((member, header, padding))
        self._names.add(name)
        return member

    def finish(self) -> None:
        """Write the central directory."""
        start = self._file.tell()
        for member, header, _ in self._members:
            self._file.write(_central_header(member, header))
        size = self._file.tell() - start
        self._file.write(_end(len(self._members), size, start))


def _local_header(member: Member, padding: int) -> bytes:
    name = member.name.encode()
    extra = struct.pack("<HHQQ", 1, 16, member.size, member.size)
    extra += struct.pack("<HH", _PADDING_ID, padding) + b"\0" * padding
    fixed = _LOCAL.pack(
        b"PK\3\4",
        _VERSION,
        _FLAGS,
        0,
        0,
        _DATE,
        member.crc,
        _WIDE,
        _WIDE,
        len(name),
        len(extra),
    )
    return fixed + name + extra


def _central_header(member: Member, header: int) -> bytes:
    name = member.name.encode()
    extra = struct.pack("<HHQQQ", 1, 24, member.size, member.size, header)
    fixed = _CENTRAL.pack(
        b"PK\1\2", _VERSION, _VERSION, _FLAGS, 0, 0, _DATE, member.crc, _WIDE, _WIDE,
        len(name), len(extra), 0, 0, 0, 0, _WIDE,
    )  # fmt: skip
    return fixed + name + extra


def _end(count: int, size: int, start: int) -> bytes:
    wide = _ZIP64_END.pack(
        b"PK\6\6", 44, _VERSION, _VERSION, 0, 0, count, count, size, start
    )
    locator = _ZIP64_LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    return wide + locator + _END_RECORD


def read_members(data: memoryview) -> dict[str, Member]:
    """Check the whole structure of an archive and return its entries in order.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken.
    """
    try:
        count, start, size = _read_end(data)
    except ArtifactCorruptedError as error:
        if _rewritten(data):
            what = (
                "a ZIP tool has changed this .tpuexe, or has packed its entries again"
            )
            hint = (
                "use the file as `tpu-export` wrote it: a .tpuexe is a ZIP of a layout that "
                "ZIP tools do not keep"
            )
            raise ArtifactCorruptedError(error.rule, what, hint=hint) from error
        kind = _foreign(data)
        if kind is None:
            raise
        what = f"it is no .tpuexe; it looks like {kind}"
        hint = "give a .tpuexe, as `tpu-export MODEL` writes it"
        raise ArtifactCorruptedError(error.rule, what, hint=hint) from error
    position, expected = start, 0
    members: dict[str, Member] = {}
    for _ in range(count):
        member, header, position = _read_central(data, position, start + size)
        _require(member.name not in members, "2.3", f"entry {member.name!r} twice")
        _require(
            header == expected, "2.5", f"bytes between entries before {member.name!r}"
        )
        padding = _padding(member, header)
        local = bytes(data[header : member.offset])
        same = local == _local_header(member, padding)
        _require(same, "2.6", f"headers of {member.name!r} disagree")
        expected = member.offset + member.size
        _require(expected <= start, "2.4", f"entry {member.name!r} runs past the end")
        members[member.name] = member
    _require(position == start + size, "2.7", "central directory has another size")
    _require(expected == start, "2.5", "bytes before the central directory")
    return members


def _rewritten(data: memoryview) -> bool:
    """Whether a file ends as other tools' ZIPs do, and has the entries of a .tpuexe."""
    tail = bytes(data[-_TAIL_OF_TOOLS:])
    end = tail.rfind(b"PK\5\6")
    if end < 0 or tail[end:].startswith(_END_RECORD):
        return False
    own = rb"PK\x01\x02(?=.{42}([\w.=+-]+/)*(manifest\.json|programs/))"
    return len(re.findall(own, tail[:end], re.DOTALL)) > 1


def _foreign(data: memoryview) -> str | None:
    """Return what a file looks like; None for a .tpuexe that is cut short or changed."""
    head = bytes(data[: _LOCAL.size])
    if b"PK\3\4".startswith(head[:4]):
        own = len(head) < _LOCAL.size or _LOCAL.unpack(head)[1:6] == _STAMP
        return None if own else "another ZIP, such as a .pt2 or .pt"
    if head[4:8] == b"TFL3":
        return "a .tflite"
    return "a file of another kind"


def _padding(member: Member, header: int) -> int:
    return member.offset - header - _LOCAL.size - len(member.name) - 24


def _read_end(data: memoryview) -> tuple[int, int, int]:
    at = len(data) - _TAIL
    if at < 0 or not _is_end(data, at):
        raise ArtifactCorruptedError("2.1", _bad_end(data))
    count, size, start = _end_fields(data, at)
    _require(count <= MAX_ENTRIES, "2.2", f"{count} entries")
    apart = at - (start + size)
    one = abs(apart) == 1
    off = "too many" if apart > 0 else f"{'is' if one else 'are'} missing"
    moved = f"{counted(abs(apart), 'byte')} {off}"
    _require(not apart, "2.7", f"{moved} before the archive's end record")
    return count, start, size


def _end_fields(data: memoryview, at: int) -> tuple[int, int, int]:
    """Return the count, size and start of the central directory."""
    _, _, _, _, _, _, count, _, size, start = _ZIP64_END.unpack_from(data, at)
    return count, size, start


def _is_end(data: memoryview, at: int) -> bool:
    """Whether the end records lie at this place."""
    count, size, start = _end_fields(data, at)
    if start + size >= 2**64:
        return False
    return bytes(data[at : at + _TAIL]) == _end(count, size, start)


def _bad_end(data: memoryview) -> str:
    """Say why a file does not end as an archive: more follows, less is there, or changed."""
    for found in re.finditer(re.escape(_END_RECORD), data):
        at = found.end() - _TAIL
        if at >= 0 and _is_end(data, at) and sum(_end_fields(data, at)[1:]) == at:
            more = len(data) - found.end()
            follow = "follows" if more == 1 else "follow"
            return f"{counted(more, 'byte')} {follow} the archive's end"
    if len(data) >= _TAIL and bytes(data[-_TAIL:][:4]) == b"PK\6\6":
        return "bad end record"
    return "the file is cut short: it has no end record"


def _read_central(
    data: memoryview, position: int, limit: int
) -> tuple[Member, int, int]:
    fixed = position + _CENTRAL.size
    _require(fixed <= limit, "2.7", "central directory is cut short")
    fields = _CENTRAL.unpack_from(data, position)
    length, extra = fields[10], fields[11]
    end = fixed + length + extra
    _require(extra == 28 and end <= limit, "2.7", "bad central directory record")
    raw = bytes(data[fixed : fixed + length])
    _require(raw.isascii(), "2.3", "entry name outside the grammar")
    name = raw.decode("ascii")
    valid = bool(NAME.match(name)) and len(name) <= MAX_NAME
    _require(valid, "2.3", "entry name outside the grammar")
    _, _, size, _, header = struct.unpack_from("<HHQQQ", data, fixed + length)
    start = header + _LOCAL.size + length + 24
    member = Member(name, start + -start % ALIGNMENT, size, fields[7])
    same = bytes(data[position:end]) == _central_header(member, header)
    _require(same, "2.6", f"bad central record of {name!r}")
    return member, header, end


def _require(condition: bool, rule: str, what: str) -> None:
    if not condition:
        raise ArtifactCorruptedError(rule, what)
