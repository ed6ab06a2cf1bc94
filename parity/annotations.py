"""What an export is told to write into a .tflite besides the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Signature

Golden: TypeAlias = Literal["auto", "all", "none"]


class AnnotationError(TpuExportError):
    """Labels or a licence that cannot be read, or do not fit the model."""

    code = "TPX-0651"


@dataclass(frozen=True)
class Annotations:
    """Labels, licence and golden arrays.

    Attributes:
        labels: of the last dimension of an output, or a file with one on each line.
        licence: its text or name, or the path of a file with it.
        golden: which signatures keep the example's inputs and outputs: "auto", those whose
            arrays take no more than 1 % of the file, or 64 KiB; "all"; or "none".
    """

    labels: Sequence[str] | Path | None = None
    licence: str | Path | None = None
    golden: Golden = "auto"

    def read(self) -> tuple[tuple[str, ...], str]:
        """Return labels and licence as they go into the file; () and "" where not given.

        Raises:
            AnnotationError: a file cannot be read, or holds nothing.
        """
        given = self.labels or ()
        lines = _text(given).splitlines() if isinstance(given, Path) else list(given)
        labels = [line.strip() for line in lines]
        while labels and not labels[-1]:  # empty lines at the end are no labels
            labels.pop()
        if isinstance(given, Path) and not labels:
            raise AnnotationError(
                f"{given} holds no labels", hint="write one on each line"
            )
        licence = self.licence or ""
        return tuple(labels), _text(licence) if isinstance(licence, Path) else licence

    def labelled(
        self, signatures: Mapping[str, Signature], dims: Mapping[str, Mapping[str, int]]
    ) -> dict[str, list[str]]:
        """Return the outputs that have as many classes as there are labels, by signature.

        Raises:
            AnnotationError: there are labels, and no such output.
        """
        labels, _ = self.read()
        if not labels:
            return {}
        sizes = {
            f"{name}.{spec.name}": dims.get(name, {}).get(str(d), d)
            for name, signature in signatures.items()
            for spec in signature.outputs
            for d in spec.shape[-1:]
        }
        found = {
            name: [
                spec.name
                for spec in signature.outputs
                if sizes.get(f"{name}.{spec.name}") == len(labels)
            ]
            for name, signature in signatures.items()
        }
        if not any(found.values()):
            last = ", ".join(f"{name}: {size}" for name, size in sizes.items())
            raise AnnotationError(
                f"{len(labels)} labels, and no output has as many classes",
                hint=f"last dimensions are {last or 'none'}; give a label for each place",
            )
        return {name: outputs for name, outputs in found.items() if outputs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise AnnotationError(
            f"cannot read {path}: {reason}", hint="give a text file"
        ) from error
