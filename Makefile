# Development. Everything runs in .venv, which `make venv` creates; only a Python of 3.11 or later
# (with venv), a C++ compiler, and make itself have to be there.

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast test-torch test-pythons coverage lint lint-types lint-imports \
	lint-python lint-cpp performance format fuzz sanitize clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CPP := $(wildcard native/*/*.cpp native/*/*.hpp tests/native/*.cpp)
NATIVE := CMakeLists.txt native/find_dnnl.py $(CPP)
# A version manager's python3.11 may exist and refuse to run, so each candidate is tried out.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$python && break; done)

# Tests start hundreds of processes, which load compiled modules in half the time.
export PYTHONDONTWRITEBYTECODE :=

# One thread for NumPy's own products: each process of a run has its processor, and threads that wait
# for work would take it from the others.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/'

EXTRAS ?= dev,bench
PYTHONS ?= python3.12 python3.13

venv: $(STAMP) ## create .venv with Stridewise (editable) and the tools

$(STAMP): pyproject.toml $(NATIVE)
	@test -n "$(PYTHON)" || { echo "No Python of 3.11 or later with venv was found;" \
		"install one (Debian: apt install python3 python3-venv) or set PYTHON=" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
# As pip does for what it copies: where Python may not write bytecode, a start takes twice as long.
	$(BIN)/python -m compileall -q src
	touch $@

demo: venv ## compile ResNet-50, show the plan, check results, compare with other runtimes
	$(BIN)/python -m examples.demo

test: venv ## run the tests and the examples in docstrings
	$(PYTEST) tests src --doctest-modules

test-fast: venv ## run the tests that need no native code, in less than a minute
	$(PYTEST) tests/pure

# Each has an environment of its own, with a native core of its own.
test-pythons: ## run the fast tests under those of PYTHONS="python3.12 python3.13" that are installed
	@for python in $(PYTHONS); do \
		if $$python -c 'import ensurepip, sys, venv' 2>/dev/null; then \
			$(MAKE) test-fast VENV=build/venv-$$(basename $$python) PYTHON=$$python EXTRAS=test || exit 1; \
		else echo "$$python is not installed; the fast tests do not run under it"; fi; \
	done

test-torch: venv ## install PyTorch and run the tests of its backend
	$(BIN)/python -m pip install --quiet 'torch==2.13.0' expecttest
	$(PYTEST) tests/torch

# Apart from the tests, as they take twice as long under it.
coverage: venv ## run the tests and list the lines that no test runs
	$(PYTEST) tests src --doctest-modules --cov --cov-report=term

# Most of them use one processor. Their texts come one after the other.
lint: venv ## check style, types, layers of imports and C++ format
	@$(MAKE) --no-print-directory --jobs --output-sync lint-types lint-imports lint-python lint-cpp

lint-types: venv
	$(BIN)/pyright --pythonpath $(BIN)/python

lint-imports: venv
	$(BIN)/lint-imports --no-cache

lint-python: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-cpp: venv
	$(BIN)/clang-format --dry-run -Werror $(CPP)

# On a quiet machine: nothing else may run meanwhile. Models measure their kernels first, once.
performance: venv ## run the benchmarks of docs/performance.md and update the page
	$(BIN)/python benchmarks/roofline.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/blocking.py
	$(BIN)/python benchmarks/performance.py

format: venv ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

fuzz: venv ## compile COUNT mutated model files (SEED=0 COUNT=10000)
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),0) --count $(or $(COUNT),10000)
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),0) --fallback \
		--count $$(( ($(or $(COUNT),10000) + 4) / 5 ))

# The sanitized core lies beside a copy of the sources, outside of .venv: the base interpreter, given
# the packages of .venv by path, does not see the editable installation.
sanitize: venv ## run the tests of native code under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target build/sanitize/site \
		--config-settings=cmake.define.STRIDEWISE_SANITIZE=ON \
		--config-settings=install.strip=false \
		--config-settings=build-dir=build/sanitize/cmake .
	tests/sanitize.sh $(BIN)/python build/sanitize/site $(TESTS)

clean: ## remove all generated files
	rm -rf $(VENV) build dist .coverage htmlcov .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
