# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint types imports suite soak docs clean

help:
	@echo "make demo   set up, train on an embedded data set in about a minute, write the report page"
	@echo "make test   set up with the test tools, then lint, types, import layers and the whole suite"
	@echo "make soak   the long tests of faults: kills at any moment, full disks, damage; with a summary"
	@echo "make docs   set up and build the documentation into build/docs/index.html"
	@echo "make clean  remove the environment and caches"

$(VENV)/created:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/lg2ar demo --out runs/demo

test: lint types imports suite

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-test
	$(BIN)/mypy

imports: $(VENV)/installed-test
	$(BIN)/lint-imports

suite: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(PYTEST_ARGS)

soak: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m soak --quiet tests/faults $(PYTEST_ARGS)

$(VENV)/installed-docs: $(VENV)/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
