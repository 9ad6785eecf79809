# Everything starts from Python alone; `make setup` is run by every target that needs it.
PYTHON ?= python3
BIN := .seamlessflow/venvs/app/bin

# The demo's knobs: make demo LR=0 LAYOUT=disaggregated KEEP=1 ENGINE=vllm UPDATES=40
DEMO_FLAGS = $(if $(LR),--lr $(LR)) $(if $(LAYOUT),--layout $(LAYOUT)) $(if $(ENGINE),--engine $(ENGINE)) \
	$(if $(UPDATES),--updates $(UPDATES)) $(if $(filter-out 0,$(KEEP)),--keep)

# How many processes share the tests that measure no times.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup vllm vllm-if-possible demo test test-gpu check lint types imports schema frontend frontend-check screenshots bench soak rehearsal clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## make or update the environment .seamlessflow/venvs/app, build the dashboard
	@$(PYTHON) deploy/local/bootstrap.py

vllm: setup ## make the environment .seamlessflow/venvs/vllm, in which vLLM engines run (2.5 GB; demo ENGINE=vllm, test)
	@$(BIN)/python -m deploy.local.vllm_environment

# Where vLLM cannot be installed, its tests are skipped aloud, or fail when CI=true.
vllm-if-possible: setup
	-@$(BIN)/python -m deploy.local.vllm_environment

demo: setup $(if $(filter vllm,$(ENGINE)),vllm) ## train the example policy through every plane (knobs: LR, LAYOUT, KEEP, ENGINE, UPDATES)
	@$(BIN)/seamlessflow demo $(DEMO_FLAGS)

# The environment of vLLM is made beside the checks. Tests start in the order of their folders, so that the short ones
# of tests/unit come last and no process waits long for another. The acceptance tests measure times: they have the
# machine alone.
test: setup ## every check and every test that needs no GPU (WORKERS=2 processes where tests may run in parallel)
	@$(MAKE) --no-print-directory -j2 vllm-if-possible lint imports schema types frontend-check
	@failed=0; set -x; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/acceptance || failed=1; \
	$(BIN)/python -m pytest tests/acceptance || failed=1; \
	exit $$failed

test-gpu: setup vllm-if-possible ## on a machine with an NVIDIA GPU: engine, trainer and whole jobs on it (DEVICE=cpu tries the suite)
	SEAMLESSFLOW_TEST_DEVICE=$(or $(DEVICE),cuda) $(BIN)/python -m pytest tests/gpu tests/contract/engine

check: setup lint types imports schema frontend-check ## the fast subset: lint, types, import rules, schema drift, unit tests
	$(BIN)/python -m pytest tests/unit tests/architecture

frontend: setup ## build the dashboard (part of setup; says here why it failed)
	@$(BIN)/python deploy/local/frontend.py

# Types, lint, import layers and unit tests of the dashboard.
frontend-check:
	@$(BIN)/python deploy/local/frontend.py --check

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports --no-cache

schema:
	DJANGO_SETTINGS_MODULE=tests.django_settings $(BIN)/python manage.py export_schemas --check

bench: setup ## NAME=<benchmark> (SHORT=1: a smoke test): print its table, write build/bench/<name>.json
	@$(BIN)/python -m tests.benchmarks $(NAME) $(if $(SHORT),--short)

screenshots: setup ## take the pictures of docs/screenshots anew (needs a Chromium, five minutes)
	@$(BIN)/python -m tests.acceptance.screenshots

soak: setup ## the acceptance tests over and over, HOURS=<hours> (1 by default)
	@$(BIN)/python -m tests.benchmarks soak --hours $(or $(HOURS),1)

rehearsal: setup ## as root: build the images, run the compose file with podman, restore a back-up (FOLDER, FLAGS)
	$(BIN)/python deploy/rehearsal/rehearse.py --folder $(or $(FOLDER),build/rehearsal) $(FLAGS)

clean: ## stop what runs here, then remove data, builds and caches (the environments stay)
	@if [ -x $(BIN)/seamlessflow ]; then $(BIN)/seamlessflow down; fi
	@$(PYTHON) deploy/local/clean.py
