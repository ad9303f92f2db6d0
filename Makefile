# One task file. Every task sees to its own needs first; nothing is installed twice.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv demo demo-cluster test check types scripts-of-console architecture unit sim crash fuzz compat lowest constraints bench docs web release

# Tests start hundreds of processes, which would all compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# A test that waits for ever ends its process, which names it and the stack of every thread.
HANG_GUARD := -o faulthandler_timeout=590 --timeout 600 --timeout-method thread
# Folders without a test of `make unit`, which it need not import.
NOT_UNIT := architecture compat crash debezium fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

venv: ## install what the project needs into .venv, nothing else
	@scripts/setup.sh

demo: venv ## PostgreSQL into a lake, or DATABASE=mysql, or mariadb: killed, proved, taken back in time
	@scripts/java.sh || true
	@$(BIN)/python -m scripts.demo $(DATABASE)

demo-cluster: venv ## the same shop through three brokers, of which each is killed: nothing is lost
	@scripts/java.sh || true
	@$(BIN)/python -m scripts.demo_cluster

check: venv ## format, lint, types (those of the console's scripts with npm), architecture tests
	$(BIN)/ruff format --check --output-format concise .
	$(BIN)/ruff check --output-format concise .
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync types scripts-of-console architecture

types:
	$(BIN)/mypy

scripts-of-console:
	@$(BIN)/python -m scripts.check_web

architecture:
	$(PYTEST) -q tests/architecture

unit: venv ## the fast tests, which need no other server, in two processes
	HEADWATER_BUDGET=unit $(PYTEST) -q $(HANG_GUARD) -n $(or $(PROCESSES),2) tests $(foreach each,$(NOT_UNIT),--ignore tests/$(each)) \
	    -m "not crash and not fuzz and not compat and not simulation and not slow and not integration"

test: venv ## everything, with short budgets, in three processes, as many tests wait: make test PROCESSES=0 takes one
	@scripts/kcat.sh
	@scripts/chromium.sh
	@scripts/databases.sh
	@scripts/fetch_mysql.sh 9 >/dev/null
	@scripts/fetch_java_client.sh >/dev/null
	@scripts/fetch_prometheus.sh >/dev/null
	$(PYTEST) -q $(HANG_GUARD) --durations 10 -n $(or $(PROCESSES),3) tests

sim: venv ## long random histories in memory and all properties, from one seed: make sim SEED=42
	HEADWATER_BUDGET=long $(PYTEST) -q tests -m "simulation or hypothesis" $(if $(SEED),--hypothesis-seed=$(SEED) --randomly-seed=$(SEED))

crash: venv ## 200 kills and 500 power cuts of the log; captures, pipelines and lakes killed
	HEADWATER_BUDGET=long $(PYTEST) -q --capture=sys tests -m crash

fuzz: venv ## noise into every reader of bytes, for ten minutes: make fuzz HEADWATER_FUZZ_SECONDS=3600
	HEADWATER_FUZZ_SECONDS=$${HEADWATER_FUZZ_SECONDS:-600} $(PYTEST) -q tests/fuzz

compat: venv ## other people's clients, Debezium, every PostgreSQL and MySQL, and Apache Kafka under our own suites
	@scripts/kcat.sh
	@scripts/databases.sh
	HEADWATER_BUDGET=long HEADWATER_KAFKA_JARS=$$(scripts/fetch_kafka.sh) \
	    HEADWATER_JAVA_CLIENT_JARS=$$(scripts/fetch_java_client.sh) \
	    HEADWATER_YARN_JARS=$$(scripts/fetch_yarn.sh) \
	    $(PYTEST) -q tests -m "compat or kafka"
	@for version in 14 15 16 17 18; do echo "PostgreSQL $$version"; \
	    HEADWATER_POSTGRES=$$(scripts/fetch_postgres.sh $$version) \
	        $(PYTEST) -q tests/connectors/postgres || exit 1; done
	@for server in mysql-8.0 mariadb-11.8; do echo "$$server"; \
	    HEADWATER_BUDGET=long HEADWATER_MYSQL=$$server $(PYTEST) -q tests/connectors/mysql || exit 1; done
	HEADWATER_BUDGET=long $$(scripts/fetch_newest_pyspark.sh) -m pytest -q tests/pipelines/spark_source tests/sinks/spark

lowest: venv ## the core's tests with the lowest versions that pyproject.toml allows
	$$(scripts/lowest.sh) -m pytest -q -n $(or $(PROCESSES),2) -m "not crash and not compat and not kafka" \
	    tests/config tests/core_log tests/connectors/files tests/connectors/generator tests/pipelines/transforms \
	    tests/sinks/sql tests/pipelines/file/test_loader.py tests/pipelines/file/test_mistakes.py tests/pipelines/test_cli.py

constraints: venv ## write constraints.txt again, from what is installed
	@(sed '/^[^#]/,$$d' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable) >.venv/constraints.txt
	@mv .venv/constraints.txt constraints.txt

bench: venv ## all benchmarks, beside the rivals, into benchmarks/results
	$(BIN)/python -m benchmarks.log
	@scripts/databases.sh
	$(BIN)/python -m benchmarks.pipelines
	$(BIN)/python -m benchmarks.postgres
	$(BIN)/python -m benchmarks.mysql
	$(BIN)/python -m benchmarks.reread
	$(BIN)/python -m benchmarks.lake
	$(BIN)/python -m benchmarks.row_path
	$(BIN)/python -m benchmarks.peers

release: venv ## wheel and source distribution of the version in pyproject.toml, tried, in dist/
	@scripts/release.sh

web: ## copy the console's libraries again, by the versions in scripts/web/package-lock.json
	cd scripts/web && npm ci --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m scripts.vendor_web

docs: venv ## write the generated pages again
	$(BIN)/python -m scripts.write_docs
