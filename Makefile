# Everything a fresh machine needs is Python 3.11 with venv and pip; each target does its own set-up.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := tests/again.sh $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev

.PHONY: setup demo demo-real demo-llamacpp test real-servers test-real test-llamacpp test-two-nodes lint bench docs clean

$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(DEV): $(RUNTIME)
	$(PIP) -e '.[dev]'
	touch $@

setup: $(DEV)

demo: $(RUNTIME)
	$(BIN)/specsweep run scenarios/qwen3.5-122b-mtp-depth.yaml --address local

demo-real: $(RUNTIME)
	PYTHON=$(PYTHON) tests/sglang_cpu/install.sh .sglang-cpu
	$(BIN)/specsweep run scenarios/real-sglang-cpu.yaml --address local

demo-llamacpp: $(RUNTIME)
	PYTHON=$(PYTHON) tests/llamacpp/install.sh .llamacpp
	$(BIN)/specsweep run scenarios/llamacpp-smollm2.yaml --address local

# What compares speeds with figures.
ALONE := tests/integration/test_demo.py tests/integration/test_report_b.py tests/integration/test_nightly.py
# Unit tests with servers wait more than they compute: more of them than there are cores. Whole runs start Ray, which
# computes; their files stay in order, since the longest are not those with the most tests.
BESIDE := -m 'not real' $(addprefix --ignore ,$(ALONE)) --dist loadfile

test: $(DEV)
	$(BIN)/python -m pytest $(BESIDE) --ignore tests/integration -n 3
	$(BIN)/python -m pytest $(BESIDE) tests/integration -n 2 --no-loadscope-reorder
	$(BIN)/python -m pytest -m 'not real' $(ALONE)

TWO_NODES := tests/contract/test_two_nodes.py

real-servers:
	PYTHON=$(PYTHON) tests/sglang_cpu/install.sh .sglang-cpu
	PYTHON=$(PYTHON) tests/dialects/install.sh .sglang-dialects

test-real: $(DEV) real-servers
	$(BIN)/python -m pytest -m real --timeout 1500 --ignore $(TWO_NODES) tests/contract tests/dialects tests/real

# One real server over two hosts, each start of which takes minutes on two cores; its emulated twin is in `make test`.
test-two-nodes: $(DEV)
	PYTHON=$(PYTHON) tests/sglang_cpu/install.sh .sglang-cpu
	$(BIN)/python -m pytest -m real --timeout 1500 $(TWO_NODES)

test-llamacpp: $(DEV)
	PYTHON=$(PYTHON) tests/llamacpp/install.sh .llamacpp
	$(BIN)/python -m pytest tests/real/test_real_llamacpp.py -m real --timeout 1500

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(RUNTIME)
	$(BIN)/python -m benchmarks.cli_speed
	$(BIN)/python -m benchmarks.stream_speed
	$(BIN)/python -m benchmarks.diagnosis_speed
	$(BIN)/python -m benchmarks.client_cost --quick
	$(BIN)/python -m benchmarks.many_slots --quick
	$(BIN)/python -m benchmarks.stream_producers --quick
	$(BIN)/python -m benchmarks.driver_stream --quick
	$(BIN)/python -m benchmarks.rank_speed --quick
	$(BIN)/python -m benchmarks.telemetry_cost --trials 20
	$(BIN)/python -m benchmarks.search_campaigns --quick
	$(BIN)/python -m benchmarks.night_rules --quick
	$(BIN)/python -m benchmarks.night_luck --quick

docs: $(RUNTIME)
	$(BIN)/python -m orchestrator.pages.reference_pages docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
