# Needs Python 3.11 or newer and nothing else: every target sets itself up in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.argosy-setup
RUN_STAMP := $(VENV)/.argosy-run

.DEFAULT_GOAL := help
.PHONY: help setup run compare test test-fast check picture screenshots bench faithfulness league clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the pinned libraries (at once if it is up to date)

$(RUN_STAMP): EXTRAS := grow,live
$(STAMP): EXTRAS := dev,grow,learn,ray,live
$(RUN_STAMP) $(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Argosy needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)" >&2; \
	  echo "  → name another one: make setup PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot create virtual environments" >&2; \
	  echo "  → on Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing the libraries pinned in constraints.txt (some minutes the first time) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' || { \
	  echo "The installation failed; pip says why above" >&2; \
	  echo "  → pip must reach a package index; then: make setup" >&2; exit 1; }
	@$(BIN)/python -m argosy.sim.warm
	@touch $@ $(RUN_STAMP)
	@echo "Ready: $(BIN)/argosy"

run: $(RUN_STAMP) ## real training jobs, scheduled live on this machine, in two minutes: a table, and out/live.html
	@$(BIN)/argosy demo

compare: $(RUN_STAMP) ## compare six policies on a week of generated jobs; prints a table and the report's path
	$(BIN)/argosy compare --like philly --jobs 4000 --load 1.4 --window 1d..7d --cluster examples/cluster.yaml \
	  --policies fifo,fifo-backfill,sjf,srtf,las,drf --seeds 3 --report out/report.html --json out/report.json

test: setup ## run all tests, the fast ones first
	@$(BIN)/python -m pytest -n 2

test-fast: setup ## run the fast tests only
	@$(BIN)/python -m pytest -n 2 -m "not slow"

check: setup ## lint, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

picture: setup ## draw the README's picture again
	$(BIN)/python examples/readme_picture.py docs/images/compare.png

screenshots: setup ## take the pictures of the dashboard again, in a real browser
	@$(BIN)/python -m benchmarks.screenshots

bench: setup ## measure speed and memory, study growth and learning; writes JSON
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks growth
	@$(BIN)/python -m benchmarks learning
	@$(BIN)/python -m benchmarks live

faithfulness: setup ## try out the papers' claims; writes docs/faithfulness.md
	@$(BIN)/python -m benchmarks faithfulness
	@$(BIN)/python -m benchmarks.render

league: setup ## every policy in every scenario: out/league.html, docs/results/league-table.md and its pictures
	$(BIN)/argosy league --report out/league.html --markdown docs/results/league-table.md

clean: ## remove caches and results; keeps .venv
	@rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .numba_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Removed caches and results"
