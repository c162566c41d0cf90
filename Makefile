# The two commands of the README are `make run` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PYTEST ?= $(BIN)/python -m pytest
# What the demonstration needs, what the tests need, and what the long tests need: torch is 3 GB.
RUN_EXTRAS := demo
TEST_EXTRAS := dev,worker,learn,files,report,serve,faiss,pgvector,qdrant,opensearch,baselines,onnx,otel
LONG_EXTRAS := dev,all,recipes
# Processes that run tests: some wait for others. A long test starts many processes of its own.
JOBS ?= 4
LONG_JOBS ?= 3

# So many processes are faster without threads of their own, which wait for one another in a loop.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

# Tests start hundreds of processes: each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough and can make virtual environments.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	if $$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

# The packages through the links of an editable installation, which `git clean` and `git checkout` may have removed since.
LINKED := $(addprefix src/kinstream/,$(filter-out tests/% benchmarks/%,$(wildcard */__init__.py)))
# A rule without a recipe: what is missing counts as new.
$(LINKED):

# Installs $(1), unless the links are there and pyproject.toml is what it was when the stamp $@ was made: then no network
# is needed.
define install
if cmp -s pyproject.toml $@ && ls $(LINKED) > /dev/null 2>&1; then touch $@; else \
	echo "installing $(1) into $(VENV); this takes a minute the first time"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77'; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation $(INSTALL_OPTIONS) -e '$(1)'; \
	cp pyproject.toml $@; fi
endef

help:
	@echo "make run        the main job on the embedded broker (ARGS=--keep-running leaves it up)"
	@echo "make test       lint, types and the test suite, on a real Kafka where Java 17 and Maven are"
	@echo "make test-long  the rest: long crash runs, the chart, the rules, the image, every combination of settings"
	@echo "make bench      figures: speed, memory, delays"
	@echo "make soak       30 minutes of steady load under faults (ARGS=\"--minutes 5\"); prints a table for tests/soak/README.md"
	@echo "make docs       the pages as a site, in site/; a broken link is an error"
	@echo "make picture    draws the picture of the README anew"
	@echo "make lint       ruff, mypy and the import contracts alone"
	@echo "make image      the container image, by buildah, in .cache/image: what the tests run"
	@echo "make audit      known vulnerabilities of what is installed; needs a network"
	@echo "make clean      remove everything that make has made"

# pip comes last when an environment is made, so one that was interrupted is made anew.
$(BIN)/pip:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Kinstream needs Python 3.11 or newer with venv; none was found." >&2; \
		echo "On Debian: apt-get install python3-venv; or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)

# Most modules of these packages are never imported: those that are get compiled then.
INSTALL_OPTIONS := --no-compile
$(VENV)/.installed-run: pyproject.toml $(LINKED) | $(BIN)/pip
	@$(call install,.[$(RUN_EXTRAS)])

$(VENV)/.installed-$(TEST_EXTRAS): pyproject.toml $(LINKED) | $(BIN)/pip
	@$(call install,.[$(TEST_EXTRAS)])

$(VENV)/.installed-$(LONG_EXTRAS): pyproject.toml $(LINKED) $(VENV)/.installed-$(TEST_EXTRAS) | $(BIN)/pip
	@$(call install,.[$(LONG_EXTRAS)])

run: $(VENV)/.installed-run
	@$(BIN)/kinstream demo $(ARGS)

python: $(VENV)/.installed-$(TEST_EXTRAS)
	@echo "$$($(BIN)/python --version) in $(VENV)"

lint: python
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed-docs: pyproject.toml $(LINKED) | $(BIN)/pip
	@$(call install,.[docs])

# NO_MKDOCS_2_WARNING leaves out an announcement of the theme about a product.
docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)
	@echo "the site is in site/: open site/index.html"

picture: python
	$(BIN)/python docs/pictures/record.py

# Needs no package, so that Maven and pip fetch at the same time.
kafka-jars: | $(BIN)/pip
	@$(BIN)/python -m tests.kafka.jars

kafka-archive: python kafka-jars
	@$(BIN)/python -m tests.kafka.archive

go-tools: python
	@$(BIN)/python -m tests.deploy.go_tools
	@$(BIN)/python -m tests.deploy.cluster.definitions

# Built once, before the tests that run it.
image: python
	@$(BIN)/python -m tests.deploy.image.build

# Processes that run tests would compile the same kernels, some of them inside a time limit.
kernels: python
	@$(BIN)/kinstream warm-up --dtype float32 mixture
	@$(BIN)/kinstream warm-up --dtype float64 opml copml closure clicks

# Once in an environment: otherwise each process that runs tests rewrites the assertions of all test files and compiles
# the packages that they import, all at the same time. What fails here fails again in the tests.
$(VENV)/.collected: $(VENV)/.installed-$(TEST_EXTRAS)
	@$(PYTEST) -q --collect-only > /dev/null && touch $@ || true

# With arguments, pytest with these arguments: make test ARGS="tests/learners -x".
test:
	@$(MAKE) --no-print-directory -j2 $(VENV)/.collected lint kafka-archive kernels
	$(ONE_THREAD) $(PYTEST) -q -n $(JOBS) --dist worksteal $(ARGS)

test-long:
	@$(MAKE) --no-print-directory -j3 $(VENV)/.installed-$(LONG_EXTRAS) kafka-archive go-tools image
	@$(MAKE) --no-print-directory kernels
	$(ONE_THREAD) $(PYTEST) -q -m long -n $(LONG_JOBS) --dist worksteal --timeout=1800 $(ARGS)

bench: python kafka-jars
	$(BIN)/python -m benchmarks $(ARGS)

soak: python kafka-jars
	$(BIN)/python -m tests.soak $(ARGS)

audit: python
	@$(BIN)/python -m tests.security.audit

clean:
	rm -rf $(VENV) .cache .kinstream .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build site *.egg-info src/*.egg-info
	rm -f $(LINKED:/__init__.py=)

.PHONY: help run python lint kafka-jars kafka-archive go-tools kernels image test test-long bench soak docs picture audit clean
