# Every target sets itself up in a virtual environment from nothing.
PYTHON ?= python3
VENV ?= .venv
BENCH ?=
BIN = $(VENV)/bin
READY = $(VENV)/ready

.PHONY: help demo test check lab bench docs clean

help:
	@echo "make demo    show what it does, on this machine"
	@echo "make test    run all tests"
	@echo "make check   lint, format, types, layers"
	@echo "make lab     damage, repair and restart real queries on Spark 3.5, 4.0 and 4.3 (docs/lab.md),"
	@echo "             and kill gated jobs in every way (docs/exactly-once.md)"
	@echo "make bench   measure against peers (BENCH=name for one)"
	@echo "make docs    write completions, man pages and generated pages anew"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: $(READY)
	@$(BIN)/sluicegate demo

test: $(READY)
	$(BIN)/pytest --numprocesses auto --dist worksteal

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest --quiet tests/test_layers.py

lab: $(READY)
	$(BIN)/python -m tests.lab.table
	$(BIN)/python -m tests.lab.mended_table
	$(BIN)/python -m tests.lab.exactly_once_table

bench: $(READY)
	$(BIN)/python bench --page docs/bench.md $(BENCH)

docs: $(READY)
	$(BIN)/python docs/generate

clean:
	rm -rf $(VENV) build dist
