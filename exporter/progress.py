"""What a job reports while it runs: one event when a stage starts, one when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class ProgressEvent:
    """A stage started, or ended after `seconds`; `detail` is a few words for people."""

    stage: str
    phase: Literal["start", "end"]
    seconds: float = 0.0
    detail: str = ""


Progress: TypeAlias = Callable[[ProgressEvent], None]


@dataclass
class Stages:
    """Times the stages of a job, in order, and tells the listener."""

    listener: Progress | None = None
    times: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Run a stage; words that the block appends to the yielded list are its detail."""
        words: list[str] = []
        self._tell(ProgressEvent(name, "start", detail=detail))
        start = time.perf_counter()
        yield words
        seconds = time.perf_counter() - start
        self.times.append((name, seconds))
        self._tell(ProgressEvent(name, "end", seconds, " ".join(words) or detail))

    def _tell(self, event: ProgressEvent) -> None:
        if self.listener is not None:
            self.listener(event)
