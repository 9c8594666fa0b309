# Each target sets up what it needs: a fresh clone needs nothing but Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test check lint format bench prove clean
.DEFAULT_GOAL := check

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (once; a few minutes where packages must be downloaded)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,link,ecosystem]'
	@touch $@

# Plain PyTorch parts between thread counts; Isobit does not; a replay; an artifact without PyTorch.
demo: $(READY)
	@$(BIN)/python demo/demo.py

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# Lint, types and the import order of the rooms: what must hold before every commit.
check: lint
	@$(BIN)/python -m mypy --no-error-summary
	@$(BIN)/python -m pytest -q tests/test_layers.py

lint: $(READY)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "not formatted; run make format:"; $(BIN)/ruff format --diff --quiet 2>&1 | grep '^---'; exit 1; }

format: $(READY)
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --fix --quiet

# Ratios to PyTorch, alternating on the same threads; then how long a list of 10,000 runs takes.
bench: $(READY)
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.runs

# Every f32 elementary function, compiled, on all 2^32 arguments against MPFR: `make prove PROVE="exp log"` for some.
prove: $(READY)
	@PYTHONPATH=tools $(BIN)/python tools/prove_functions.py $(PROVE) --all --evaluator compiled_evaluator:compiled

clean:
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
