# `make demo` and `make test` set up all they need; a second call is quick.
PYTHON ?= python3
# The tests start many interpreters, which share what one of them compiled.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_WEB := $(VENV)/.ready-web
READY_TEST := $(VENV)/.ready-test
READY_LINT := $(VENV)/.ready-lint
READY_DEEP := $(VENV)/.ready-deep
READY_SITE := $(VENV)/.ready-site
READY_PACKAGE := $(VENV)/.ready-package

.PHONY: help demo test deep check lint types fix cov docs site package test-all bench bench-quick clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "toolloop needs Python 3.11 or later: make PYTHON=python3.11 …"; exit 1; }
	@echo "Setting up $(VENV) (once) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(READY_TEST): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test
	@touch $@

$(READY_LINT): $(READY_TEST)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group lint
	@touch $@

$(READY_DEEP): $(READY_TEST)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group deep
	@touch $@

$(READY_PACKAGE): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group package
	@touch $@

$(READY_SITE): $(READY_WEB)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[mcp,otel,postgres,dbos]" --group site
	@touch $@

$(READY_WEB): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cli,inbox]"
	@touch $@

demo: $(READY) $(if $(findstring --web,$(ARGS)),$(READY_WEB)) ## A small agent in a scratch folder; you approve its calls (ARGS="--web": in a browser; "--live", "--yes")
	@$(BIN)/python docs/examples/demo.py $(ARGS)

test: $(READY_TEST) ## All tests
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

deep: $(READY_DEEP) ## All tests, the long ones too, ten times the random examples, all attacks, mutants, extras (hours)
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m 'not bench' --hypothesis-profile=deep $(ARGS)
	@$(BIN)/python -m tests.attack --write
	@$(BIN)/python scripts/mutation.py
	@$(MAKE) package ARGS=--extras

check: lint types test cov ## Lint, types, tests, the coverage gate

lint: $(READY_LINT) ## Ruff, formatting, that the docs say what the code says, and the words of docs, docstrings and errors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m scripts.docs --check
	@$(BIN)/python -m scripts.prose --code

types: $(READY_LINT) ## mypy and pyright, strict, over the code and the examples of the docs
	@$(BIN)/python scripts/typecheck.py

fix: $(READY_LINT) ## Mend what a tool can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

cov: $(READY_TEST) ## The tests of machine/ and _messages/ with their gate: 100 % of the branches
	@$(BIN)/coverage run -m pytest tests/machine tests/messages -m 'not deep and not bench and not long' --quiet --hypothesis-profile=lines --hypothesis-seed=0
	@$(BIN)/coverage report --fail-under=100 --include='src/toolloop/machine/**,src/toolloop/_messages/**'

docs: $(READY_TEST) ## Write the generated parts of the docs anew
	@$(BIN)/python -m scripts.docs

site: $(READY_SITE) ## The documentation site in build/site; warnings, wrong links and missing names are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --quiet)

package: $(READY_PACKAGE) ## Build wheel and sdist, check them, install each in an empty environment (ARGS=--extras: each extra, too)
	@$(BIN)/python scripts/package.py $(ARGS)

test-all: $(READY_PACKAGE) ## All tests under each Python from 3.11 to 3.14 that is installed
	@$(BIN)/python -m nox $(ARGS)

bench: $(READY_TEST) ## All that is measured, against the peers; writes docs/benchmarks.md (a quarter of an hour)
	@$(BIN)/python -m tests.benchmarks
	@$(BIN)/python -m pytest -m bench tests/benchmarks

bench-quick: $(READY_TEST) ## Fewer runs, under two minutes; peers only where they are set up; writes nothing
	@$(BIN)/python -m tests.benchmarks --quick

clean: ## Remove what the other targets made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .nox build dist
