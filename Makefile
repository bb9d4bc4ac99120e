# From a fresh clone: `make demo` shows something, `make test` checks everything. Each brings what it needs (scripts/setup.sh).
#   JOBS=N        compilers at once (default: one a core, 2 GiB of memory each)
#   CONFIGURE=... more arguments for cmake, such as CONFIGURE=-DVEIL_CUDA=OFF
SHELL := /bin/bash
JOBS ?= $(shell awk -v cores=$$(nproc) '/MemAvailable/ {jobs = int($$2 / 2097152); if (jobs < 1) jobs = 1; print jobs < cores ? jobs : cores}' /proc/meminfo)
CONFIGURE ?=
TOOLS := . build/env.sh

FORMATTED = $(shell git ls-files --cached --others --exclude-standard 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp')

.PHONY: help setup build test demo format format-check layers lint bench configurations mutants clean test-release test-asan
help:
	@echo 'make setup | build | test | demo | format | format-check | lint | bench | configurations | mutants | clean'

setup:
	@scripts/setup.sh

build: setup
	@$(TOOLS) && scripts/build.sh release $(JOBS) $(CONFIGURE)

test: setup format-check layers
	@$(MAKE) --no-print-directory test-release
	@$(MAKE) --no-print-directory test-asan
	@echo 'make test: all passed'

test-release: build
	@$(TOOLS) && scripts/run_tests.sh release

test-asan: setup
	@$(TOOLS) && scripts/build.sh asan $(JOBS) $(CONFIGURE) && scripts/run_tests.sh asan

demo: build
	@scripts/demo.sh

format: setup
	@$(TOOLS) && $$VEIL_CLANG_FORMAT -i $(FORMATTED)

format-check: setup
	@$(TOOLS) && $$VEIL_CLANG_FORMAT --dry-run -Werror $(FORMATTED) || { echo 'format: run `make format`' >&2; exit 1; }

layers: setup
	@$(TOOLS) && $$VEIL_PYTHON scripts/check_layers.py

# The files that differ from the upstream branch; LINT=all for all of src/.
lint:
	@scripts/setup.sh lint
	@$(TOOLS) && scripts/build.sh release $(JOBS) --configure-only $(CONFIGURE) && scripts/lint.sh $(LINT)

bench: setup
	@$(TOOLS) && scripts/build.sh release $(JOBS) -DVEIL_BENCH=ON $(CONFIGURE) && scripts/run_benchmarks.sh

configurations: setup
	@$(TOOLS) && scripts/check_configurations.sh $(JOBS)

# Classical mistakes of private training, one at a time, each caught by a test. ONLY="NAME ..." for some of them.
mutants: build
	@$(TOOLS) && $$VEIL_PYTHON scripts/mutants.py --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

clean:
	@rm -rf build build-debug build-asan build-configurations build-mutants
