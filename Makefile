# One entry for people and for machines; `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_RUN := runs/demo
DEMO_FLAGS ?=
PYTHON312 ?= $(shell for p in python3.12 $(HOME)/.pyenv/versions/3.12*/bin/python; do $$p -c "" 2>/dev/null && echo $$p && break; done)
PYTEST_FLAGS ?= -n auto --maxprocesses 8 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint newest trial clean

help:  ## list the targets
	@echo "nerfjax: radiance fields in JAX, built around the ray-sampling problem"
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

venv: $(STAMP)  ## create .venv and install nerfjax with its test tools there

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "nerfjax needs Python 3.11 or newer; this is `$(PYTHON) -V`. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "==> Installing nerfjax and its dependencies into $(VENV) (once; a few minutes)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

demo: $(STAMP)  ## train, evaluate and film the embedded scene on the CPU (minutes); replaces runs/demo
	@echo "==> Training on the embedded scene, then evaluating its test views; the run goes to $(DEMO_RUN)"
	@rm -rf "$(DEMO_RUN)"
	@$(BIN)/nerfjax train --config=configs/demo.py --workdir="$(DEMO_RUN)" $(DEMO_FLAGS)
	@echo "==> Rendering an orbit"
	@$(BIN)/nerfjax render "$(DEMO_RUN)" --path=orbit
	@echo "report  $(DEMO_RUN)/report.html"

test: $(STAMP)  ## run all tests (about 20 minutes on 2 cores); PYTEST_FLAGS are passed on
	@echo "==> Running all tests"
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(STAMP)  ## check style, types and the import floors
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@echo "==> pyright"
	@$(BIN)/pyright
	@echo "==> import floors"
	@$(BIN)/python -m pytest -q tests/architecture

newest:  ## run 20 steps of the demo under the newest JAX, in a Python 3.12 environment of its own
	@test -n "$(PYTHON312)" || { echo "Python 3.12 was not found; try: make newest PYTHON312=/path/to/python3.12"; exit 2; }
	@echo "==> Installing the newest JAX into $(VENV)-newest and training the demo for 20 steps with it"
	@test -x $(VENV)-newest/bin/pip || $(PYTHON312) -m venv $(VENV)-newest
	@$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e .
	@rm -rf runs/newest
	@$(VENV)-newest/bin/python -W error::DeprecationWarning $(VENV)-newest/bin/nerfjax train --config=configs/demo.py \
	  --workdir=runs/newest --config.train.steps=20 '--config.scene.source=analytic:toys?views=12&size=64&test=2'
	@$(VENV)-newest/bin/python -c 'import jax, sys; print(f"jax {jax.__version__} on Python {sys.version.split()[0]}: done")'

trial: $(STAMP)  ## run experiments/NAME.py, an acceptance at full size: make trial NAME=...
	@test -n "$(NAME)" -a -f "experiments/$(NAME).py" || \
	  { echo "usage: make trial NAME=...; there are:"; ls experiments 2>/dev/null | sed -n 's/\.py$$//p' | sed 's/^/  /'; exit 2; }
	@echo "==> Trial $(NAME)"
	@$(BIN)/python experiments/$(NAME).py

clean:  ## remove what was built and cached (.venv and runs/ stay)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -type d -prune -exec rm -rf {} +
