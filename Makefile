# Each target makes what it needs from a bare clone: a virtual environment of pinned versions, once.
PYTHON ?= python3
# Interpreters of different versions need different environments: .venv is the one of python3, or of
# the Python that it was made with; a PYTHON of another version gets .venv-3.13 or the like.
ifeq ($(origin VENV),undefined)
VENV := .venv
ifneq ($(origin PYTHON),file)
PRINT_VERSION := import sys; print("%d.%d" % sys.version_info[:2] + getattr(sys, "abiflags", ""))
VERSION := $(shell $(PYTHON) -c '$(PRINT_VERSION)')
ifeq ($(VERSION),)
$(error PYTHON='$(PYTHON)' cannot be run. Name Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS))
endif
MADE_WITH := $(shell $(firstword $(wildcard .venv/bin/python) python3) -c '$(PRINT_VERSION)' 2>/dev/null)
ifneq ($(VERSION),$(MADE_WITH))
VENV := .venv-$(VERSION)
endif
endif
endif
BIN := $(VENV)/bin
PINS := constraints/pins.txt
# An editable installation warns of folders beside the package; ours are meant to be there.
PIP := PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS)
# Pyright finds packages through PATH and PYTHONPATH. The last variable keeps it from asking PyPI for a newer version.
PYRIGHT := PATH="$(abspath $(BIN)):$$PATH" PYTHONPATH=. PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
PACKAGING := $(PINS) pyproject.toml setup.py $(addprefix kohort/records/,_record.py _record_decoder.py _columns.py _iteration.py _message.py) $(wildcard kohort/records/*.pxd kohort/records/*.pyx kohort/records/*.h kohort/records/codecs/*.pyx kohort/transport/network/*.pyx)

include browser/Makefile

# Tests on real components stay together, and a file's tests do, in the order of the files:
# tests/longest.txt lists the first ones.
SHARED_OUT := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Or every process of a demo, a test or Spark would do it anew where Python is told to write no bytecode.
COMPILE := $(BIN)/python -m compileall -q kohort pyspark_kohort pytest_kohort examples/demo

# pytest rewrites the modules of the tests, which takes half a minute. Each process of the first run would do all of it.
unexport PYTHONDONTWRITEBYTECODE
REWRITE := for part in "tests/[a-c]*/" "tests/[d-z]*/"; do $(BIN)/python -m pytest --collect-only -qq $$part >/dev/null & done; wait
SANITIZED := build/sanitized

.DEFAULT_GOAL := help
SEEDS ?= 10000

.PHONY: help demo quick test test-all matrices interop spark-versions sanitize lint docs docs-serve docs-check fuzz soak bench release-check placeholders clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Run a consumer group over 336,776 flights, with members that join, leave and die.
	$(BIN)/kohort demo

quick: $(VENV)/.dev ## Check a change in a minute: style, types, tests of what changed, 40 seeds.
	$(BIN)/python -m tools.quick $(ARGS)

test: $(VENV)/.dev ## Prove every feature once, on Apache Kafka and Spark too.
	$(BIN)/python -m pytest $(SHARED_OUT) $(ARGS)

test-all: SEEDS = 2000
test-all: test matrices soak fuzz sanitize ## Run all there is: hours.

matrices: $(VENV)/.dev ## Run what `make test` leaves out: each case of each test.
	$(BIN)/python -m pytest $(SHARED_OUT) -m long $(ARGS)

interop: $(VENV)/.dev ## Run all tests with other clients, on Apache Kafka and on Spark.
	$(BIN)/python -m pytest $(SHARED_OUT) -m "interop or real_kafka or spark" $(ARGS)

spark-versions: $(VENV)/.dev ## Run the tests of the Spark source on Spark 4.0, 4.1 and 4.2.
	$(BIN)/python -m tools.spark_versions $(ARGS)

# The copy keeps the compiled modules of the environment as they are. Python itself leaks at its end, and
# the sanitizer keeps freed memory, which tests of memory would count.
sanitize: $(VENV)/.dev ## Run the tests of the compiled modules with AddressSanitizer and UBSan.
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	git ls-files -z kohort pyspark_kohort pytest_kohort tests tools pyproject.toml setup.py README.md NOTICE | xargs -0 cp --parents -t $(SANITIZED)
	cd $(SANITIZED) && CFLAGS="-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
	  KOHORT_REQUIRE_EXTENSIONS=1 $(abspath $(BIN))/python setup.py --quiet build_ext --inplace
	cd $(SANITIZED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	  $(abspath $(BIN))/python -m pytest $(SHARED_OUT) -k "not memory" --timeout 600 tests/records \
	  tests/fetcher/test_fuzz.py $(wildcard tests/transport/test_frame*.py) tests/transport/test_tcp.py $(ARGS)

lint: $(VENV)/.dev ## Check style, format, prose and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.prose
	$(BIN)/python -m tools.sync_api --check
	$(BIN)/mypy
	$(PYRIGHT) --verifytypes kohort --ignoreexternal

docs: $(VENV)/.docs $(PYODIDE) ## Build the documentation site into build/docs/site. Dead links are errors.
	$(BIN)/python -m tools.site build $(ARGS)

docs-serve: $(VENV)/.docs $(PYODIDE) ## Show the documentation site on localhost:8000, and follow changes.
	$(BIN)/python -m tools.site serve $(ARGS)

docs-check: $(VENV)/.browser $(PYODIDE) $(AXE) ## Look at each page of the site in Chromium: console, requests, accessibility.
	$(BIN)/python -m tools.site build
	$(BIN)/python -m browser.site_check --axe $(AXE) $(ARGS)
	$(BIN)/python -m browser.check --axe $(AXE)
	$(BIN)/python -m browser.history_check --axe $(AXE)

fuzz: $(VENV)/.dev ## 1,000,000 mutated requests to the in-process cluster, as many responses, and 500,000 logins.
	$(BIN)/python -m tests.support.fuzz $(ARGS)
	$(BIN)/python -m tests.support.fetch_fuzz $(ARGS)
	$(BIN)/python -m tests.support.login_fuzz $(ARGS)

soak: $(VENV)/.dev ## Simulate SEEDS=10000 lives of a group on a virtual clock.
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

bench: $(VENV)/.dev ## Measure the hot paths beside other clients.
	@$(if $(ARGS),$(BIN)/python -m benchmarks.$(ARGS), \
	  for name in $(notdir $(basename $(wildcard benchmarks/[a-z]*.py))); do \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name || failed=1; done; exit $${failed:-0})

release-check: $(VENV)/.release ## Build the files of a release for this Python, and try each. Nothing is uploaded.
	$(BIN)/python -m tools.release

placeholders: ## List addresses and owners that a person has to fill in before a release.
	@! git grep -nE '\w\.invalid\b|PLACEHOLDER|^SITE: .* = ""' -- pyproject.toml mkdocs.yml '*.md' .github \
	  kohort/errors/addresses.py ':!docs' ':!CHANGELOG.md'

clean: ## Remove the environments, the caches and what was built.
	rm -rf $(VENV) .venv .venv-[0-9]* .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kohort needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "Python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

# Built without isolation, so that the build tools too are the pinned ones.
$(VENV)/.tools: $(PINS) | $(BIN)/python
	@echo "Installing the pinned packages into $(VENV). The first time they are downloaded."
	$(PIP) pip setuptools cython
	@touch $@

$(VENV)/.demo: $(VENV)/.tools $(PACKAGING)
	$(PIP) --no-build-isolation --editable '.[spark,demo]'
	$(COMPILE)
	@touch $@

$(VENV)/.docs: $(VENV)/.tools $(PACKAGING)
	$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@

$(VENV)/.release: $(VENV)/.tools $(PACKAGING)
	$(PIP) --no-build-isolation --editable '.[release]'
	@touch $@

$(VENV)/.dev: $(VENV)/.tools $(PACKAGING)
	@echo "Compiling kohort, which takes half a minute."
	$(BIN)/python setup.py --quiet build_ext --inplace
	@echo "Installing the packages that the tests need. The first time they are downloaded."
	$(PIP) --no-build-isolation --editable '.[arrow,spark,demo,docs,browser,dev]'
	@if command -v krb5-config >/dev/null; then \
	  $(PIP) --no-build-isolation --editable '.[gssapi]' || echo "The package gssapi cannot be built; tests of GSSAPI are skipped."; fi
	$(COMPILE)
	@$(REWRITE)
	@touch $@
