"""A second reader of .tpuexe, written from docs/tpuexe.md with the standard library alone.

``python strict_reader.py FILE`` prints the rule that a file breaks, or "ok".
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
import struct
import sys
import zlib
from typing import Any

PART = "[A-Za-z0-9_][A-Za-z0-9_.=+-]*"
ENTRY = re.compile(f"{PART}(?:/{PART}){{0,7}}")
FUNCTIONS = ("max", "min", "floordiv", "mod")
TOP = 2**63 - 1
SIZES = {
    "bool": ("BOOL", 1), "uint8": ("U8", 1), "uint16": ("U16", 2), "uint32": ("U32", 4),
    "uint64": ("U64", 8), "int8": ("I8", 1), "int16": ("I16", 2), "int32": ("I32", 4),
    "int64": ("I64", 8), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "float32": ("F32", 4), "float64": ("F64", 8), "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1), "complex64": ("C64", 8), "complex128": ("C128", 16),
}  # fmt: skip
CODES = {code: (name, size) for name, (code, size) in SIZES.items()}
TENSOR = {"name": "text", "shape": ["size"], "dtype": "text"}
FUNCTION = {
    "arguments": [{"kind": "text", **TENSOR}],
    "results": [{"kind": "text", **TENSOR}],
}
SCHEMA = {
    "version": "int",
    "features": ["text"],
    "producers": ("text",),
    "programs": ({
        "signature": {
            "name": "text",
            "parameters": [{"name": "text", "kind": "text", "tree": "any"}],
            "inputs": [TENSOR], "outputs": [TENSOR], "state": [TENSOR],
            "output_tree": "any",
            "mutated_inputs": ["text"],
            "dims": [{"name": "text", "minimum": "int", "maximum": "int?"}],
            "constraints?": ["text"],
            "ranges?": [{"name": "text", "low": "int", "high": "int", "because": "text"}],
        },
        "main": FUNCTION, "main_modules": ("text",),
        "prepare": "function?", "prepare_modules": ("text",),
    },),
    "weights": ({"entry": "text", "key": "text", "shape": ["int"], "dtype": "text"},),
    "executables": [{
        "signature": "text", "platform": "text", "topology": "text", "dims": ("int",),
        "main": "text", "prepare": "text?", "layouts": ["order?"],
        "compiler": {
            "jaxlib": "text", "platform_version": "text", "host_features": ["text"],
            "options": ("text",),
        },
    }],
    "entries": ({"size": "int", "sha256": "text"},),
    "cpu_engines?": [{
        "signature": "text", "dims": ("int",), "engine": "text", "main": "text?",
        "microseconds": ("int",), "producers": ("text",),
    }],
}  # fmt: skip


class Broken(Exception):  # noqa: N818
    """A rule is broken; args[0] is its number, "version" where advice is to upgrade."""


def need(condition: Any, rule: str) -> None:
    if not condition:
        raise Broken(rule)


def check(data: bytes) -> dict[str, Any]:
    """Check a whole file, payloads too; return the manifest."""
    payloads = read_archive(data)
    names = list(payloads)
    need(names and names[-1] == "manifest.json", "3.1")
    text = payloads.pop("manifest.json")
    need(len(text) <= 256 * 2**20, "3.1")
    manifest = parse(text, "3.1")
    version, features = manifest.get("version"), manifest.get("features")
    need(not (type(version) is int and version > 1), "version")
    known = ("constraints", "ranges", "cpu_engines")
    unknown = isinstance(features, list) and any(f not in known for f in features)
    need(not unknown, "version")
    fits(SCHEMA, manifest)
    need(version >= 1, "3.3")
    entries = manifest["entries"]
    need(entries.keys() == payloads.keys(), "3.2")
    for name, payload in payloads.items():
        digest = hashlib.sha256(payload).hexdigest()
        need(entries[name] == {"size": len(payload), "sha256": digest}, "3.2")
    tensors = {n: read_tensors(p) for n, p in payloads.items() if is_tensors(n)}
    check_manifest(manifest, tensors)
    return manifest


def is_tensors(name: str) -> bool:
    return name.endswith(".safetensors")


# --- section 2


def read_archive(data: bytes) -> dict[str, bytes]:
    need(len(data) >= 98, "2.1")
    at = len(data) - 98
    count, _, size, place = struct.unpack_from("<QQQQ", data, at + 24)
    end = b"PK\6\6" + struct.pack(
        "<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, place
    )
    end += b"PK\6\7" + struct.pack("<IQI", 0, at, 1)
    end += b"PK\5\6" + b"\0" * 4 + b"\xff" * 12 + b"\0\0"
    need(data[at:] == end, "2.1")
    need(count <= 100_000, "2.2")
    need(place + size == at, "2.7")
    payloads: dict[str, bytes] = {}
    position, expected = place, 0
    for _ in range(count):
        position, expected = read_entry(data, position, expected, place, payloads)
    need(position == at, "2.7")
    need(expected == place, "2.5")
    return payloads


def read_entry(
    data: bytes, position: int, header: int, limit: int, payloads: dict[str, bytes]
) -> tuple[int, int]:
    need(position + 46 <= len(data), "2.7")
    crc, length = struct.unpack_from("<I8xH", data, position + 16)
    raw = data[position + 46 : position + 46 + length]
    extra = data[position + 46 + length : position + 74 + length]
    need(len(raw) == length and len(extra) == 28, "2.7")
    name = raw.decode("latin-1")
    need(ENTRY.fullmatch(name) and length <= 512 and name not in payloads, "2.3")
    (size,) = struct.unpack_from("<Q", extra, 4)
    central = b"PK\1\2" + struct.pack("<HHHHHHI", 45, 45, 0x800, 0, 0, 0x21, crc)
    central += b"\xff" * 8 + struct.pack("<HHHHHII", length, 28, 0, 0, 0, 0, 2**32 - 1)
    central += raw + struct.pack("<HHQQQ", 1, 24, size, size, header)
    need(data[position : position + len(central)] == central, "2.6")
    unpadded = header + 30 + length + 20 + 4
    start = (unpadded + 4095) // 4096 * 4096
    n = start - unpadded
    local = b"PK\3\4" + struct.pack("<HHHHHI", 45, 0x800, 0, 0, 0x21, crc)
    local += b"\xff" * 8 + struct.pack("<HH", length, 24 + n) + raw
    local += struct.pack("<HHQQHH", 1, 16, size, size, 0x5450, n) + b"\0" * n
    need(start + size <= limit, "2.4")
    need(data[header:start] == local, "2.6")
    payloads[name] = data[start : start + size]
    need(zlib.crc32(payloads[name]) == crc, "2.8")
    return position + len(central), start + size


# --- section 3: types


def parse(text: bytes, rule: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), rule)
        return dict(pairs)

    try:
        value = json.loads(str(text, "utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Broken(rule) from None
    need(isinstance(value, dict), rule)
    return value


def fits(schema: Any, value: Any) -> None:
    """Rule 3.3. A list has one schema for its items, a 1-tuple one for an object's values."""
    if isinstance(schema, dict):
        need(isinstance(value, dict), "3.3")
        known = {key.rstrip("?"): key for key in schema}
        need(not value.keys() - known.keys(), "3.3")
        for key, marked in known.items():
            if key in value:
                need(value[key] or key == marked, "3.3")
                fits(schema[marked], value[key])
            else:
                need(key != marked, "3.3")
    elif isinstance(schema, list):
        need(isinstance(value, list), "3.3")
        for item in value:
            fits(schema[0], item)
    elif isinstance(schema, tuple):
        need(isinstance(value, dict), "3.3")
        for item in value.values():
            fits(schema[0], item)
    elif schema == "function?":
        value is None or fits(FUNCTION, value)
    elif schema == "order?":
        value is None or fits(["int"], value)
    else:
        kinds = {
            "text": (str,), "int": (int,), "size": (int, str), "any": (type(value),),
            "text?": (str, type(None)), "int?": (int, type(None)),
        }[schema]  # fmt: skip
        need(type(value) in kinds, "3.3")


# --- section 3: meaning


def check_manifest(m: dict[str, Any], tensors: dict[str, Any]) -> None:
    named(m)
    weights = {n: {"name": n, "shape": w["shape"], "dtype": w["dtype"]}
               for n, w in m["weights"].items()}  # fmt: skip
    for name, w in m["weights"].items():
        check_tensor(weights[name], ())
        need(is_name(w["key"]), "3.5")
        stored = tensors.get(w["entry"], {}).get(w["key"])
        need(stored == (w["dtype"], w["shape"]), "4")
    programs = m["programs"]
    state = {s["name"] for p in programs.values() for s in p["signature"]["state"]}
    for name, program in programs.items():
        need(program["signature"]["name"] == name, "3.5")
        check_signature(program["signature"], weights)
        check_program(program, weights, state)
    signatures = [p["signature"] for p in programs.values()]
    used = [f for f in ("constraints", "ranges") if any(f in s for s in signatures)]
    engines = m.get("cpu_engines", [])
    need(m["features"] == used + ["cpu_engines"] * bool(engines), "3.10")
    for executable in m["executables"]:
        need(executable["signature"] in programs, "3.8")
        check_executable(executable, programs[executable["signature"]])
    for engine in engines:
        need(engine["signature"] in programs, "3.13")
        check_engine(engine, programs[engine["signature"]])
    need(once([(e["signature"], e["dims"]) for e in engines]), "3.13")


def named(m: dict[str, Any]) -> None:
    for p in m["programs"].values():
        for name in [*p["main_modules"].values(), *p["prepare_modules"].values()]:
            need(name in m["entries"] and name.split("/")[0] == "programs", "3.4")
    for x in m["executables"]:
        for name in [x["main"], *([] if x["prepare"] is None else [x["prepare"]])]:
            need(name in m["entries"] and name.split("/")[0] == "executables", "3.4")
    for e in m.get("cpu_engines", []):
        if e["main"] is not None:
            found = e["main"] in m["entries"]
            need(found and e["main"].split("/")[0] == "litert", "3.4")
    for w in m["weights"].values():
        known = w["entry"] in m["entries"] and w["entry"].split("/")[0] == "weights"
        need(known and is_tensors(w["entry"]), "3.4")


def is_name(text: str) -> bool:
    def plain(code: int) -> bool:
        return not (code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF)

    return 1 <= len(text) <= 1024 and all(plain(ord(c)) for c in text)


def check_tensor(tensor: dict[str, Any], dims: Any) -> None:
    need(is_name(tensor["name"]) and tensor["dtype"] in SIZES, "3.5")
    need(len(tensor["shape"]) <= 32, "3.5")
    for size in tensor["shape"]:
        if isinstance(size, str):
            Expression(size, dims).check()
        else:
            need(0 <= size <= TOP, "3.5")


def once(names: list[Any]) -> bool:
    return all(name not in names[:i] for i, name in enumerate(names))


def is_word(name: str) -> bool:
    good = re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", name)
    return bool(good) and not keyword.iskeyword(name) and name not in FUNCTIONS


def check_signature(s: dict[str, Any], weights: dict[str, Any]) -> None:
    need(re.fullmatch(f"{PART}", s["name"]) and len(s["name"]) <= 128, "3.5")
    for dim in s["dims"]:
        need(is_word(dim["name"]), "3.7")
        high = TOP if dim["maximum"] is None else dim["maximum"]
        need(0 <= dim["minimum"] <= high <= TOP, "3.7")
    dims = [dim["name"] for dim in s["dims"]]
    need(once(dims), "3.7")
    for part, known in (("inputs", dims), ("outputs", dims), ("state", [])):
        need(once([t["name"] for t in s[part]]), "3.5")
        for tensor in s[part]:
            check_tensor(tensor, known)
    for tensor in s["state"]:
        need(weights.get(tensor["name"]) == tensor, "3.6")
    names = [p["name"] for p in s["parameters"]]
    need(once(names) and all(map(is_name, names)), "3.5")
    need(all(p["kind"] in ("positional", "keyword") for p in s["parameters"]), "3.3")
    leaves = [i for p in s["parameters"] for i in tree_leaves(p["tree"], 1)]
    need(leaves == list(range(len(s["inputs"]))), "3.9")
    need(tree_leaves(s["output_tree"], 1) == list(range(len(s["outputs"]))), "3.9")
    numbers = [t["name"] for t in s["inputs"]
               if not t["shape"] and t["dtype"] == "int64" and is_word(t["name"])]  # fmt: skip
    for text in s.get("constraints", []):
        match = re.fullmatch("([^<>=!]*) (?:<=|>=|<|>|==|!=) ([^<>=!]*)", text)
        need(match, "3.10")
        for side in match.groups():
            Expression(side, [*dims, *numbers], "3.10").check()
    ranges = s.get("ranges", [])
    need(once([r["name"] for r in ranges]), "3.11")
    for r in ranges:
        bits = {t["name"]: {"int32": 31, "int64": 63}.get(t["dtype"])
                for t in s["inputs"]}.get(r["name"])  # fmt: skip
        need(bits, "3.11")
        need(-(2**bits) <= r["low"] <= r["high"] < 2**bits, "3.11")
        need(is_name(r["because"]), "3.11")
    need(once(s["mutated_inputs"]), "3.5")
    need(set(s["mutated_inputs"]) <= {t["name"] for t in s["inputs"]}, "3.5")


def as_slots(kind: str, tensors: Any) -> list[Any]:
    return [{"kind": kind, **tensor} for tensor in tensors]


def check_program(p: dict[str, Any], weights: dict[str, Any], state: set[str]) -> None:
    s, main, prepare = p["signature"], p["main"], p["prepare"]
    dims = [dim["name"] for dim in s["dims"]]
    modules = [p["main_modules"], *([p["prepare_modules"]] if prepare else [])]
    need(prepare or not p["prepare_modules"], "3.6")
    for variants in modules:
        need("" in variants and not variants.keys() - {"", "cpu", "tpu"}, "3.6")
    leading = main["arguments"][
        : len(main["arguments"]) - len(s["state"] + s["inputs"])
    ]
    need(all(a["kind"] in ("weight", "prepared") for a in leading), "3.6")
    need(once([(a["kind"], a["name"]) for a in leading]), "3.6")
    rest = as_slots("state", s["state"]) + as_slots("input", s["inputs"])
    need(main["arguments"] == leading + rest, "3.6")
    written = [t for n in s["mutated_inputs"] for t in s["inputs"] if t["name"] == n]
    results = as_slots("output", s["outputs"]) + as_slots("state", s["state"])
    need(main["results"] == results + as_slots("input", written), "3.6")
    raw = [a for a in leading if a["kind"] == "weight"]
    given = [a for a in leading if a["kind"] == "prepared"]
    for slot in given:
        check_tensor(slot, dims)
    need(given == (prepare["results"] if prepare else []), "3.6")
    if prepare:
        for slots, kind in ((prepare["arguments"], "weight"), (given, "prepared")):
            need(all(a["kind"] == kind for a in slots), "3.6")
            need(once([a["name"] for a in slots]), "3.6")
            for slot in slots:
                check_tensor(slot, ())
        raw += prepare["arguments"]
    for slot in raw:
        need({**weights.get(slot["name"], {}), "kind": "weight"} == slot, "3.6")
        need(slot["name"] not in state, "3.6")


def check_engine(e: dict[str, Any], program: dict[str, Any]) -> None:
    check_sizes(e["dims"], program, "3.13")
    need(e["engine"] in ("litert", "xla"), "3.13")
    need((e["engine"] == "xla") == (e["main"] is None), "3.13")
    for engine, time in e["microseconds"].items():
        need(engine in ("litert", "xla") and 0 <= time <= TOP, "3.13")
    for pair in e["producers"].items():
        need(all(map(is_name, pair)), "3.13")


def check_sizes(sizes: dict[str, int], program: dict[str, Any], rule: str) -> None:
    dims = {d["name"]: d["maximum"] for d in program["signature"]["dims"]}
    need(sizes.keys() == dims.keys(), rule)
    for name, size in sizes.items():
        need(0 <= size <= (TOP if dims[name] is None else dims[name]), rule)


def check_executable(x: dict[str, Any], program: dict[str, Any]) -> None:
    need(x["platform"] in ("cpu", "tpu"), "3.8")
    check_sizes(x["dims"], program, "3.8")
    arguments = program["main"]["arguments"]
    need(len(x["layouts"]) == len(arguments), "3.8")
    for order, slot in zip(x["layouts"], arguments, strict=True):
        need(order is None or sorted(order) == list(range(len(slot["shape"]))), "3.8")
    leading = any(a["kind"] in ("weight", "prepared") for a in arguments)
    wanted = program["prepare"] is not None if x["platform"] == "cpu" else leading
    need((x["prepare"] is not None) == wanted, "3.8")


def tree_leaves(tree: Any, depth: int) -> list[int]:
    need(depth <= 64 and isinstance(tree, dict), "3.9")
    fields = tuple(sorted(tree))
    if fields == ("leaf",):
        need(type(tree["leaf"]) is int, "3.9")
        return [tree["leaf"]]
    if fields == ("const",):
        need(
            tree["const"] is None or type(tree["const"]) in (bool, int, float, str),
            "3.9",
        )
        return []
    if fields in (("list",), ("tuple",)):
        children = tree[fields[0]]
        need(isinstance(children, list), "3.9")
    elif fields == ("dict",):
        children = pairs_of(tree["dict"])
    else:
        need(fields == ("fields", "kind", "record"), "3.9")
        need(isinstance(tree["record"], str), "3.9")
        need(tree["kind"] in ("dataclass", "namedtuple", "mapping"), "3.9")
        children = pairs_of(tree["fields"])
        if tree["kind"] == "namedtuple":
            for word in [tree["record"], *(key for key, _ in tree["fields"])]:
                need(isinstance(word, str), "3.9")
                need(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", word), "3.9")
                need(not keyword.iskeyword(word), "3.9")
    return [leaf for child in children for leaf in tree_leaves(child, depth + 1)]


def pairs_of(pairs: Any) -> list[Any]:
    need(isinstance(pairs, list), "3.9")
    need(all(isinstance(p, list) and len(p) == 2 for p in pairs), "3.9")
    need(all(type(key) in (str, int) for key, _ in pairs), "3.9")
    need(once([key for key, _ in pairs]), "3.9")
    return [child for _, child in pairs]


class Expression:
    """Rule 3.7, by recursive descent; `rule` is what names a breach."""

    def __init__(self, text: str, dims: Any, rule: str = "3.7") -> None:
        self.text, self.dims, self.rule = text, dims, rule

    def check(self) -> None:
        text = self.text
        need(0 < len(text) <= 1000 and text == text.strip(" "), self.rule)
        self.tokens = re.findall(r"[A-Za-z_0-9]+|//|[^ ]", text)
        need(len(self.tokens) <= 200, self.rule)
        self.tokens.append("")
        self.sum()
        need(self.tokens == [""], self.rule)

    def take(self, *wanted: str) -> bool:
        if self.tokens[0] in wanted:
            return bool(self.tokens.pop(0))
        return False

    def sum(self) -> None:
        self.product()
        while self.take("+", "-"):
            self.product()

    def product(self) -> None:
        self.factor()
        while self.take("*", "//", "%"):
            self.factor()

    def factor(self) -> None:
        while self.take("-"):
            pass
        if self.take("("):
            self.sum()
            need(self.take(")"), self.rule)
        elif self.take(*FUNCTIONS):
            need(self.take("("), self.rule)
            self.sum()
            need(self.take(","), self.rule)
            self.sum()
            need(self.take(")"), self.rule)
        elif not self.take(*self.dims):
            need(re.fullmatch("0|[1-9][0-9]{0,18}", self.tokens.pop(0)), self.rule)


# --- section 4


def read_tensors(data: bytes) -> dict[str, tuple[str, list[int]]]:
    need(len(data) >= 8, "4")
    (length,) = struct.unpack_from("<Q", data)
    need(length <= 100 * 2**20 and length <= len(data) - 8, "4")
    need((length + 8) % 64 == 0, "4")
    found, offset = {}, 0
    for name, record in parse(data[8 : 8 + length], "4").items():
        need(isinstance(record, dict), "4")
        need(record.keys() == {"dtype", "shape", "data_offsets"}, "4")
        code, shape, span = record["dtype"], record["shape"], record["data_offsets"]
        need(isinstance(code, str) and code in CODES, "4")
        for numbers in (shape, span):
            need(isinstance(numbers, list), "4")
            need(all(type(n) is int and n >= 0 for n in numbers), "4")
        need(len(shape) <= 32, "4")
        dtype, size = CODES[code]
        volume = total = size
        for n in shape:
            volume, total = volume * (n or 1), total * n
        need(volume < 2**63, "4")
        need(span == [offset, offset + total], "4")
        offset += total
        found[name] = (dtype, shape)
    need(offset == len(data) - 8 - length, "4")
    return found


if __name__ == "__main__":
    try:
        with open(sys.argv[1], "rb") as file:
            check(file.read())
        print("ok")
    except Broken as error:
        sys.exit(f"rule {error}")
