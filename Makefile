# Each target makes what it needs from a bare clone: a virtual environment of pinned versions, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PINS := constraints/pins.txt
# An editable installation warns of folders beside the package; ours are meant to be there.
PIP := PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS)
PACKAGING := $(PINS) pyproject.toml setup.py $(addprefix kohort/records/,_batch.py _columns.py) $(wildcard kohort/records/*.pxd kohort/records/*.h)

# A file's tests stay together, in the order of the files: the longest are put first.
SHARED_OUT := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Or every process of a demo, a test or Spark would do it anew where Python is told to write no bytecode.
COMPILE := $(BIN)/python -m compileall -q kohort pyspark_kohort pytest_kohort

.DEFAULT_GOAL := help
SEEDS ?= 10000

.PHONY: help demo test interop lint fuzz soak bench clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Run a consumer group over 336,776 flights, with members that join, leave and die.
	$(BIN)/kohort demo

test: $(VENV)/.dev ## Run all tests but the full matrices.
	$(BIN)/python -m pytest $(SHARED_OUT) $(ARGS)

interop: $(VENV)/.dev ## Run the full matrices: other clients on our cluster, our client on Apache Kafka and Spark.
	$(BIN)/python -m pytest -m "interop or real_kafka or spark" $(ARGS)

lint: $(VENV)/.dev ## Check style, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: $(VENV)/.dev ## Send 1,000,000 mutated requests to the in-process cluster; read as many mutated responses.
	$(BIN)/python -m tests.support.fuzz $(ARGS)
	$(BIN)/python -m tests.support.fetch_fuzz $(ARGS)

soak: $(VENV)/.dev ## Simulate SEEDS=10000 lives of a group on a virtual clock.
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

bench: $(VENV)/.dev ## Measure the hot paths beside other clients.
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove the environment, the caches and what was built.
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kohort needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "Python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

# Built without isolation, so that the build tools too are the pinned ones.
$(VENV)/.tools: $(PINS) | $(BIN)/python
	$(PIP) pip setuptools cython
	@touch $@

$(VENV)/.demo: $(VENV)/.tools $(PACKAGING)
	$(PIP) --no-build-isolation --editable '.[spark,demo]'
	$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.tools $(PACKAGING)
	$(PIP) --no-build-isolation --editable '.[arrow,spark,demo,dev]'
	$(COMPILE)
	@touch $@
