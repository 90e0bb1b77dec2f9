# `make` alone prints what there is.
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all test-pythons test-lowest test-newest coverage interop sim sim-fresh check pages bench lock clean run dev release-check site

RUN := scripts/run
# Twice as many processes as two cores: half of the tests' time is waiting for limits of real time.
PYTEST := $(RUN) python -m pytest -n 4 --dist loadgroup -q
# No searches of all orders, no consumers and producers on real loops, no servers, no Spark.
FAST := tests/core tests/telemetry tests/test_tidy.py tests/test_exports.py tests/test_shown.py tests/test_stored.py \
	tests/docs/test_pages.py tests/docs/test_design.py tests/scripts/test_diagrams.py
ARGS ?=
SEEDS ?= 200
FRESH_SEEDS ?= 5000
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: run ## orders through a local Kinesis and Spark into Parquet, killed halfway; then the count (about 3 minutes)
	@$(RUN) python -m examples.demo $(ARGS)

test: dev ## the tests (under 15 minutes on 2 cores); ARGS="-k name" passes on to pytest
	@$(PYTEST) -m "not slow" $(ARGS)

test-fast: dev ## what shows most mistakes in seconds, while you edit (under 60 s): core, the rules of the house, the pages
	@$(PYTEST) -m "not slow and not spark and not search" $(FAST) $(ARGS)

test-all: dev ## the tests, those that take long, and a smoke run on each PySpark from 4.0 on
	@$(PYTEST) $(ARGS)
	@$(RUN) python -m scripts.pyspark_matrix

test-pythons: dev ## the tests on each of Python 3.11 to 3.14 that is here or that uv brings; ARGS="--only 3.13"
	@$(RUN) python -m scripts.python_matrix $(ARGS)

test-lowest: dev ## the tests without Spark, with the oldest version of each package that ours allows
	@$(RUN) python -m scripts.python_matrix --packages lowest $(ARGS)

test-newest: dev ## the tests with the newest version of every package
	@$(RUN) python -m scripts.python_matrix --packages newest $(ARGS)

coverage: dev ## lines and branches of core that its tests and the simulations go through (about 4 minutes); 95 % at least
	@mkdir -p .coverage && rm -f .coverage/data*
	@$(RUN) python -m coverage run -m pytest -n 3 --dist loadgroup -q -m "not slow and not search" tests/core tests/sim
	@$(RUN) python -m coverage combine -q
	@$(RUN) python -m coverage report

interop: dev ## KCL workers beside ours, other SDKs against the local Kinesis (about 20 minutes; Maven, Java 17, Go, Node)
	@$(RUN) python -m pytest -q interop/clients interop/fleets $(ARGS)

sim-fresh: dev ## the same each time with seeds that never ran before, for each night; FRESH_SEEDS=20000 runs so many
	@$(RUN) python -m shardway.testing.sim --fresh --seeds $(FRESH_SEEDS) $(ARGS)

sim: dev ## whole consumers in virtual time, under faults; SEEDS=2000 runs so many, ARGS="--seed 21" one again
	@$(RUN) python -m shardway.testing.sim --seeds $(SEEDS) $(ARGS)

check: dev ## lint, formatting, types, import rules, exported names
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) python -m pytest -q tests/test_tidy.py tests/test_exports.py

pages: dev ## write anew what is made from the code: stubs, arguments, tables of pages, schemas, diagrams, dashboards
	@$(RUN) python -m scripts.stubs
	@$(RUN) python -m scripts.arguments
	@$(RUN) python -m scripts.reference docs/reference/producer.md
	@$(RUN) python -m scripts.reference_commands docs/reference/commands.md
	@$(RUN) python -m scripts.reference_consumer docs/reference/consumer.md
	@$(RUN) python -m scripts.reference_doctor docs/reference/symptoms.md
	@$(RUN) python -m scripts.reference_reports
	@$(RUN) python -m scripts.reference_spark docs/reference/spark-source.md docs/reference/spark-sink.md
	@$(RUN) python -m scripts.reference_telemetry docs/reference/telemetry.md
	@$(RUN) shardway run --schema > docs/reference/job.schema.json
	@$(RUN) python -m scripts.diagrams docs/DESIGN.md
	@$(RUN) python -m scripts.monitoring

bench: dev ## all benchmarks; writes docs/BENCHMARKS.md
	@$(RUN) python -m bench $(ARGS)

release-check: dev ## build the distributions, check them, and run the README's programs from them; ARGS="--no-spark"
	@$(RUN) python -m scripts.release_check $(ARGS)

site: dev ## build the site of the documentation into site/ (index.html); a broken link or any warning is an error
	@$(RUN) python -m scripts.site $(ARGS)

lock: dev ## resolve the locked requirements anew; ARGS="--upgrade" takes newer versions
	@scripts/lock $(ARGS)

clean: ## remove what the demo, the tests and the checks leave behind (not .venv)
	rm -rf site demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage spark-warehouse metastore_db derby.log
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

run dev:
	@scripts/bootstrap $@
