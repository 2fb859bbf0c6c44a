# Two commands do everything on a fresh machine: `make train` and `make test`. Both call `make setup`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# what the installed environment depends on; the stamp makes a second `make setup` a no-op
SOURCES := pyproject.toml constraints.txt
EXTRAS ?= plot
# one process for each core; they and the programs that tests start share compiled modules, whatever the shell says
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: setup train test nightly lint docs bench bench-full artifact address sanitize check constraints clean

setup: $(VENV)/.installed-$(EXTRAS)

$(VENV)/.installed-%: $(SOURCES)
	@echo "installing the package and its extra '$*' into $(VENV) (once; a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

train: setup
	$(BIN)/rpl train rpl/Aircraft-20x10-v0 --budget 20000 --seed 0 --log-dir logs

# all tests but those marked `nightly`; `make test FILES=tests/solver` for some of them
FILES ?=
test:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	$(PYTEST) $(FILES)

# every test: longer runs of the same checks, all sizes, deep learners
nightly:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	RPL_TEST_SEED=$(shell date +%j) $(PYTEST) -m "" $(FILES)

lint:
	@$(MAKE) --no-print-directory setup EXTRAS=dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs:
	@$(MAKE) --no-print-directory setup EXTRAS=dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	$(BIN)/python -m benchmarks

bench-full:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	$(BIN)/python -m benchmarks --full

# every headline number again: claim, command, expected, measured, minutes
artifact:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	$(BIN)/python -m benchmarks.artifact

# once, before the first release: make address URL=https://HOST/OWNER/rpl_agent
address:
	$(PYTHON) docs/address.py $(URL)

# the C core under gcc's address and undefined-behaviour sanitizers: its tests, 10^4 problems of the fuzz, hostile files
sanitize:
	@$(MAKE) --no-print-directory setup EXTRAS=test
	$(BIN)/python -m tests.sanitize

# everything that must hold before a change lands: lint, the docs site, benchmarks and sanitizers at smoke size (so they
# cannot rot), tests
check: lint docs
	$(BIN)/python -m benchmarks --smoke
	$(BIN)/python -m tests.sanitize --smoke
	$(PYTEST)

# constraints.txt for all versions of Python at once; versions in it stay unless they have to change
constraints:
	echo torch==2.13.0 | uv pip compile --universal --python-version 3.10 --extra dev --no-emit-package rpl-agent \
		--no-annotate --custom-compile-command "make constraints" pyproject.toml - -o constraints.txt

clean:
	rm -rf $(VENV) build dist site *.egg-info
