"""Names, dtypes and shapes in a manifest: rules 3.5 and 3.7 of docs/tpuexe.md."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.expressions import FUNCTIONS, names_in
from tpu_export.runtime.signature import Dim, Slot, TensorSpec
from tpu_export.runtime.tensors import CODES, MAX_RANK
from tpu_export.runtime.tree_rules import distinct, require

MAX_SIZE = 2**63 - 1
TENSOR = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,1024}\Z")
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def is_word(name: str) -> bool:
    """Whether a dimension may have this name."""
    good = bool(_DIM.match(name)) and not keyword.iskeyword(name)
    return good and name not in FUNCTIONS


def check_dims(dims: Sequence[Dim], where: str) -> None:
    """Check names and ranges of dimensions (rule 3.7)."""
    require(distinct([d.name for d in dims]), "3.7", f"{where}: a dimension twice")
    for dim in dims:
        good = is_word(dim.name)
        require(good, "3.7", f"{where}: bad dimension name {dim.name!r}")
        high = MAX_SIZE if dim.maximum is None else dim.maximum
        good = 0 <= dim.minimum <= high <= MAX_SIZE
        require(good, "3.7", f"{where}: bad range of {dim.name!r}")


def check_tensors(
    specs: Sequence[TensorSpec | Slot], dims: Sequence[str], where: str
) -> None:
    """Check names, dtypes and shapes, which may mention `dims` (rules 3.5 and 3.7)."""
    if not isinstance(next(iter(specs), None), Slot):
        names = [spec.name for spec in specs]
        require(distinct(names), "3.5", f"{where}: a tensor name twice")
    for spec in specs:
        good = bool(TENSOR.match(spec.name)) and spec.dtype in CODES
        good = good and len(spec.shape) <= MAX_RANK
        require(good, "3.5", f"{where}: bad name, dtype or rank of {spec.name!r}")
        for size in spec.shape:
            if isinstance(size, int):
                good = 0 <= size <= MAX_SIZE
                require(good, "3.5", f"{where}: bad size of {spec.name!r}")
            else:
                _check_expression(size, dims, f"{where}: {spec.name!r}")


def _check_expression(text: str, dims: Sequence[str], where: str) -> None:
    try:
        unknown = names_in(text) - set(dims)
    except ValueError as error:
        raise ArtifactCorruptedError("3.7", f"{where}: {error}") from error
    require(not unknown, "3.7", f"{where}: unknown dimension in {text!r}")
