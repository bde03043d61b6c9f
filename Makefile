# Two commands for a fresh machine: `make demo` and `make test`. Both set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The versions that are tested together; see constraints.txt.
PINNED := -m pip install --quiet --constraint constraints.txt
# For what builds the package, too; pip before 25.3 has no word for it but the first of these.
BUILD := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
INSTALL := $(BUILD) $(BIN)/python $(PINNED)

.PHONY: help demo test lint types imports suite soak docs audit clean

help:
	@echo "make demo   set up, train on an embedded data set in about a minute, write the report page"
	@echo "make test   set up with the test tools, then lint, types, import layers and the whole suite"
	@echo "make soak   the long tests of faults: kills at any moment, full disks, damage; with a summary"
	@echo "make docs   set up and build the documentation into build/docs/index.html"
	@echo "make audit  look the pinned versions up in the list of known holes (needs a network)"
	@echo "make clean  remove the environment and caches"

$(VENV)/created:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed pyproject.toml constraints.txt
	$(INSTALL) --editable '.[test]'
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
	$(INSTALL) --editable '.[test,fuzz]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m soak --quiet tests/faults $(PYTEST_ARGS)

$(VENV)/installed-docs: $(VENV)/installed pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo "build/docs/index.html"

# Strict: a package that could not be looked up is a failure, not a pass. In an environment of its
# own, so that the auditor's packages do not meet ours.
audit: constraints.txt
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python $(PINNED) pip-audit
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-audit build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
