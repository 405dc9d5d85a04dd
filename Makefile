PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: test test-slow demo bench docs lint clean
API := estimators classifier distribution persist metrics datasets plots confidence deferral evaluation report

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses 2

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --numprocesses 2 --dist loadgroup

demo: $(STAMP)
	$(BIN)/card demo --force

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

docs: $(STAMP)
	$(BIN)/pdoc --docformat numpy --output-directory site $(API:%=card.%)

clean:
	rm -rf $(VENV) build site src/*.egg-info
