"""Names of flat tensors: dotted paths that never collide."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence


def dotted(path: Sequence[object]) -> str:
    """Join the keys from the root to a leaf: ("cache", 0, "key") -> "cache.0.key"."""
    return ".".join(str(key) for key in path)


def unique(names: Iterable[str]) -> list[str]:
    """Number the repeated names; the first of each keeps its own.

    >>> unique(["a", "a", "a_1", "b"])
    ['a', 'a_2', 'a_1', 'b']
    """
    wanted = list(names)
    taken, met, last = set(wanted), set[str](), Counter[str]()
    result = []
    for name in wanted:
        fresh = name
        while name in met and fresh in taken:
            last[name] += 1
            fresh = f"{name}_{last[name]}"
        met.add(name)
        taken.add(fresh)
        result.append(fresh)
    return result


def identifier(name: str) -> str:
    """Return the name with what an identifier cannot hold replaced by "_".

    >>> identifier("cache.0.key")
    'cache_0_key'
    """
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
