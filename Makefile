PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: test test-slow demo bench reproduction docs lint clean
API := estimators classifier distribution features persist metrics datasets plots confidence deferral evaluation report \
	integrations.skpro

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

reproduction: $(STAMP)
	$(BIN)/card bench run uci --recipe paper --datasets boston
	$(BIN)/card bench run uci --recipe paper --datasets yacht,energy
	$(BIN)/card bench run uci --recipe paper --datasets concrete
	$(BIN)/card bench run uci --recipe paper --datasets wine --splits 0-4
	$(BIN)/card bench run uci --recipe paper --datasets kin8nm --splits 0-4
	$(BIN)/card bench run uci --recipe paper --datasets power --splits 0-2
	$(BIN)/card bench run uci --recipe paper --datasets naval --splits 0
	$(BIN)/card bench run uci --recipe paper --datasets protein --splits 0-1
	$(BIN)/card bench run toy --seeds 0-2
	$(BIN)/card bench run toy --datasets linear --seeds 3-6
	$(BIN)/card bench run boston-ablation
	$(BIN)/card bench page docs/reproduction.md
	$(BIN)/card bench figure all --recipe paper

docs: $(STAMP)
	$(BIN)/pdoc --docformat numpy --output-directory site $(API:%=card.%)

clean:
	rm -rf $(VENV) build site src/*.egg-info
