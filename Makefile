# make demo   create .venv, install, export EfficientNet-Lite0 for both targets
# make test   create .venv, install, lint, types, tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := export,tpu,litert,onnx,zoo
READY := $(VENV)/.ready

.PHONY: demo test test-all test-ops lint types tests zoo bench docs clean

demo: $(READY)
	$(BIN)/tpu-export demo --output demo-output

test: lint types tests

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

# Two processes of one thread each (34 minutes of one became 19); a file stays in one of them, with the exports that its fixtures make.
tests: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not zoo and not tpu" -n 2 --dist loadfile

test-all: lint types
	$(BIN)/python -m pytest -m "not tpu"

# All of torch's op_db and module_db, every dtype: hours. RECORD=1 writes the new results.
test-ops: $(READY)
	PYTHONPATH=tests $(BIN)/python -m conformance.sweep --check $(if $(RECORD),--write)

zoo: $(READY)
	$(BIN)/tpu-export zoo export --all --output zoo-output --write-docs docs/zoo.md

bench: $(READY)
	$(BIN)/python benchmarks/run.py --output docs/benchmarks.md
	$(BIN)/python benchmarks/litert_peers.py --output docs/litert-benchmarks.md $(if $(HEAVY),--heavy)

docs: $(READY)
	$(BIN)/python -m tpu_export.cli.reference > docs/cli.md
	PYTHONPATH=tests $(BIN)/python -m conformance.page > docs/ops.md
	PYTHONPATH=tests $(BIN)/python -m litert_sweep.page

$(READY): pyproject.toml constraints.txt model_zoo/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip setuptools wheel
	$(PIP) torch
	$(PIP) -e ".[$(EXTRAS)]" --group dev
	$(PIP) --no-deps -r model_zoo/requirements.txt
	touch $@

clean:
	rm -rf demo-output zoo-output bench-output build dist
