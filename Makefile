# From a fresh clone: `make demo` shows what Veil does, `make test` checks everything. Each installs what it needs
# (scripts/setup.sh).
#   JOBS=N        compilers at once (default: one per core, 2 GiB of memory each)
#   CONFIGURE=... more arguments for cmake, such as CONFIGURE=-DVEIL_CUDA=OFF
#   MINUTES=N     how long `make chaos` begins new runs (default 3); SEED=N: the same faults again
#   SECONDS=N     how long `make fuzz` gives each target (default 20); INPUTS=N: inputs for each instead; ONLY="NAME ...";
#                 SEED=N: the same inputs again
#   PREFIX=DIR    where `make install` puts the program (default ~/.local)
SHELL := /bin/bash
JOBS ?= $(shell awk -v cores=$$(nproc) '/MemAvailable/ {jobs = int($$2 / 2097152); if (jobs < 1) jobs = 1; print jobs < cores ? jobs : cores}' /proc/meminfo)
CONFIGURE ?=
PREFIX ?= $(HOME)/.local
SECONDS ?= 20
MINUTES ?= 3
TOOLS := . build/env.sh

FORMATTED = $(shell git ls-files --cached --others --exclude-standard 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp')

.PHONY: help setup program build test demo install uninstall wheel format format-check layers lint bench configurations
.PHONY: fuzz mutants soak chaos clean setup-test test-release test-demo test-example test-chaos test-wheel test-asan test-threads test-fuzz build-sanitized
help:
	@echo 'make demo       build the program and show what it does, on a CPU, with a page to look at'
	@echo 'make test       build and check everything'
	@echo 'make install    install the program into PREFIX ($(PREFIX)); make uninstall removes it'
	@echo 'make wheel      build dist/veil-*.whl, which pip installs beside torch'
	@echo 'make setup | program | build | format | format-check | lint | bench | configurations | fuzz | mutants | soak | chaos | clean'

setup:
	@scripts/setup.sh

setup-test:
	@scripts/setup.sh test

program: setup
	@$(TOOLS) && scripts/build.sh release $(JOBS) --program $(CONFIGURE)

build: setup
	@$(TOOLS) && scripts/build.sh release $(JOBS) $(CONFIGURE)

test: setup-test format-check layers
	@$(MAKE) --no-print-directory test-release
	@$(MAKE) --no-print-directory test-demo
	@$(MAKE) --no-print-directory test-example
	@$(MAKE) --no-print-directory test-wheel
	@$(MAKE) --no-print-directory -j 2 test-chaos build-sanitized
	@$(MAKE) --no-print-directory test-fuzz
	@$(MAKE) --no-print-directory test-threads
	@$(MAKE) --no-print-directory test-asan
	@echo 'make test: all passed'

test-release: setup-test build
	@$(TOOLS) && scripts/run_tests.sh release

# What the last three parts of `make test` run. Faults mostly wait, so these are built beside them.
build-sanitized: setup
	@scripts/setup.sh fuzz
	@$(TOOLS) && for preset in fuzz tsan asan; do scripts/build.sh $$preset $(JOBS) $(CONFIGURE) || exit 1; done

test-asan: setup
	@$(TOOLS) && scripts/build.sh asan $(JOBS) $(CONFIGURE) && scripts/run_tests.sh asan

# Threads under the thread sanitizer (tests/threads).
test-threads: setup
	@$(TOOLS) && scripts/build.sh tsan $(JOBS) $(CONFIGURE) && scripts/run_tests.sh tsan

# A short run of every fuzz target, with the same inputs each time: it fails for a change, and not by chance.
test-fuzz:
	@$(MAKE) --no-print-directory fuzz SECONDS=20 SEED=1

demo: program
	@$(TOOLS) && scripts/demo.sh

# What was installed is listed in build/install_manifest.txt, and only that is removed again.
install: program
	@$(TOOLS) && scripts/install.sh '$(PREFIX)'

uninstall:
	@scripts/uninstall.sh build/install_manifest.txt

wheel:
	@scripts/setup.sh wheel
	@$(TOOLS) && scripts/wheel.sh $(JOBS) $(CONFIGURE)

# The demo, whose output is shown only if it fails.
test-demo: program
	@$(TOOLS) && scripts/demo.sh >build/demo.log 2>&1 || { tail -n 40 build/demo.log >&2; exit 1; }
	@echo 'demo: done'

# The small version of examples/synthetic_text, likewise.
test-example: program
	@$(TOOLS) && VEIL='$(CURDIR)/build/veil' examples/synthetic_text/run.sh --small build/synthetic_text >build/example.log 2>&1 || { tail -n 40 build/example.log >&2; exit 1; }
	@echo 'example: done'

# Three minutes of faults, of the same kinds in the same order each time, and the check of the checks.
test-chaos: program
	@$(TOOLS) && { $$VEIL_PYTHON scripts/chaos.py --self-test && $$VEIL_PYTHON scripts/chaos.py --minutes 3 --seed 1; } >build/chaos.log 2>&1 || { tail -n 60 build/chaos.log >&2; exit 1; }
	@tail -n 1 build/chaos.log

test-wheel: wheel
	@$(TOOLS) && tests/install/wheel_test.sh

format: setup
	@$(TOOLS) && $$VEIL_CLANG_FORMAT -i $(FORMATTED)

format-check: setup
	@$(TOOLS) && $$VEIL_CLANG_FORMAT --dry-run -Werror $(FORMATTED) || { echo 'format: run `make format`' >&2; exit 1; }

layers: setup
	@$(TOOLS) && $$VEIL_PYTHON scripts/check_layers.py && $$VEIL_PYTHON scripts/check_fuzz_sources.py

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

# Many small steps; memory and descriptors must not grow. STEPS=N (default 20000).
soak: build
	@$(TOOLS) && $$VEIL_PYTHON scripts/soak.py --steps $(or $(STEPS),20000)

# Training runs under random faults (docs/reliability.md). What violates a promise is kept and printed.
chaos: program
	@$(TOOLS) && $$VEIL_PYTHON scripts/chaos.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Any bytes for every parser, by libFuzzer under sanitizers (tests/fuzz).
fuzz:
	@scripts/setup.sh fuzz
	@$(TOOLS) && scripts/build.sh fuzz $(JOBS) $(CONFIGURE) && \
	  $$VEIL_PYTHON scripts/fuzz.py --jobs $(JOBS) --seconds $(SECONDS) $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

clean:
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-wheel build-configurations build-mutants
