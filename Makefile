# Everything needs only Python to start; every target that needs `make setup` runs it.
PYTHON ?= python3
BIN := .seamlessflow/venvs/app/bin

# The demo's knobs: make demo LR=0 LAYOUT=disaggregated KEEP=1 ENGINE=vllm TENSOR=2 UPDATES=40 JOBS=2
DEMO_FLAGS = $(if $(LR),--lr $(LR)) $(if $(LAYOUT),--layout $(LAYOUT)) $(if $(ENGINE),--engine $(ENGINE)) \
	$(if $(TENSOR),--tensor $(TENSOR)) $(if $(UPDATES),--updates $(UPDATES)) $(if $(JOBS),--jobs $(JOBS)) $(if $(filter-out 0,$(KEEP)),--keep)

# Number of processes for the tests. Many tests wait for a deadline, so one more than there are cores is fastest.
WORKERS ?= 3

# Tests start hundreds of processes: without bytecode each of them would compile our sources anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup vllm vllm-if-possible demo test test-changed quick test-gpu lint types imports schema frontend frontend-check screenshots bench soak rehearsal lock release clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## create or update the environment .seamlessflow/venvs/app and build the dashboard
	@$(PYTHON) deploy/local/bootstrap.py

vllm: setup ## create the environment .seamlessflow/venvs/vllm for vLLM engines (2.5 GB; used by demo ENGINE=vllm and test)
	@$(BIN)/python -m deploy.local.vllm_environment

# If vLLM cannot be installed, its tests are skipped with a message, or fail if CI=true.
vllm-if-possible: setup
	-@$(BIN)/python -m deploy.local.vllm_environment

demo: setup $(if $(filter vllm,$(ENGINE)),vllm) ## train the example policy through every plane (knobs: LR, LAYOUT, KEEP, ENGINE, TENSOR, UPDATES, JOBS)
	@$(BIN)/seamlessflow demo $(DEMO_FLAGS)

# The environment of vLLM is created while the checks run. Tests start in the order of these folders: the acceptance tests,
# which wait much, go on in two of the processes while the others compute, and the short tests come last, so that no process
# waits long for another.
TESTS := tests/acceptance tests/architecture tests/contract tests/integration tests/unit
test: setup ## run every check and every test that needs no GPU (WORKERS=3 processes)
	@$(MAKE) --no-print-directory -j2 vllm-if-possible lint imports schema types frontend-check
	$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder --durations=40 --durations-min=5 $(TESTS)

test-changed: setup ## run the tests, except acceptance, that the change since BASE=main concerns, by what imports what
	@$(BIN)/python -m deploy.local.changed_tests $(or $(BASE),main)

test-gpu: setup vllm-if-possible ## run the list of checks on an NVIDIA GPU (PART=1: one part of 4; DEVICE=cpu tries the list without one)
	$(BIN)/python -m tests.gpu.checklist --device $(or $(DEVICE),cuda) $(if $(PART),--part $(PART))

quick: setup ## run the checks, then the tests of single modules, in a few minutes
	@$(MAKE) --no-print-directory -j2 lint imports schema types frontend-check
	$(BIN)/python -m pytest -n $(WORKERS) tests/architecture tests/unit

frontend: setup ## build the dashboard (part of setup, but here a failure is shown)
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

bench: setup ## run NAME=<benchmark> (SHORT=1: a smoke test), print its table and write build/bench/<name>.json
	@$(BIN)/python -m tests.benchmarks $(NAME) $(if $(SHORT),--short)

screenshots: setup ## take the pictures in docs/screenshots again (needs Chromium and five minutes)
	@$(BIN)/python -m tests.acceptance.screenshots

soak: setup ## repeat the acceptance tests for HOURS=<hours> (default: 1)
	@$(BIN)/python -m tests.benchmarks soak --hours $(or $(HOURS),1)

rehearsal: setup ## build the images, run the compose file with podman and restore a back-up, as root (FOLDER, FLAGS)
	$(BIN)/python deploy/rehearsal/rehearse.py --folder $(or $(FOLDER),build/rehearsal) $(FLAGS)

lock: setup ## write deploy/constraints anew for what pyproject.toml asks (UPGRADE=1: newest versions, UPGRADE=name: of one package)
	@$(BIN)/python -m deploy.local.lock $(if $(UPGRADE),$(if $(filter 1,$(UPGRADE)),--upgrade,--upgrade-package $(UPGRADE)))

release: setup ## build the wheel and the images of the tag that is checked out (IMAGES=0: only the wheel)
	@$(BIN)/python -m deploy.local.release $(if $(filter 0,$(IMAGES)),--no-images)

clean: ## stop the platform in this folder, then remove data, builds and caches (the environments stay)
	@if [ -x $(BIN)/seamlessflow ]; then $(BIN)/seamlessflow down; fi
	@$(PYTHON) deploy/local/clean.py
