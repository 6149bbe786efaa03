# The same few verbs on a laptop and in CI. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The first Python here that is new enough; plain python3 when none is, which then says what is needed.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1 && break; done; \
	$$p -c '' >/dev/null 2>&1 && echo $$p || echo python3)
BIN := .venv/bin

.PHONY: help run test-all test-rest test-again docs setup setup-dev setup-engine setup-kernels setup-browser setup-pgbouncer setup-proxies setup-promtool setup-helm setup-vllm setup-conformance images wheel test check coverage compatibility conformance chaos fleet soak bench bench-batch reproduce lock lock-engine

help:  ## list the verbs, with how long each takes on two cores
	@awk -F ':.*## ' '/^# ---/ {gsub(/^# -+ | -+$$/, ""); print "\n" $$0} \
	  /^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set up and run ------------------------------------------------------------------------
run:  ## set up what is missing, start everything, stay until Ctrl-C; MODEL=folder or name (first time 2 min, then 30 s)
	@$(if $(MODEL),COSERVE_MODEL="$(MODEL)") exec $(PYTHON) -m coserve.setup run

setup:
	@$(PYTHON) -m coserve.setup service

setup-dev:
	@$(PYTHON) -m coserve.setup dev

setup-engine:
	@$(PYTHON) -m coserve.setup engine

setup-kernels: setup-engine
	@$(PYTHON) -m coserve.setup kernels

setup-helm:
	@$(PYTHON) -m coserve.setup helm

setup-conformance:
	@$(PYTHON) -m coserve.setup conformance

setup-browser:  ## install Chromium for the browser tests; as root (1 min)
	@$(PYTHON) -m coserve.setup browser

setup-pgbouncer:  ## install PgBouncer for the tests behind a pooler; as root (10 s)
	@$(PYTHON) -m coserve.setup pgbouncer

setup-proxies:  ## install nginx and Caddy for the tests behind them; as root (20 s)
	@$(PYTHON) -m coserve.setup proxies

setup-promtool:  ## promtool for the tests of the alerts, out of Debian's package (20 s)
	@$(PYTHON) -m coserve.setup promtool

setup-vllm:  ## a real vLLM for a CPU, for the tests and the benchmark before one (5 min, 3 GB)
	@$(PYTHON) -m coserve.setup vllm

# --- look after the code -------------------------------------------------------------------
check: setup-dev setup-helm  ## format, lint, types, imports, dependencies, pages, the site (2 min)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy --no-error-summary api service coserve gateway batch store engine_adapter lab kernels/coserve_kernels migrations bench release docs/hooks.py tests
	$(BIN)/deptry .
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -d $$(mktemp -d)/site
	$(BIN)/pytest -q -p no:randomly tests/architecture

docs: setup-dev  ## serve these pages as a site at http://127.0.0.1:8000, built anew at each change (5 s)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Several tests at once; those that share an engine in one process (tests/fixtures/order.py).
PROCESSES = auto
PYTEST = $(BIN)/pytest -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder

# One process more than cores: these tests wait for half of their time.
test: PROCESSES = $(shell expr $$(nproc) + 1)
test: setup-dev setup-engine setup-kernels  ## unit, contract, integration, the engine once per mechanism, one browser path (8 to 12 min)
	$(PYTEST) tests --ignore tests/architecture -m "not thorough and not release"

test-all: setup-dev setup-helm setup-engine setup-kernels  ## every test, the thorough ones and those of make check too; the end says what took how long (23 to 32 min)
	$(PYTEST) tests $(if $(COMPATIBILITY),--compatibility $(COMPATIBILITY))

LEFT_OUT = thorough
test-rest: setup-dev setup-helm setup-engine setup-kernels  ## what make test left out: the thorough tests; LEFT_OUT="thorough or browser": those too (15 to 20 min)
	$(PYTEST) tests --ignore tests/architecture -m "$(LEFT_OUT)"

# A test that fails beside thousands of others and passes alone is named, not hidden; four of them are no accident.
test-again: setup-dev  ## what failed last, once more and alone; refuses more than three tests (a few minutes)
	@$(BIN)/python -m tests.again

coverage: setup-dev  ## unit and integration tests, and what they run of each package (20 min); kept in bench/results
	$(PYTEST) -q tests/unit tests/integration --cov --cov-report=
	@$(BIN)/coverage json -q -o - | $(BIN)/python -m tests.coverage_table | tee bench/results/coverage.txt

compatibility: setup-dev setup-engine setup-kernels  ## run the tests of the API contract, write docs/compatibility.md (about 10 min)
	$(PYTEST) tests -m contract --compatibility docs/compatibility.md

chaos: setup-dev  ## kill -9 of everything, 200 times, while batches run (15 min; ENGINE=real: 13 times; ENGINE=vllm after make setup-vllm)
	$(BIN)/python -m tests.chaos --engine $(or $(ENGINE),fake) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) --save

.PHONY: torture
torture: setup-dev  ## every fault at random, an hour, beside chat and batches of three projects (MINUTES=, SEED=, ENGINE=real)
	$(BIN)/python -m tests.torture --engine $(or $(ENGINE),fake) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) --save

.PHONY: fuzz
fuzz: setup-dev setup-engine  ## generated bodies, valid to hostile, to every route before the real engine: no death, leak, 5xx or word of the code (60 min; MINUTES=, SEED=)
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

fleet: setup-dev setup-engine  ## 3 gateways, 2 worker hosts, 6 engines, restarted and lost under load: promises and what was seen (12 min; MINUTES=)
	FLEET_MINUTES=$(or $(MINUTES),10) $(BIN)/pytest -q -s -n 0 tests/fleet

wheel: setup-dev  ## build the wheel, with the site in it, and the source distribution into dist/ (1 min)
	$(BIN)/python -m release.build

.PHONY: release-check
release-check: setup-dev setup-helm  ## build all that would be published, run the wheel as strangers do, print what would go out; sends nothing (10 min)
	$(BIN)/python -m release.check

images: setup-dev $(if $(filter fake,$(ENGINE)),,setup-engine)  ## build both images and run all of docker-compose.yml with podman, a real SGLang on the CPU; as root (7 to 12 min; ENGINE=fake: none, 6 min; ENGINE=cuda: the GPU's image alone, 9 min and 40 GB)
	$(BIN)/python -m tests.images --engine $(or $(ENGINE),real)

soak: setup-dev setup-engine  ## a batch under waves of online streams: every answer as without them (15 min)
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED)) --save

conformance: setup-dev setup-conformance  ## official clients, agents and validators against a live stack (8 min; ENGINE=real: with SGLang, 6 min)
	$(BIN)/python -m tests.conformance $(if $(filter real,$(ENGINE)),--engine real)

bench: setup-dev  ## the service-side benchmarks: upload, validation, dispatch, slow clients (5 min)
	$(BIN)/python -m bench

reproduce: setup-dev  ## the papers' figures again, simulated; writes docs/reproduction.md (9 min on two free cores, 18 of processor time)
	$(BIN)/python -m bench.reproduce

.PHONY: isolation
isolation: setup-dev  ## what one tenant sees while another loads the service in each way its limits allow; the table of docs/security.md (6 min)
	$(BIN)/python -m bench.isolation

bench-batch: setup-dev  ## 50,000 rows from upload to download, CPU and memory; 20 owners at once (2 min)
	$(BIN)/python -m bench.batch_load

lock: setup-dev  ## pin requirements/*.in with hashes again (20 s)
	@uv=$$($(PYTHON) -c 'from pathlib import Path; from coserve.setup.installer import get_uv; print(get_uv(Path.cwd()))' | tail -1); \
	for name in service dev conformance $$(cd requirements && ls conformance/*.in | sed 's/\.in$$//'); do \
	  $$uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.txt \
	    $$(test -f requirements/$$name.overrides && echo --override requirements/$$name.overrides); done

lock-engine: setup-dev  ## pin the engine's lists again; lines marked "no-deps" come without their dependencies (10 s)
	$(BIN)/python -m release.freeze requirements/engine-cpu*.in requirements/model-convert.in
	@uv=$$($(PYTHON) -c 'from pathlib import Path; from coserve.setup.installer import get_uv; print(get_uv(Path.cwd()))' | tail -1); \
	linux="platform_machine == 'x86_64' and sys_platform == 'linux'"; \
	for list in requirements/engine-cuda*.in; do \
	  alone=$$(mktemp -d); cuda=$(CURDIR)/$${list%.in}; \
	  printf '[project]\nname = "cuda"\nversion = "0"\nrequires-python = ">=3.11"\n[tool.uv]\nenvironments = ["%s"]\n' \
	    "$$linux" > $$alone/pyproject.toml; \
	  $$uv --directory $$alone pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-annotate --custom-compile-command "make lock-engine" $$cuda.in -o $$cuda.txt || exit 1; \
	  sed -i -E "s/( ;| and) $$linux//" $$cuda.txt; rm -r $$alone; \
	done

# --- beside others ---------------------------------------------------------------------------
.PHONY: test-sglang
SGLANG = 0.5.16
QUICK = test_coserving_mechanisms test_runtime test_gateway test_engine_server
test-sglang: export COSERVE_SGLANG = $(SGLANG)
test-sglang: setup-dev setup-engine  ## the engine's quick tests on another release of SGLang (SGLANG=0.5.16; 4 min, and once 2 min for its packages)
	$(PYTEST) $(QUICK:%=tests/engine/%.py) -m "not thorough"

.PHONY: follow
VERSION = newest
follow: setup-dev setup-engine  ## how far coserve is from another release of SGLang: what changed of what it uses, then its tests there (VERSION=0.5.24, else the newest; SIGN=1; 10 min)
	@$(BIN)/python -m release.follow $(VERSION) $(if $(SIGN),--sign)

.PHONY: bench-gateway lock-bench
bench-gateway: setup-dev  ## the gateway beside a plain relay, LiteLLM's proxy and two routers (7 min the first time, with 700 MB of LiteLLM)
	$(BIN)/python -m bench.gateway_compare

lock-bench: setup-dev
	@for name in litellm routers; do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --custom-compile-command "make lock-bench" requirements/bench-$$name.in -o requirements/bench-$$name.txt; done
