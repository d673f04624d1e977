# `make run` and `make test` set up what they need; nothing else has to be done first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# the build of this package in its own environment is pinned, too: pip before 25.3 reads the first there, later ones the second
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt

.PHONY: run test check setup clean

run: setup
	$(BIN)/skills run flash-attn --target h100

test: check
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	PYTHONPATH=.importroot $(BIN)/lint-imports

setup: $(STAMP)

# constraints.txt pins everything; torch there is the CPU build's version, enough for all but measuring
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=python3.12, say" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV); torch is the bulk of them"
	$(PINNED) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build *.egg-info
