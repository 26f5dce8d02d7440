# `make demo` and `make test` set up what is missing and go; `make help` lists the rest.
#
# Everything is installed into VENV, and nothing needs it activated. What a step needs is written as its
# prerequisites; a finished step leaves a stamp, so the next call skips it until one of them changes.

VENV ?= .venv
PYTHON ?= python3
# Extra arguments for every `pip install`, for example an index that carries PyTorch's small CPU build
# (docs/developers/developing.md).
PIP_INSTALL_ARGS ?=
# File of versions that pip must take. Empty for the newest that pyproject.toml allows.
CONSTRAINTS ?= .ci/constraints.txt
# Which folders of integration_tests/ `make test` runs, in this order.
TESTS ?= unit ranks faults cluster
# For `make test-more`, which CI may end early.
TESTS_LARGEST_LAST = $(filter-out ranks,$(TESTS)) $(filter ranks,$(TESTS))
# Further arguments: make test PYTEST_ARGS='-k join -x', make demo DEMO_ARGS=..., make bench BENCH_ARGS=many
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
# Processes that run tests. Each of the folders ranks, faults and cluster has one to itself, because ranks are in each
# other's way; files of unit run beside them.
JOBS ?= 2
# make upstream DIR=/path/to/horovod/test UPSTREAM_ARGS='--np 4 --files test_torch.py'
DIR ?=
UPSTREAM_ARGS ?=
# make test-cpp SANITIZE=thread (or address)
SANITIZE ?=

export PYTHON SANITIZE
# The builds that we start have their own make; our goals and variables are not for it.
unexport MAKEFLAGS MFLAGS MAKEOVERRIDES
# Tests start thousands of processes: where this is set, each of them would compile all of our Python.
unexport PYTHONDONTWRITEBYTECODE
# Programs that run `python` or `horovodrun` by name must meet ours.
export PATH := $(abspath $(VENV))/bin:$(PATH)

PY := $(abspath $(VENV))/bin/python
STAMPS := $(VENV)/stamps
PIP := $(PY) -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS:%=--constraint %) $(PIP_INSTALL_ARGS)
# Not $(MAKE) in the recipe itself: `make -n` would run that line, without -n, because MAKEFLAGS is unexported.
MAKE_NEWEST = $(MAKE) --no-print-directory VENV='$(VENV)-newest' CONSTRAINTS=
PYTEST := $(PY) -m pytest -q -rsfE --durations 10 $(PYTEST_ARGS)
BUILD_SITE = NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
SIDE_BY_SIDE := $(if $(filter-out 1,$(JOBS)),--numprocesses $(JOBS))

CORE := $(wildcard plugin/core/*.cc plugin/core/*.h plugin/core/*/*.cc plugin/core/*/*.h)
BRIDGE := $(wildcard plugin/bridge/*.cc plugin/bridge/*.h plugin/bridge/*/*.cc plugin/bridge/*/*.h)
HOROVOD := $(CORE) $(BRIDGE) $(wildcard plugin/horovod/*.py plugin/horovod/patches/*.py plugin/horovod/*.cmake)
CPP := $(CORE) $(BRIDGE) $(wildcard $(foreach folder,. *,$(addprefix integration_tests/unit/cpp/$(folder)/,*.cc *.h)))

.PHONY: help demo bench test test-more test-newest engines unit test-cpp soak races fuzz addresses gpu patches idle \
    upstream docs lint lint-style lint-readme lint-types lint-layers lint-pages lint-docs lint-cpp lint-tidy cluster-tools clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      set everything up in $(VENV), then train over a slow network, with and without Paceline"
	@echo "make test      set up what is missing, then run all tests; TESTS='unit ranks' chooses among: unit ranks"
	@echo "               faults cluster; PYTEST_ARGS='-k NAME' goes to pytest"
	@echo "make test-more more numbers of ranks, longer runs, and the tests that need MPI or a scheduler; TESTS and"
	@echo "               PYTEST_ARGS as there"
	@echo "make engines   install Ray and Spark, whose tests test-more has"
	@echo "make test-newest   the same tests with the newest frameworks that pyproject.toml allows, in $(VENV)-newest; from"
	@echo "               PyPI that is PyTorch's CUDA build, some gigabytes"
	@echo "make unit      only the tests that need no ranks"
	@echo "make test-cpp  only the C++ unit tests; SANITIZE=thread or SANITIZE=address builds with that sanitizer"
	@echo "make soak      the tests for rare failures, many minutes"
	@echo "make races     random partial rounds and armed steps under ThreadSanitizer, half an hour; SANITIZE=address"
	@echo "make fuzz      random messages over our own collectives under ThreadSanitizer; SANITIZE=address for the other"
	@echo "make addresses messages and worlds of changing sizes under AddressSanitizer"
	@echo "make patches   show that each patch of Horovod is needed: its test fails on a Horovod without it"
	@echo "make idle      show that idle hooks change nothing: counts and CPU time with and without them"
	@echo "make upstream  Horovod's own tests, unchanged: DIR=folder test/ of a checkout at tag v0.28.1; half an hour"
	@echo "make bench     run all benchmarks and write the tables of docs/measurements/benchmarks.md, about two hours on an"
	@echo "               idle machine; root, or rows that emulate hosts are left out; BENCH_ARGS='NAMES', --list, --quick, --resume"
	@echo "make docs      build the documentation as a site, build/site/index.html"
	@echo "make lint      formatters' checks, linters and types, of Python and C++; links, anchors and words of the pages"
	@echo "make clean     remove $(VENV), build/ and caches in this folder (the cache of built Horovod wheels stays)"
	@echo "Variables: VENV, PYTHON, CXX, CONSTRAINTS, PIP_INSTALL_ARGS; see docs/developers/developing.md."

demo: $(STAMPS)/horovod
	$(VENV)/bin/paceline demo $(DEMO_ARGS)

# Without root, or without the tools of emulated hosts, the command says which cases it leaves out.
bench: $(STAMPS)/horovod
	@.ci/bring-tools cluster || true
	$(PY) -m examples.benchmarks --output docs/measurements/benchmarks.md $(BENCH_ARGS)

test: cluster-tools $(STAMPS)/horovod $(STAMPS)/test $(STAMPS)/doctest
	$(PYTEST) $(SIDE_BY_SIDE) $(TESTS:%=integration_tests/%)

test-more: cluster-tools $(STAMPS)/horovod $(STAMPS)/test $(STAMPS)/doctest engines
	$(PYTEST) $(SIDE_BY_SIDE) --more -m 'more or needs' $(TESTS_LARGEST_LAST:%=integration_tests/%)

test-newest:
	@$(MAKE_NEWEST) PIP_INSTALL_ARGS='$(PIP_INSTALL_ARGS)' \
	    TESTS='$(TESTS)' PYTEST_ARGS='$(PYTEST_ARGS)' JOBS='$(JOBS)' test

# Where they cannot be had, their tests are skipped. No stamp as a prerequisite: a failure would end `make test-more`.
engines: $(STAMPS)/horovod
	@.ci/bring-tools engines || true
	@[ $(STAMPS)/engines -nt pyproject.toml ] || { echo "Installing Ray and Spark."; \
	    $(PIP) 'paceline[engines]' && touch $(STAMPS)/engines; } || echo "The tests of Ray and Spark will be skipped." >&2

# Ahead of everything that takes long. Where they cannot be had, these tests skip themselves; all others do without.
cluster-tools:
ifneq ($(filter cluster,$(TESTS)),)
	@.ci/bring-tools cluster || echo "The tests in integration_tests/cluster will be skipped: they need these tools and root." >&2
endif

unit: $(STAMPS)/horovod $(STAMPS)/test $(STAMPS)/doctest
	$(PYTEST) integration_tests/unit

test-cpp: $(STAMPS)/test $(STAMPS)/doctest
	$(PYTEST) integration_tests/unit/cpp

soak: $(STAMPS)/horovod $(STAMPS)/test
	$(PYTEST) --soak -m soak integration_tests

races: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.races --sanitizer $(or $(SANITIZE),thread)

fuzz: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.fuzz --sanitizer $(or $(SANITIZE),thread)

addresses: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.addresses

gpu: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.gpu

patches: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.patches

idle: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.idle

# Asked before anything is set up for it.
ifneq ($(filter upstream,$(MAKECMDGOALS)),)
$(if $(DIR),,$(error make upstream DIR=...: DIR must name the folder test/ of a checkout of Horovod at tag v0.28.1))
endif

upstream: $(STAMPS)/horovod $(STAMPS)/test
	$(PY) -m integration_tests.upstream --tests $(DIR) $(UPSTREAM_ARGS)

# Warnings are errors: a link or an anchor that leads nowhere, a page that is in no menu, a name that the API lacks.
docs: $(STAMPS)/docs
	@$(BUILD_SITE)
	@echo "The documentation is in build/site/index.html; for its search: python -m http.server -d build/site"

# All of them run, so that one call tells everything.
lint: $(STAMPS)/lint $(STAMPS)/doctest
	@$(MAKE) --no-print-directory --keep-going VENV='$(VENV)' lint-style lint-readme lint-types lint-layers \
	    lint-pages lint-docs lint-cpp lint-tidy

lint-style:
	$(VENV)/bin/ruff check --quiet --output-format concise
	$(VENV)/bin/ruff format --check --quiet --output-format concise

# README promises that these two commands do all the set-up.
lint-readme:
	@for goal in demo test; do \
	    grep -q "^    make $$goal\b" README.md || { echo "README.md has no line \"    make $$goal\"." >&2; exit 1; }; \
	done

lint-types:
	$(PY) .ci/typecheck

lint-layers:
	$(PY) .ci/layers

lint-pages:
	$(PY) .ci/pages

lint-docs:
	@$(BUILD_SITE)

lint-cpp:
	@$(VENV)/bin/clang-format --dry-run -Werror $(CPP)
	$(PY) .ci/check-includes

lint-tidy:
	@cmake -S integration_tests/unit/cpp -B build/lint -DDOCTEST_DIR=$(abspath $(VENV))/doctest/usr/include \
	    -DBINDING_INCLUDES="$$($(PY) -c 'import pybind11, sysconfig; \
	        print(pybind11.get_include() + ";" + sysconfig.get_path("include"))')" \
	    -DHOROVOD_INCLUDES="$$($(PY) .ci/horovod-headers build/lint-horovod)" >/dev/null
	@printf '%s\n' $(filter %.cc,$(CORE) $(BRIDGE)) | \
	    xargs --max-procs $$(nproc) --max-args 4 $(VENV)/bin/clang-tidy --quiet -p build/lint

clean:
	rm -rf $(VENV) $(VENV)-newest build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find plugin frameworks launch examples integration_tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f plugin/core/_core.*.so

# --- set-up, step by step ------------------------------------------------------------------------------------------

$(STAMPS)/venv:
	@.ci/bring-tools build
	@echo "Making the environment $(VENV) with $$($(PYTHON) -V)."
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# What builds Paceline, as pyproject.toml lists it. Installed first and kept, so that later builds take seconds.
$(STAMPS)/build-tools: $(STAMPS)/venv pyproject.toml
	@sed -n '/^requires = /{s/[^"]*"\([^"]*\)"[^"]*/\1\n/g;p}' pyproject.toml >$@.txt
	@$(PIP) -r $@.txt
	@touch $@

$(STAMPS)/install: $(STAMPS)/build-tools setup.py pyproject.toml $(CONSTRAINTS) $(CORE)
	@echo "Installing the frameworks (once) and building Paceline's core."
	@$(PIP) --no-build-isolation --editable '.[torch,tensorflow,demo]'
	@touch $@

# What the demo does without.
$(STAMPS)/test: pyproject.toml $(CONSTRAINTS) | $(STAMPS)/install
	@echo "Installing what the tests need."
	@$(PIP) 'paceline[test,trainers,templates]'
	@touch $@

$(STAMPS)/horovod: $(STAMPS)/install $(HOROVOD)
	@echo "Installing Horovod with Paceline's hooks; building it takes some minutes, once for each state of the sources."
	@$(VENV)/bin/paceline horovod install
	@touch $@

# Linters look at the sources alone, so that `make lint` does not wait for the frameworks.
$(STAMPS)/lint: $(STAMPS)/build-tools setup.py pyproject.toml
	@echo "Installing the linters."
	@$(PIP) --no-build-isolation --editable '.[lint,test,docs]'
	@touch $@

# mkdocstrings reads the sources alone; an extension imports Paceline, without a framework.
$(STAMPS)/docs: $(STAMPS)/build-tools setup.py pyproject.toml $(CONSTRAINTS)
	@echo "Installing what builds the documentation."
	@$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@

$(STAMPS)/doctest: $(STAMPS)/venv
	@.ci/get-doctest $(VENV)/doctest
	@touch $@
