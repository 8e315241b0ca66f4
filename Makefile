# `make demo` and `make test` set up all they need; a second call is quick.
PYTHON ?= python3
# The tests start many interpreters, which share what one of them compiled.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := $(shell command -v uv)
INSTALL := $(if $(UV),uv pip install --quiet --compile-bytecode --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)

.PHONY: help demo test deep check lint types fix cov docs site package test-all bench bench-quick clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "toolloop needs Python 3.11 or later: make PYTHON=python3.11 …"; exit 1; }
	@echo "Setting up $(VENV) (once) …"
	@test -x $(BIN)/python || $(if $(UV),uv venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
	@$(if $(UV),,$(INSTALL) --upgrade "pip>=25.1")
	@$(INSTALL) --editable .
	@touch $@

# The dependency groups of pyproject.toml. One that is installed is left alone until that file changes.
$(READY)-%: $(READY)
	@$(INSTALL) --editable . --group $*
	@touch $@

demo: $(READY) $(if $(findstring --web,$(ARGS)),$(READY)-web) ## A small agent in a scratch folder; you approve its calls (ARGS="--web": in a browser; "--live", "--yes")
	@$(BIN)/python docs/examples/demo.py $(ARGS)

test: $(READY)-test ## All tests
	@$(BIN)/python -m tests.kit.node || true
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

deep: $(READY)-deep ## All tests, the long ones too, ten times the random examples, all attacks, mutants, extras (hours)
	@$(BIN)/python -m tests.kit.node || true
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m 'not bench' --hypothesis-profile=deep $(ARGS)
	@$(BIN)/python -m tests.promises.attack --write
	@$(BIN)/python scripts/mutation.py
	@$(MAKE) package ARGS=--extras

check: lint types test cov ## Lint, types, tests, the coverage gate

lint: $(READY)-lint ## Ruff, formatting, that the docs say what the code says, and the words of docs, docstrings, errors and tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m scripts.docs --check
	@$(BIN)/python -m scripts.prose --code

types: $(READY)-lint ## mypy and pyright, strict, over the code and the examples of the docs
	@$(BIN)/python scripts/typecheck.py

fix: $(READY)-lint ## Mend what a tool can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

cov: $(READY)-test ## The tests of machine/ and _messages/ with their gate: 100 % of the branches
	@$(BIN)/coverage run -m pytest tests/machine tests/messages tests/handles/test_forks.py tests/handles/test_outputs.py tests/journal/test_tallies.py tests/prices/test_loop_costs.py -m 'not deep and not bench and not long' --quiet --hypothesis-profile=lines --hypothesis-seed=0
	@$(BIN)/coverage report --fail-under=100 --include='src/toolloop/machine/**,src/toolloop/_messages/**'

docs: $(READY)-test ## Write the generated parts of the docs anew
	@$(BIN)/python -m scripts.docs

site: $(READY)-site ## The documentation site in build/site; warnings, wrong links and missing names are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --quiet)

package: $(READY)-package ## Build wheel and sdist, check them, install each in an empty environment (ARGS=--extras: each extra, too)
	@$(BIN)/python scripts/package.py $(ARGS)

test-all: ## All tests under each Python from 3.11 to 3.14 that is installed
	@for version in 3.11 3.12 3.13 3.14; do \
		if python$$version -c '' 2>/dev/null; then $(MAKE) test PYTHON=python$$version VENV=build/venv-$$version || exit 1; \
		else echo "Python $$version is not installed: left out"; fi; \
	done

bench: $(READY)-test ## All that is measured, against the peers; writes docs/benchmarks.md and its pictures (under ten minutes)
	@$(BIN)/python -m tests.measured.benchmarks

bench-quick: $(READY)-test ## Fewer runs, peers only where they are set up, writes nothing; then the tests of the benchmark
	@$(BIN)/python -m tests.measured.benchmarks --quick
	@$(BIN)/python -m pytest -m bench tests/measured/benchmarks

clean: ## Remove what the other targets made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist
