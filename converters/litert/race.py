"""Time two files: ``python -m tpu_export.converters.litert.race DIRECTORY``.

A process of its own, so that nothing else runs in it. Reads request.json and the inputs in
a/ and b/; writes times.json. `racing.race` is the other end.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tpu_export.converters.litert.delegates_worker import xnnpack
from tpu_export.converters.litert.engine import as_buffer
from tpu_export.converters.litert.exchange import Array, map_arrays

Runner: TypeAlias = Callable[[], object]


def interpreter(path: str, signature: str, inputs: Mapping[str, Array]) -> Runner:
    """Load a file in the Interpreter (with XNNPACK, as it comes); its inputs stay."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model_path=path)
    runner = engine.get_signature_runner(signature)
    return lambda: runner(**inputs)


def compiled(path: str, signature: str, inputs: Mapping[str, Array]) -> Runner:
    """Load a file in CompiledModel on the CPU; its buffers are filled once."""
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(path)
    names = model.get_signature_by_index(model.get_signature_index(signature))
    feeds = {
        n: model.create_input_buffer_by_name(signature, n) for n in names["inputs"]
    }
    results = {
        n: model.create_output_buffer_by_name(signature, n) for n in names["outputs"]
    }
    for name, buffer in feeds.items():
        buffer.write(as_buffer(inputs[name]))
    return lambda: model.run_by_name(signature, feeds, results)


ENGINES = {"interpreter": interpreter, "compiled": compiled}


def interleaved(
    runners: Sequence[Runner],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Return seconds a call of each runner, one number a round; the runners take turns.

    Args:
        rounds: how many turns; seconds: about how long all of it takes.
    """
    single = []
    for runner in runners:
        runner()
        start = clock()
        runner()
        single.append(max(clock() - start, 1e-7))
    share = seconds / (rounds * len(runners))
    calls = [max(1, int(share / one)) for one in single]
    times: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for runner, count, found in zip(runners, calls, times, strict=True):
            start = clock()
            for _ in range(count):
                runner()
            found.append((clock() - start) / count)
    return times


def outside_xnnpack(path: str) -> tuple[int, dict[str, int]] | None:
    """Return how many parts XNNPACK took, and a count of the ops that it left.

    None for a file of several signatures: the Interpreter tells of the first only.
    """
    from ai_edge_litert.interpreter import Interpreter

    if len(Interpreter(model_path=path).get_signature_list()) > 1:
        return None
    found = xnnpack(path)
    left = Counter(op["name"] for op in found["ops"] if not op["taken"])
    return found["partitions"], dict(left.most_common())


def main(argv: Sequence[str]) -> int:
    """Answer the request in a directory."""
    folder = Path(argv[1])
    request = json.loads((folder / "request.json").read_text())
    signature, files = request["signature"], request["files"]
    inputs = [dict(map_arrays(folder / name)) for name in ("a", "b")]
    times = {
        engine: interleaved(
            [
                load(file, signature, own)
                for file, own in zip(files, inputs, strict=True)
            ],
            request["rounds"],
            request["seconds"],
        )
        for engine, load in ENGINES.items()
    }
    left = [outside_xnnpack(file) for file in files]
    (folder / "times.json").write_text(json.dumps({"times": times, "left": left}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
