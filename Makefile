# Everything a developer runs. Only make, a Python of at least 3.11 and PyPI are needed.
#
#   make test ARGS="-k frame"        arguments for the tool behind a target
#   make install PYTHON=python3.12   a Python of your choice

# Tests run in so many processes beside this one, a file's tests together; 0: one after the other.
# One more than two cores: a good part of the tests waits for sockets, clocks and other processes.
WORKERS ?= 3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

# The first of these names that runs and is new enough; python3 when none is, so that the error
# below can say what was found. A name may exist and still not run (version manager shims).
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$name" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$name"; exit; }; done; echo python3)

# A virtual environment holds absolute paths: in a copied or moved project it would run the code of
# the old place. The stamp names the folder it was made for; any other is installed from nothing.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.PHONY: help install run pipeline test coverage check format bench bench-store bench-broker bench-ha \
	bench-client bench-spark bench-java bench-fairness bench-metrics fuzz interop audit clean generate \
	pictures

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install rmq with everything its development needs

$(STAMP): pyproject.toml
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "rmq needs Python 3.11 or newer; '$(PYTHON)' is: $$("$(PYTHON)" --version 2>&1)" >&2; \
		echo "hint: name another one, for example: make install PYTHON=python3.12" >&2; \
		exit 1; }
	@[ "$$(cat $@ 2>/dev/null)" = '$(CURDIR)' ] || { rm -rf $(VENV); "$(PYTHON)" -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@printf '%s\n' '$(CURDIR)' > $@

run: install ## start rmq on this machine and show it working
	$(BIN)/rmq dev $(ARGS)

pipeline: install ## run the Spark pipelines on a pair with sample traffic, and show the pages
	$(BIN)/rmq pipeline demo --out build/pipeline $(ARGS)

test: install ## run the tests
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

coverage: install ## run the tests and show which lines and branches they missed
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --cov \
		--cov-report=term-missing $(ARGS)

check: install ## formatting, lint, types and import layers, fastest first
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: install ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## measure the remoting layer (benchmarks/README.md)
	$(BIN)/python benchmarks/bench_remoting.py $(ARGS)

bench-store: install ## measure the store (benchmarks/README.md)
	$(BIN)/python benchmarks/bench_store.py $(ARGS)

bench-broker: install ## measure the broker (benchmarks/README.md)
	$(BIN)/python benchmarks/bench_broker.py $(ARGS)

bench-ha: install ## measure a master and its slave beside the stock Java pair
	$(BIN)/python benchmarks/bench_ha.py $(ARGS)

bench-client: install ## measure the Python client beside the Java and C++ ones
	$(BIN)/python benchmarks/bench_client.py $(ARGS)

bench-spark: install ## measure sources, sink and pipelines of Spark beside Parquet and plain reads
	$(BIN)/python benchmarks/bench_spark.py $(ARGS)

bench-java: install ## measure the broker beside the stock Java one, in one run
	$(BIN)/python benchmarks/bench_broker.py --brokers rmq,java $(ARGS)

bench-fairness: install ## measure how long one heavy request delays the others
	$(BIN)/python benchmarks/bench_fairness.py $(ARGS)

bench-metrics: install ## measure what counting and scraping cost
	$(BIN)/python benchmarks/bench_metrics.py $(ARGS)

fuzz: install ## feed damaged frames, replication, files and filters to all that reads them
	$(BIN)/python -m tests.fuzz.run $(ARGS)

interop: install ## run the checks against stock RocketMQ parts (interop/README.md)
	RMQ_PYTHON='$(CURDIR)/$(BIN)/python' interop/run $(ARGS)

generate: install ## write the files in ops that `rmq generate` makes
	@for kind in $$($(BIN)/python -c 'from rmq.cli.generate.command import KINDS; print(*KINDS)'); do \
		$(BIN)/rmq generate $$kind --out ops/$$kind --force || exit; done

pictures: install ## draw the dashboards from a pair under load (docs/dashboards.md)
	$(BIN)/python -m tests.ops.pictures $(ARGS)

audit: install ## compare the dependencies with published advisories; 77: cannot be done here
	$(BIN)/python .ci/audit

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		.coverage .coverage.* htmlcov interop/.cache
	find rmq tests benchmarks interop -name __pycache__ -type d -prune -exec rm -rf {} +
