# Every target sets itself up in a virtual environment from nothing.
PYTHON ?= python3
VENV ?= .venv
BENCH ?=
PART ?=
SPARK ?=
BIN = $(VENV)/bin
READY = $(VENV)/ready

.PHONY: help demo test check lab mutants coverage journeys bench docs clean

help:
	@echo "make demo    show what it does, on this machine"
	@echo "make test    run all tests"
	@echo "make check   lint, format, types, layers, subjects of commits"
	@echo "make lab     what takes longer, in parts: PART=verdicts, repairs, exactly-once,"
	@echo "             versions, oracle, net;"
	@echo "             without one it lists them; SPARK=3.5.9 for another version"
	@echo "make mutants   seeded defects, each of which the tests must catch"
	@echo "make coverage  run all tests and compare the lines they reach with those recorded"
	@echo "make journeys  count the files and functions that a command goes through"
	@echo "make bench   measure against peers (BENCH=name for one)"
	@echo "make docs    write completions, man pages and docs/reference"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: $(READY)
	@$(BIN)/sluicegate demo

# A streaming query shows up wherever commands look for writers: those tests run by themselves.
test: $(READY)
	$(BIN)/pytest --numprocesses auto --dist worksteal --ignore tests/job/test_batches.py
	$(BIN)/pytest --quiet tests/job/test_batches.py

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest --quiet tests/test_layers.py tests/test_commits.py

lab: $(READY)
	$(BIN)/python -m tests.lab $(PART) $(if $(SPARK),--spark $(SPARK))

mutants: $(READY)
	$(BIN)/python -m tests.mutants

coverage: $(READY)
	$(BIN)/python -m tests.coverage

journeys: $(READY)
	$(BIN)/python bench/journey.py --table

bench: $(READY)
	$(BIN)/python bench --page docs/results/bench.md $(BENCH)

docs: $(READY)
	$(BIN)/python docs/generate

clean:
	rm -rf $(VENV) build dist
