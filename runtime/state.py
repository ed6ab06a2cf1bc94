"""The state slots of a loaded program, as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.tensors import Array

if TYPE_CHECKING:
    from tpu_export.runtime.program import Program


class State(MutableMapping[str, Array]):
    """The state slots of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __getitem__(self, name: str) -> Array:
        with self._program._lock:
            self._program._open()
            return np.array(self._program._state[name])

    def __setitem__(self, name: str, value: Any) -> None:
        slot = self._program._slots.get(name)
        if slot is None:
            raise InputError(
                f"there is no state {name!r}",
                hint=f"state slots are {', '.join(self) or 'none'}",
            )
        array = np.asarray(value)
        if array.dtype.name != slot.dtype or array.shape != slot.shape:
            raise InputError(
                f"state {name!r} is {slot.dtype}{list(slot.shape)}, "
                f"got {array.dtype}{list(array.shape)}",
                hint="assign an array of the slot's own shape and dtype",
            )
        with self._program._lock:
            self._program._open()
            self._program._state[name] = self._program._own(array)

    def __delitem__(self, name: str) -> None:
        raise InputError(
            f"state {name!r} cannot be deleted", hint="assign a value, or reset_state()"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._program._slots)

    def __len__(self) -> int:
        return len(self._program._slots)
