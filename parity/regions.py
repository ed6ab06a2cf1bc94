"""Which regions of a model stay in float, so that its quantized .tflite is good enough.

A region is a module with all below it: an op alone seldom suffices, as its neighbors hand on what
it must not lose. Each candidate is really quantized and run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from tpu_export.converters.litert.racing import race
from tpu_export.parity.layer_runs import Pair, Sample, Values, read_pair
from tpu_export.parity.layers import Layer, db, layers_of
from tpu_export.parity.snr import snr
from tpu_export.runtime.errors import TpuExportError

# Quantizes all but the regions of these modules.
Quantize: TypeAlias = Callable[[Sequence[str]], Path]
_LAYERS = 3  # whose regions are tried at each step
_STEPS = 8
_SMALL_STEPS = 6  # after which decibels alone count
_GAIN_DB = 0.1


class SnrUnreachedError(TpuExportError):
    """No regions left in float give the decibels that were asked for."""

    code = "TPX-0623"


@dataclass(frozen=True)
class Trial:
    """A file with some regions in float, and the least decibels of its outputs."""

    regions: tuple[str, ...]
    file: Path
    size: int
    snr: float


@dataclass(frozen=True)
class Bought:
    """What one region in float costs and gives, against all the others without it.

    Attributes:
        milliseconds: by the Interpreter's median; None when nothing was timed.
    """

    region: str
    size: int
    snr: float
    milliseconds: float | None

    def row(self) -> list[str]:
        """Return the cells of a table."""
        ms = "" if self.milliseconds is None else f"{self.milliseconds:+.3f}"
        return [self.region, f"{self.size:+d}", ms, f"{self.snr:+.1f}"]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        layers: of the file without regions, the one that loses most first.
        before: without regions; after: with them.
    """

    layers: Sequence[Layer]
    before: Trial
    after: Trial
    bought: Sequence[Bought]
    tried: int

    def table(self) -> list[list[str]]:
        """Return what each region bought."""
        return [["in float", "bytes", "ms", "dB"], *(b.row() for b in self.bought)]

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON-able values."""
        return {
            "layers": [layer.to_json() for layer in self.layers],
            "before": _plain(self.before),
            "after": _plain(self.after),
            "bought": [asdict(b) for b in self.bought],
            "tried": self.tried,
        }


def _plain(trial: Trial) -> dict[str, object]:
    return {"regions": trial.regions, "size": trial.size, "snr": trial.snr}


@dataclass
class Search:
    """Tries regions of one signature; each file is made once."""

    plain: Path
    quantize: Quantize
    samples: Sequence[Sample]
    signature: str
    known: dict[frozenset[str], Trial] = field(default_factory=dict)
    truth: Sequence[Values] | None = None
    latest: tuple[Path, Pair] | None = None  # one only: it holds every op's values

    def run(self, target: float, *, timed: bool = True) -> Found:
        """Leave regions in float until every output has `target` decibels against float.

        Raises:
            SnrUnreachedError: that is not reached.
        """
        before = best = self.trial(())
        first = self.layers(best)
        found = first
        while best.snr < target:
            step = self._step(best, found)
            if step is None or len(best.regions) == _STEPS:
                raise self._unreached(best, target)
            best, found = step, self.layers(step)
        best = self._pruned(best, target)
        bought = [self._bought(best, region, timed=timed) for region in best.regions]
        return Found(first, before, best, bought, len(self.known))

    def trial(self, regions: Sequence[str]) -> Trial:
        """Quantize with regions in float, and measure."""
        key = frozenset(regions)
        if key not in self.known:
            file = self.quantize(tuple(regions))
            pair = self._pair(file)
            decibels = pair.whole.snr(list(pair.plain.outputs.values()), snr)
            self.known[key] = Trial(tuple(regions), file, file.stat().st_size, decibels)
        return self.known[key]

    def layers(self, trial: Trial) -> list[Layer]:
        """Return the layers of a trial, the one that loses most first."""
        return layers_of(self._pair(trial.file))

    def _pair(self, file: Path) -> Pair:
        """Read a file; the float one is run once for all."""
        if self.latest and self.latest[0] == file:
            return self.latest[1]
        self.latest = None  # before the next one takes memory
        pair = read_pair(self.plain, file, self.signature, self.samples, self.truth)
        self.truth = pair.truth
        self.latest = file, pair
        return pair

    def _step(self, best: Trial, found: Sequence[Layer]) -> Trial | None:
        """Return the best trial with one region more, None when none helps."""
        trials = [
            self.trial(_joined(best.regions, c)) for c in _candidates(best, found)
        ]
        better = [t for t in trials if t.snr >= best.snr + _GAIN_DB]
        if len(best.regions) >= _SMALL_STEPS:
            return max(better, key=lambda t: t.snr, default=None)
        return max(better, key=lambda t: self._worth(best, t), default=None)

    def _worth(self, best: Trial, more: Trial) -> float:
        """Return decibels a byte; a hundredth of the file counts as nothing."""
        floor = self.plain.stat().st_size / 100
        return (more.snr - best.snr) / (max(more.size - best.size, 0) + floor)

    def _pruned(self, best: Trial, target: float) -> Trial:
        """Put regions back into integers that turn out not to be needed."""
        for region in best.regions if len(best.regions) > 1 else ():
            less = self.trial([r for r in best.regions if r != region])
            if less.snr >= target:
                best = less
        return best

    def _bought(self, best: Trial, region: str, *, timed: bool) -> Bought:
        less = self.trial([r for r in best.regions if r != region])
        milliseconds = self._slower(less, best) if timed else None
        return Bought(region, best.size - less.size, best.snr - less.snr, milliseconds)

    def _slower(self, less: Trial, more: Trial) -> float:
        feeds = [self._pair(t.file).calls()[0] for t in (less, more)]
        found = race(
            (less.file, more.file), (feeds[0], feeds[1]), self.signature, seconds=0.3
        )
        interpreter = found.latencies[0]
        return interpreter.difference * 1e3

    def _unreached(self, best: Trial, target: float) -> SnrUnreachedError:
        left = ", ".join(best.regions) or "nothing"
        return SnrUnreachedError(
            f"{db(best.snr)} dB is the best found, with {left} in float; "
            f"--target-snr is {target:g}",
            hint="ask for fewer decibels, or take another --recipe; nothing was written",
        )


def covers(region: str, module: str) -> bool:
    """Whether a module is in a region: it is that module, or below it.

    >>> covers("blocks.1", "blocks.1.up"), covers("blocks.1", "blocks.10")
    (True, False)
    """
    return module == region or module.startswith(f"{region}.")


def _joined(regions: Sequence[str], region: str) -> tuple[str, ...]:
    """Add a region, and drop those that it holds."""
    return (*(r for r in regions if not covers(region, r)), region)


def _candidates(best: Trial, found: Sequence[Layer]) -> list[str]:
    """Return the regions around the layers that lose most, small ones first."""
    open_layers = [
        layer.module
        for layer in found
        if layer.module and not any(covers(r, layer.module) for r in best.regions)
    ]
    worst = list(dict.fromkeys(open_layers))[:_LAYERS]
    lines = [
        [".".join(m.split(".")[:n]) for n in range(m.count(".") + 1, 0, -1)]
        for m in worst
    ]
    return list(dict.fromkeys(region for line in lines for region in line))
