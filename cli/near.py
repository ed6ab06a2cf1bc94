"""Words near to one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a question with up to three near words, "" when none is near.

    >>> did_you_mean("exprt", ["export", "run"])
    'did you mean export?'
    """
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), list(known), n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}?" if near else ""
