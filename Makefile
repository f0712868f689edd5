# Everything a fresh machine needs is Python 3.11 with venv and pip; each target does its own set-up.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo demo-real test test-real lint bench docs clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/specsweep run scenarios/qwen3.5-122b-mtp-depth.yaml --address local

demo-real: $(STAMP)
	PYTHON=$(PYTHON) tests/sglang_cpu/install.sh .sglang-cpu
	$(BIN)/specsweep run scenarios/real-sglang-cpu.yaml --address local

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not real'

test-real: $(STAMP)
	PYTHON=$(PYTHON) tests/sglang_cpu/install.sh .sglang-cpu
	$(BIN)/python -m pytest -m real --timeout 1500

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks.cli_speed
	$(BIN)/python -m benchmarks.stream_speed

docs: $(STAMP)
	$(BIN)/python -m orchestrator.reference_pages docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
