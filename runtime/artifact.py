"""Read and write .tpuexe files. docs/tpuexe.md is the specification."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tpu_export.runtime.archive import (
    ArchiveWriter,
    ArtifactCorruptedError,
    Member,
    read_members,
)
from tpu_export.runtime.codec import FieldError, decode, encode
from tpu_export.runtime.conformance import check_manifest
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.manifest import FEATURES, FORMAT_VERSION, Entry, Manifest
from tpu_export.runtime.tensors import Array, Source, read, stream, strict_json

MANIFEST = "manifest.json"
MAX_MANIFEST = 256 * 2**20


class ArtifactMissingError(TpuExportError):
    """There is no such file, or it cannot be read."""

    code = "TPX-0402"


class ArtifactVersionError(TpuExportError):
    """The file was written by a newer tpu-export, or needs a feature that this one lacks."""

    code = "TPX-0403"


class ArtifactWriteError(TpuExportError):
    """The file cannot be written: no permission, no folder, no space."""

    code = "TPX-0404"


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal into our error."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise ArtifactWriteError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free some space"
            if full
            else "choose another --output, or create its folder",
        ) from error


class ArtifactWriter:
    """Writes a .tpuexe beside its final name; commit() renames it, leaving discards it.

    Attributes:
        path: the temporary file; after finish() it can be loaded.
    """

    def __init__(self, path: str | Path) -> None:
        self._final = Path(path)
        self._entries: dict[str, Entry] = {}
        with _explained(self._final):
            if self._final.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            unique = f".{self._final.name}.{secrets.token_hex(6)}.partial"
            self.path = self._final.parent / unique
            self._file = self.path.open("x+b")
        self._archive = ArchiveWriter(self._file)

    def __enter__(self) -> ArtifactWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def add_bytes(self, name: str, data: bytes) -> Entry:
        """Add an entry."""
        return self._add(name, [data])

    def add_tensors(self, name: str, tensors: Mapping[str, Source]) -> Entry:
        """Add a safetensors entry; values are asked for one tensor at a time."""
        return self._add(name, stream(tensors))

    def _add(self, name: str, chunks: Iterable[bytes | memoryview]) -> Entry:
        digest = hashlib.sha256()

        def hashed() -> Iterator[bytes | memoryview]:
            for chunk in chunks:
                digest.update(chunk)
                yield chunk

        with _explained(self._final):
            member = self._archive.add(name, hashed())
        entry = Entry(member.size, digest.hexdigest())
        self._entries[name] = entry
        return entry

    def finish(self, manifest: Manifest) -> Manifest:
        """Add the manifest, with every entry's hash, and flush all to disk.

        Raises:
            ArtifactCorruptedError: the manifest breaks a rule of the format.
        """
        manifest = replace(manifest, entries=dict(self._entries))
        _check_entries(manifest)
        check_manifest(manifest)
        text = json.dumps(encode(manifest), sort_keys=True, separators=(",", ":"))
        with _explained(self._final):
            self._archive.add(MANIFEST, [text.encode()])
            self._archive.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
        return manifest

    def commit(self) -> Path:
        """Give the file its final name, replacing what was there."""
        with _explained(self._final):
            self._file.close()
            self.path.replace(self._final)
        return self._final


class Artifact:
    """An open .tpuexe: its manifest, and entries as views of the mapped file.

    Its structure has been checked; the hash of an entry is checked when it is asked for,
    unless `verify=False`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ArtifactCorruptedError("2.1", "the file is empty") from error
        except OSError as error:
            raise ArtifactMissingError(
                f"cannot read {path}: {error.strerror}",
                hint="give the path of a .tpuexe that this process may read",
            ) from error
        self._data = memoryview(self._map)
        self._members = read_members(self._data)
        self.manifest = self._read_manifest()

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> tuple[str, ...]:
        """The entries, in order."""
        return tuple(self._members)

    def entry(self, name: str, *, verify: bool = True) -> memoryview:
        """Return an entry's bytes without copying them.

        Raises:
            ArtifactCorruptedError: its hash differs from the manifest's.
        """
        member = self._members[name]
        view = self._view(member)
        if verify and name != MANIFEST:
            digest = hashlib.sha256(view).hexdigest()
            if digest != self.manifest.entries[name].sha256:
                raise ArtifactCorruptedError("3.2", f"hash of {name!r} differs")
            self._check_crc(member)
        return view

    def tensors(self, name: str, *, verify: bool = False) -> dict[str, Array]:
        """Return the tensors of a safetensors entry as read-only views."""
        return read(self.entry(name, verify=verify), name)

    def verify(self) -> None:
        """Check the hash and the checksum of every entry."""
        for name in self.manifest.entries:
            self.entry(name)

    def _check_crc(self, member: Member) -> None:
        if zlib.crc32(self._view(member)) != member.crc:
            raise ArtifactCorruptedError("2.8", f"checksum of {member.name!r} differs")

    def _view(self, member: Member) -> memoryview:
        return self._data[member.offset : member.offset + member.size]

    def _read_manifest(self) -> Manifest:
        if not self._members or self.names[-1] != MANIFEST:
            raise ArtifactCorruptedError("3.1", "manifest.json is not the last entry")
        member = self._members[MANIFEST]
        if member.size > MAX_MANIFEST:
            raise ArtifactCorruptedError("3.1", "the manifest is too long")
        self._check_crc(member)
        raw = _json(bytes(self._view(member)))
        _check_version(raw)
        try:
            manifest: Manifest = decode(Manifest, raw)
        except FieldError as error:
            raise ArtifactCorruptedError("3.3", str(error)) from error
        sizes = {n: m.size for n, m in self._members.items() if n != MANIFEST}
        if {n: e.size for n, e in manifest.entries.items()} != sizes:
            raise ArtifactCorruptedError("3.2", "entries differ from the manifest's")
        _check_entries(manifest)
        check_manifest(manifest)
        return manifest


def _check_entries(manifest: Manifest) -> None:
    """Check that every entry which the manifest names is there."""
    programs, executables = manifest.programs.values(), manifest.executables
    named: dict[str, list[str | None]] = {
        "programs/": [
            e
            for p in programs
            for e in (*p.main_modules.values(), *p.prepare_modules.values())
        ],
        "executables/": [e for x in executables for e in (x.main, x.prepare)],
        "litert/": [e.main for e in manifest.cpu_engines],
        "weights/": [w.entry for w in manifest.weights.values()],
    }
    for folder, names in named.items():
        for name in names:
            known = name is None or name in manifest.entries
            if not known or not (name or folder).startswith(folder):
                raise ArtifactCorruptedError("3.4", f"no entry {name!r} in {folder}")
    for name in named["weights/"]:
        if name and not name.endswith(".safetensors"):
            raise ArtifactCorruptedError("3.4", f"{name!r} is no .safetensors")


def _json(text: bytes) -> dict[str, object]:
    try:
        raw = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorruptedError("3.1", "the manifest is not JSON") from error
    if not isinstance(raw, dict):
        raise ArtifactCorruptedError("3.1", "the manifest is no object")
    return raw


def _check_version(raw: Mapping[str, object]) -> None:
    version, features = raw.get("version"), raw.get("features")
    newer = isinstance(version, int) and version > FORMAT_VERSION
    unknown = (
        sorted(set(map(str, features)) - {*FEATURES})
        if isinstance(features, list)
        else []
    )
    if newer or unknown:
        what = (
            f"format version {version}" if newer else f"features {', '.join(unknown)}"
        )
        raise ArtifactVersionError(
            f"this artifact has {what}; this tpu-export reads up to version {FORMAT_VERSION}",
            hint="pip install --upgrade tpu-export, at least as new as the exporter",
        )


def unpack(artifact: Path, folder: Path) -> Path:
    """Write the entries of an artifact as files of a folder, atomically."""
    with _explained(folder):
        if folder.exists() and not (folder / MANIFEST).is_file():
            raise FileExistsError(errno.EEXIST, "it exists and is no unpacked artifact")
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            opened = Artifact(artifact)
            for name in opened.names:
                target = partial / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(opened.entry(name))
            if folder.is_dir():
                shutil.rmtree(folder)
            partial.chmod(0o755)
            partial.replace(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder
