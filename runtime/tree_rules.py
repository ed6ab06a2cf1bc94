"""Trees of a manifest: rule 3.9 of docs/tpuexe.md."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.signature import Tree

MAX_DEPTH = 64


def require(condition: bool, rule: str, what: str) -> None:
    """Raise ArtifactCorruptedError, naming the rule, where the condition does not hold."""
    if not condition:
        raise ArtifactCorruptedError(rule, what)


def distinct(items: Sequence[object]) -> bool:
    """Whether no item is there twice."""
    return len(set(items)) == len(items)


def check_trees(trees: Sequence[Tree], count: int, where: str) -> None:
    """Check trees whose leaves, in order, are 0 … count - 1."""
    leaves = [leaf for tree in trees for leaf in _leaves(tree, 0, where)]
    require(leaves == [*range(count)], "3.9", f"{where}: leaves are {leaves[:5]} …")


def _leaves(tree: object, depth: int, where: str) -> Iterator[int]:
    require(depth < MAX_DEPTH, "3.9", f"{where}: a tree is too deep")
    match tree:
        case {"leaf": index, **rest} if type(index) is int and not rest:
            yield index
            return
        case {"const": None | bool() | int() | float() | str(), **rest} if not rest:
            return
        case {"list": list(children), **rest} if not rest:
            pass
        case {"tuple": list(children), **rest} if not rest:
            pass
        case {"dict": list(pairs), **rest} if not rest:
            children = _children(pairs, (str, int), where)
        case {"record": str(name), "kind": kind, "fields": list(pairs), **rest} if (
            not rest and kind in ("dataclass", "namedtuple", "mapping")
        ):
            children = _children(pairs, (str, int), where)
            words = [name, *(pair[0] for pair in pairs)]
            good = kind != "namedtuple" or all(map(_is_field, words))
            require(good, "3.9", f"{where}: bad fields of a namedtuple")
        case _:
            raise ArtifactCorruptedError("3.9", f"{where}: not a tree")
    for child in children:
        yield from _leaves(child, depth + 1, where)


def _children(
    pairs: Sequence[object], kinds: tuple[type, ...], where: str
) -> list[object]:
    """Return the trees of [[key, tree], …]; keys are distinct, also as text."""
    keys, children = [], []
    for pair in pairs:
        good = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in kinds
        require(good, "3.9", f"{where}: not a pair of key and tree")
        assert isinstance(pair, list)
        keys.append(pair[0])
        children.append(pair[1])
    require(distinct(keys), "3.9", f"{where}: a key twice")
    return children


def _is_field(word: object) -> bool:
    return (
        isinstance(word, str)
        and bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", word))
        and not keyword.iskeyword(word)
    )
