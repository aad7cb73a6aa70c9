# Every target sets up what it needs; on a fresh Debian or Ubuntu only root, Python >= 3.11 and make must be there.
.DEFAULT_GOAL := help
.PHONY: help setup up down test check format generate sim sweep soak fuzz bench

BIN := .venv/bin
SEEDS ?= 1000
POINTS ?= 100000
BUNDLES ?= 10000
BOMB ?= 60
TENANTS ?= 10000

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@scripts/setup

up: setup ## start everything on this machine, with simulated GPUs where there are none
	@$(BIN)/gpuaas up

down: setup ## stop what `make up` started; data is kept
	@$(BIN)/gpuaas down

test: check ## check, then every test: all that CI runs
	$(BIN)/pytest -n 2 --dist worksteal

check: setup ## format, lint, strict types, import contracts, generated files fresh
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/generate.py --check

format: setup ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

generate: setup ## write the files that are derived from the code
	$(BIN)/python scripts/generate.py

sim: setup ## run the simulation over SEEDS=1000 seeds
	GPUAAS_SIM_SEEDS=$(SEEDS) $(BIN)/pytest -n 2 --dist worksteal --timeout=0 tests/sim

sweep: setup ## kill a node's processes at POINTS system calls, or at all that change something, as root
	GPUAAS_SWEEP_POINTS=$(POINTS) $(BIN)/pytest -s --timeout=0 tests/root/test_kill_sweep.py

soak: setup ## let each bomb go off for BOMB=60 seconds, TENANTS=10000 follow each other, more ports be tried, as root
	GPUAAS_SOAK_SECONDS=$(BOMB) GPUAAS_SOAK_TENANTS=$(TENANTS) $(BIN)/pytest -s --timeout=0 --durations=0 \
		tests/root/escape/test_bombs.py tests/root/escape/test_reuse.py tests/root/escape/test_reach.py

fuzz: setup ## give BUNDLES=10000 broken archives, bundles and images of each kind to whatever unpacks them
	GPUAAS_FUZZ=$(BUNDLES) $(BIN)/pytest -n 2 --timeout=0 tests/runtimes/test_unpack.py tests/runtimes/test_bundle_fuzz.py

bench: setup ## measure every performance promise
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done
