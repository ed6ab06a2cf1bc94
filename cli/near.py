"""Words near to one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def near_words(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three near words, the nearest first."""
    from difflib import get_close_matches

    return get_close_matches(word.lower(), list(known), n=3, cutoff=cutoff)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a question with up to three near words, "" when none is near.

    >>> did_you_mean("exprt", ["export", "run"])
    'did you mean export?'
    """
    return question(near_words(word, known, cutoff))


def question(words: Sequence[str]) -> str:
    """Return "did you mean this or that?", "" without words."""
    return f"did you mean {' or '.join(words)}?" if words else ""
