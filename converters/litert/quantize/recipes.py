"""Recipes: which module and op of a model gets which number format.

The number formats are those that ai-edge-quantizer 0.10 has kernels of the runtime for.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.graph import Node
from tpu_export.converters.litert.quantize.errors import RecipeError

FLOAT = "float"
FLOAT_IN_STATIC = ("EQUAL", "NOT_EQUAL")
WEIGHT_BLOCKS = "weight-int4-block32"
_MIN_MAX = "min_max_uniform_quantize"


def _tensor(bits: int, granularity: str, *, symmetric: bool = True) -> dict[str, Any]:
    return {
        "num_bits": bits,
        "symmetric": symmetric,
        "granularity": granularity,
        "dtype": "INT",
    }


def _integer(weight: Mapping[str, Any], activation: Any = None) -> dict[str, Any]:
    """Return the arithmetic of integers: of activations scaled at run time without `activation`."""
    own = {"activation_tensor_config": activation} if activation else {}
    return own | {
        "weight_tensor_config": weight,
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
    }


def _stored(weight: Mapping[str, Any]) -> dict[str, Any]:
    """Return integers that are widened to float before each op."""
    return {
        "weight_tensor_config": weight,
        "compute_precision": "FLOAT",
        "explicit_dequantize": True,
    }


_PER_CHANNEL = _tensor(8, "CHANNELWISE")
# name -> (algorithm, what an op gets): of ai-edge-quantizer.
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamic-int8": (_MIN_MAX, _integer(_PER_CHANNEL)),
    "dynamic-int4": (_MIN_MAX, _integer(_tensor(4, "CHANNELWISE"))),
    "dynamic-int4-block32": (_MIN_MAX, _integer(_tensor(4, "BLOCKWISE_32"))),
    "weight-int8": (_MIN_MAX, _stored(_PER_CHANNEL)),
    "weight-int4": (_MIN_MAX, _stored(_tensor(4, "CHANNELWISE"))),
    # Integers after ai-edge-quantizer; `blocks.widen_blocks` makes floats of them.
    WEIGHT_BLOCKS: (_MIN_MAX, _integer(_tensor(4, "BLOCKWISE_32"))),
    "static-int8": (
        _MIN_MAX,
        _integer(_PER_CHANNEL, _tensor(8, "TENSORWISE", symmetric=False)),
    ),
    "static-int16": (_MIN_MAX, _integer(_PER_CHANNEL, _tensor(16, "TENSORWISE"))),
    "fp16": (
        "float_casting",
        _stored(_tensor(16, "TENSORWISE") | {"dtype": "FLOAT"}),
    ),
}
NAMES = (*_CONFIGS, FLOAT)


def _config(name: str) -> dict[str, Any]:
    if name == FLOAT:
        return {"algorithm_key": "no_quantize", "op_config": {}}
    algorithm, config = _CONFIGS[name]
    return {"algorithm_key": algorithm, "op_config": config}


_KEYS = {"module", "ops", "recipe"}


@dataclass(frozen=True)
class Rule:
    """A number format for some ops.

    Attributes:
        recipe: a name of NAMES; module: a glob of dotted paths ("" is the root).
        ops: names of LiteRT ops such as FULLY_CONNECTED; () is every op.
    """

    recipe: str
    module: str = "*"
    ops: tuple[str, ...] = ()

    def fits(self, module: str, op: str) -> bool:
        """Whether the rule is about an op of a module."""
        return fnmatchcase(module, self.module) and (not self.ops or op in self.ops)

    def to_toml(self) -> str:
        """Return the rule as a table; a JSON string or list is a TOML one."""
        values = {"module": self.module, "recipe": self.recipe}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines += [f"ops = {json.dumps(self.ops)}"] if self.ops else []
        return "\n".join(["[[rule]]", *lines, ""])

    def configs(self) -> list[dict[str, Any]]:
        """Return what ai-edge-quantizer calls the number format, of all ops and of some.

        Static formats have no kernel for a table of embeddings: its rows are int8, widened. Whether
        numbers are equal is not known from integers of two scales.
        """
        own = [{"operation": "*", **_config(self.recipe)}]
        if self.is_static:
            own += [{"operation": op, **_config(FLOAT)} for op in FLOAT_IN_STATIC]
            own += [{"operation": "EMBEDDING_LOOKUP", **_config("dynamic-int8")}]
        return own

    @property
    def is_static(self) -> bool:
        """Whether activations get their scales before, from calibration data."""
        return self.recipe.startswith("static-")


@dataclass(frozen=True)
class Recipe:
    """Rules in order, of which the last that fits an op counts; none: float.

    Attributes:
        linted: how many of the rules, the last ones, come from the lint.
    """

    name: str
    rules: tuple[Rule, ...]
    linted: int = 0

    @property
    def is_static(self) -> bool:
        """Whether activations get their scales before, from calibration data."""
        return any(rule.is_static for rule in self.rules)

    def holds(self, recipe: str) -> bool:
        """Whether a rule is of a number format."""
        return any(rule.recipe == recipe for rule in self.rules)

    @property
    def digest(self) -> str:
        """The SHA-256 of the resolved rules, as canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the rules with all that they stand for."""
        rules = [asdict(rule) | {"configs": rule.configs()} for rule in self.rules]
        return json.dumps(rules, sort_keys=True, separators=(",", ":"))

    def to_toml(self) -> str:
        """Return the rules as a file that `read_recipe` reads."""
        return "\n".join(rule.to_toml() for rule in self.rules)

    def rule_of(self, module: str, op: str) -> int | None:
        """Return the place of the rule that counts for an op, None where none fits."""
        fits = [i for i, rule in enumerate(self.rules) if rule.fits(module, op)]
        return fits[-1] if fits else None

    def of(self, node: Node) -> str:
        """Return the number format of an op, a name of NAMES."""
        number = self.rule_of(node.place.module, node.name)
        return FLOAT if number is None else self.rules[number].recipe


def read_recipe(text: str | Path) -> Recipe:
    """Return a recipe by its name, or from a .toml file.

    A file holds rules: [[rule]] with recipe = "static-int8" and, where they are not about
    everything, module = "encoder.layers.*" and ops = ["FULLY_CONNECTED"].

    Raises:
        RecipeError: an unknown name or key, or a file that cannot be read.
    """
    if not str(text).endswith(".toml"):
        return Recipe(str(text), (Rule(_known(str(text))),))
    path = Path(text)
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecipeError(
            f"cannot read the recipe {path}: {reason}",
            hint='it holds tables [[rule]] with recipe = "static-int8", module and ops',
        ) from error
    rules = found.get("rule")
    if set(found) - {"rule"} or not isinstance(rules, list) or not rules:
        raise RecipeError(
            f"{path} holds {', '.join(found) or 'nothing'}, not just tables [[rule]]",
            hint='write [[rule]] and below it recipe = "dynamic-int8", module = "head"',
        )
    return Recipe(
        path.name, tuple(_rule(rule, i, path) for i, rule in enumerate(rules))
    )


def _rule(table: Any, number: int, path: Path) -> Rule:
    place = f"rule {number + 1} of {path.name}"
    if not isinstance(table, dict) or "recipe" not in table:
        raise RecipeError(f"{place} has no recipe", hint=f"one of {', '.join(NAMES)}")
    if unknown := sorted(set(table) - _KEYS):
        raise RecipeError(
            f"{place} has unknown keys: {', '.join(unknown)}",
            hint="a rule has recipe, module and ops",
        )
    module, ops = table.get("module", "*"), table.get("ops", [])
    texts = isinstance(ops, list) and all(isinstance(op, str) for op in ops)
    if not isinstance(module, str) or not texts:
        raise RecipeError(
            f"{place}: module is a glob, ops a list of names",
            hint='module = "encoder.*", ops = ["FULLY_CONNECTED"]',
        )
    return Rule(_known(table["recipe"], place), module, tuple(ops))


def _known(name: Any, place: str = "--quantize") -> str:
    if name in NAMES:
        return str(name)
    near = difflib.get_close_matches(str(name), NAMES, 1, 0.5)
    meant = f"did you mean {near[0]}? " if near else ""
    raise RecipeError(
        f"unknown recipe {name!r} ({place})",
        hint=f"{meant}there are {', '.join(NAMES)}, or a file recipe.toml",
    )


def unused(recipe: Recipe, ops: Sequence[tuple[str, str]]) -> list[Rule]:
    """Return the rules that are about none of the (module, op) of a model."""
    return [r for r in recipe.rules if not any(r.fits(m, op) for m, op in ops)]
