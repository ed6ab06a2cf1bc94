"""Which inputs and outputs of a signature come with their channels last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tpu_export.converters.stablehlo.layout.forms import Shape, first, last
from tpu_export.runtime.signature import Signature, Slot, TensorSpec

Order: TypeAlias = Callable[[Shape], tuple[Any, ...]]


@dataclass(frozen=True)
class Borders:
    """Names of inputs and outputs that are [N, ..., C] where the model has [N, C, ...]."""

    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()

    def places(self, slots: Iterable[Slot], first: int = 0) -> list[int]:
        """Return the positions of such slots, counted from `first`."""
        return [i for i, slot in enumerate(slots, first) if self._has(slot)]

    def slots(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """Return slots as they come."""
        return tuple(
            replace(slot, shape=last(slot.shape)) if self._has(slot) else slot
            for slot in slots
        )

    def signature(self, signature: Signature) -> Signature:
        """Return torch's signature with the shapes as they come."""
        return self._changed(signature, last)

    def of_torch(self, signature: Signature) -> Signature:
        """Return such a signature with torch's shapes."""
        return self._changed(signature, first)

    def _changed(self, signature: Signature, order: Order) -> Signature:
        def moved(specs: Iterable[TensorSpec], names: frozenset[str]) -> Any:
            return tuple(
                replace(s, shape=order(s.shape)) if s.name in names else s
                for s in specs
            )

        return replace(
            signature,
            inputs=moved(signature.inputs, self.inputs),
            outputs=moved(signature.outputs, self.outputs),
        )

    def _has(self, slot: Slot) -> bool:
        """Whether a slot moves; an input that is written to comes back as it came."""
        names = {"input": self.inputs, "output": self.outputs}
        return slot.name in names.get(slot.kind, ())


AS_TORCH = Borders()
