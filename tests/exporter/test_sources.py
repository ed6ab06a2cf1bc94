"""The forms that name a model, and one error for each way in which they fail."""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tpu_export.exporter.capture import capture
from tpu_export.exporter.programs import ProgramFileError
from tpu_export.exporter.sources import UnknownSourceError, resolve
from tpu_export.exporter.sources_hf import HuggingFaceDirectoryError
from tpu_export.exporter.sources_python import (
    FactoryError,
    ModelFileError,
    ModelImportError,
)
from tpu_export.runtime.errors import TpuExportError

MODEL = """
from dataclasses import dataclass

import torch
from torch.export import Dim

from layers import WIDTH


@dataclass
class Scores:
    logits: torch.Tensor


class Net(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, 2)
        self.scale = scale

    def forward(self, x):
        return Scores(self.fc(x) * self.scale)

    def encode(self, x):
        return self.fc(x)


def get_model():
    return Net()


def doubled():
    return Net(2.0)


def get_inputs(seed=0):
    return (torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed)),)


def get_dynamic_shapes():
    return {"x": {0: Dim("batch", max=8)}}
"""
SIGNATURES = """

def get_signatures():
    net = Net()
    return {
        "forward": (net, get_inputs()),
        "encode": (net.encode, get_inputs(), None, get_dynamic_shapes()),
        "named": (net, {"x": get_inputs()[0]}),
    }
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    (tmp_path / "layers.py").write_text("WIDTH = 3\n")
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


def test_python_file(model_file: Path) -> None:
    source = resolve(str(model_file))
    assert (source.name, source.model_file) == ("net", model_file.resolve())
    captured = source.captures()["forward"]
    assert captured.model_file == model_file.resolve()
    (x,) = captured.signature.inputs
    assert (x.name, x.shape) == ("x", ("batch", 3))
    assert captured.signature.outputs[0].name == "logits"
    (again,), _ = source.second_inputs(captured, 7)
    expected = torch.randn(4, 3, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(again, expected)


def test_python_file_with_factory(model_file: Path) -> None:
    source = resolve(f"{model_file}:doubled")
    assert source.name == "net-doubled"
    assert source.captures()["forward"].eager.scale == 2.0  # type: ignore[attr-defined]


def test_several_signatures_share_weights(model_file: Path) -> None:
    model_file.write_text(MODEL + SIGNATURES)
    captures = resolve(str(model_file)).captures()
    assert list(captures) == ["forward", "encode", "named"]
    weights = [c.program.state_dict["fc.weight"].data_ptr() for c in captures.values()]
    assert len(set(weights)) == 1
    assert captures["encode"].signature.inputs[0].shape == ("batch", 3)
    assert captures["named"].signature.parameters[0].kind == "keyword"


def test_the_module_can_be_pickled_and_leaves_the_path_alone(model_file: Path) -> None:
    before = list(sys.path)
    model = resolve(str(model_file)).entry_points["forward"].model
    assert sys.path == before
    assert isinstance(pickle.loads(pickle.dumps(model)), type(model))


def test_two_folders_with_siblings_of_one_name(tmp_path: Path) -> None:
    widths = []
    for width in (3, 5):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "layers.py").write_text(f"WIDTH = {width}\n")
        (folder / "net.py").write_text(MODEL)
        captured = resolve(str(folder / "net.py")).captures()["forward"]
        widths.append(captured.signature.inputs[0].shape[1])
    assert widths == [3, 5]


FORMS = [
    ("return torch.ones(2, 3)", {}, 1),
    ("return (torch.ones(2, 3),)", {}, 1),
    ("return [torch.ones(2, 3)]", {}, 1),
    ("return {'x': torch.ones(2, 3)}", {"x"}, 0),
    ("return (torch.ones(2, 3),), {}", {}, 1),
    ("return (), {'x': torch.ones(2, 3)}", {"x"}, 0),
]


@pytest.mark.parametrize(("body", "keywords", "positional"), FORMS)
def test_forms_of_inputs(
    tmp_path: Path, body: str, keywords: set[str], positional: int
) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "import torch\n"
        "def get_model():\n    return torch.nn.Identity()\n"
        f"def get_inputs():\n    {body}\n"
    )
    entry = resolve(str(path)).entry_points["forward"]
    assert len(entry.args) == positional
    assert set(entry.kwargs) == set(keywords)


def test_inputs_of_a_built_in(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "import functools, torch\n"
        "get_model = torch.nn.Identity\n"
        "get_inputs = functools.partial(torch.randn, 2, 3)\n"
    )
    (x,) = resolve(str(path)).entry_points["forward"].args
    assert isinstance(x, torch.Tensor)
    assert x.shape == (2, 3)


def test_program_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    torch.export.save(capture(nn.Linear(3, 2), (torch.ones(1, 3),)).program, path)
    source = resolve(str(path))
    assert source.name == "m"
    captured = source.captures()["forward"]
    assert captured.signature.inputs[0].name == "input"
    args, _ = source.second_inputs(captured, 1)
    assert isinstance(args[0], torch.Tensor)


@dataclasses.dataclass
class Entry:
    name: str = "linear"
    model_file: Path | None = None

    def build(self) -> tuple[nn.Module, tuple[object, ...], dict[str, object]]:
        return nn.Linear(3, 2), (torch.ones(1, 3),), {}

    def second_inputs(
        self, seed: int
    ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        return None


def test_zoo() -> None:
    source = resolve("zoo:linear", lambda name: Entry(name))
    assert source.name == "linear"
    assert "forward" in source.captures()


IMPORT_ERRORS = [
    ("def f(:\n", ModelImportError, "syntax error at m.py:1"),
    ("x = 1\ny = 1 / 0\n", ModelImportError, "m.py:2: ZeroDivisionError"),
    ("import no_such_package\n", ModelImportError, "no_such_package"),
    ("import sys\nsys.exit(0)\n", ModelImportError, "m.py:2: SystemExit"),
    ("", FactoryError, "has no get_model()"),
    ("def get_model():\n    return 3\n", FactoryError, "is an int"),
    (
        "def get_model():\n    raise ValueError('no weights')\n",
        FactoryError,
        "m.py:2: ValueError: no weights",
    ),
    (
        "import torch\ndef get_model():\n    return torch.nn.Identity()\n",
        FactoryError,
        "has no get_inputs()",
    ),
    (
        "import torch\ndef get_model():\n    return torch.nn.Identity()\n"
        "def get_inputs():\n    return 3\n",
        FactoryError,
        "get_inputs() returns an int",
    ),
    (
        "import torch\ndef get_model():\n    return torch.nn.Identity()\n"
        "def get_inputs():\n    return ()\n"
        "def get_dynamic_shapes():\n    return 3\n",
        FactoryError,
        "get_dynamic_shapes() in m.py returns an int",
    ),
    ("def get_signatures():\n    return {}\n", FactoryError, "get_signatures()"),
    (
        "def get_signatures():\n    return {'a': (1,)}\n",
        FactoryError,
        "signature 'a'",
    ),
]


@pytest.mark.parametrize(("text", "kind", "words"), IMPORT_ERRORS)
def test_a_bad_model_file(
    tmp_path: Path, text: str, kind: type[TpuExportError], words: str
) -> None:
    path = tmp_path / "m.py"
    path.write_text(text)
    with pytest.raises(kind) as info:
        resolve(str(path))
    assert words in info.value.message
    assert info.value.hint


def test_missing_and_unknown(tmp_path: Path, model_file: Path) -> None:
    cases: list[tuple[str, type[TpuExportError], str]] = [
        (f"{tmp_path}/absent.py", ModelFileError, "no file"),
        (f"{model_file}:absent", FactoryError, "has no absent()"),
        (f"{tmp_path}/absent.pt2", ProgramFileError, "no file"),
        ("resnet50", UnknownSourceError, "names no model"),
        ("m.onnx", UnknownSourceError, "names no model"),
        ("zoo:x", UnknownSourceError, "names no model"),
        (f"hf:{tmp_path}", HuggingFaceDirectoryError, "has no config.json"),
    ]
    for text, kind, words in cases:
        with pytest.raises(kind) as info:
            resolve(text)
        assert words in info.value.message


def test_the_hint_lists_the_python_files_that_are_there(model_file: Path) -> None:
    with pytest.raises(ModelFileError) as info:
        resolve(str(model_file.with_name("nett.py")))
    assert "net.py" in info.value.hint


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_a_damaged_program_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(content)
    with pytest.raises(ProgramFileError, match="cannot be read"):
        resolve(str(path))


HF_ERRORS = [
    ("{", None, "is no JSON"),
    ("[]", None, "is no object"),
    ('{"architectures": ["BertModel"]}', None, "has no weights"),
    ('{"architectures": ["NoSuchModel"]}', b"", "does not know"),
    (
        '{"architectures": ["BertModel"], "model_type": "bert"}',
        b"xx",
        "cannot be loaded as BertModel",
    ),
]


@pytest.mark.parametrize(("config", "weights", "words"), HF_ERRORS)
def test_a_bad_hugging_face_directory(
    tmp_path: Path, config: str, weights: bytes | None, words: str
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(config)
    if weights is not None:
        (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(HuggingFaceDirectoryError, match=words):
        resolve(f"hf:{tmp_path}")


TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
DIRECTORIES = [
    (
        "BertConfig",
        "BertModel",
        {**TINY, "vocab_size": 99},
        {"input_ids", "attention_mask"},
    ),
    (
        "ViTConfig",
        "ViTForImageClassification",
        {**TINY, "image_size": 32},
        {"pixel_values"},
    ),
    (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 16,
            "num_layers": 1,
            "num_heads": 2,
            "vocab_size": 99,
            "decoder_start_token_id": 0,
        },
        {"input_ids", "attention_mask", "decoder_input_ids"},
    ),
]


@pytest.mark.parametrize(("config", "model", "fields", "inputs"), DIRECTORIES)
def test_hugging_face_directory(
    tmp_path: Path, config: str, model: str, fields: dict[str, object], inputs: set[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    network = getattr(transformers, model)(getattr(transformers, config)(**fields))
    network.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [
        model
    ]
    source = resolve(f"hf:{tmp_path}")
    captured = source.captures()["forward"]
    assert {spec.name for spec in captured.signature.inputs} == inputs
    assert source.name == tmp_path.name
