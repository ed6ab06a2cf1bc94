"""Recipes by name and from files; every mistake is one coded error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpu_export.converters.litert.quantize.errors import RecipeError
from tpu_export.converters.litert.quantize.recipes import NAMES, read_recipe, unused

MIXED = """
[[rule]]
recipe = "static-int8"
[[rule]]
recipe = "float"
module = "head*"
[[rule]]
recipe = "dynamic-int8"
module = "head.out"
ops = ["FULLY_CONNECTED"]
"""


def test_the_last_rule_that_fits_counts(tmp_path: Path):
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED)
    recipe = read_recipe(path)
    assert recipe.is_static
    assert recipe.rule_of("body", "ADD") == 0
    assert recipe.rule_of("head.norm", "MUL") == 1
    assert recipe.rule_of("head.out", "FULLY_CONNECTED") == 2
    assert recipe.rule_of("head.out", "ADD") == 1
    assert [r.module for r in unused(recipe, [("head.out", "ADD")])] == ["head.out"]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_one_digest(name: str):
    recipe = read_recipe(name)
    assert json.loads(recipe.to_json())[0]["recipe"] == name
    assert recipe.digest == read_recipe(name).digest
    assert recipe.is_static == name.startswith("static")
    assert len({read_recipe(n).digest for n in NAMES}) == len(NAMES)


WRONG = {
    "x = 1": "holds x",
    "": "holds nothing",
    "[[rule]]\nmodule = 'a'": "rule 1 of r.toml has no recipe",
    "[[rule]]\nrecipe = 'static-int8'\n[[rule]]\nrecipe = 'stat-int8'": "rule 2",
    "[[rule]]\nrecipe = 'fp16'\nmodul = 'a'": "unknown keys: modul",
    "[[rule]]\nrecipe = 'fp16'\nops = 'ADD'": "ops a list",
    "[[rule]]\nrecipe = 'fp16'\nmodule = 3": "module is a glob",
    "[[rule": "cannot read",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as info:
        read_recipe(path)
    assert WRONG[text] in info.value.message


def test_a_wrong_name_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="dynmic") as info:
        read_recipe("dynmic-int8")
    assert "did you mean dynamic-int8?" in info.value.hint
    with pytest.raises(RecipeError, match="No such file"):
        read_recipe(tmp_path / "none.toml")
