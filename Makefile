# `make help` lists what there is. Everything happens in .venv, which the first target that needs it makes.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST_ARGS ?=
# Three on two cores took as long, and more memory.
PROCESSES ?= 2
# `make test` leaves out what takes long and is shown in short by another test; `make test-all` runs it too.
SHARED := not processes and not official and not exhaustive$(if $(THOROUGH),, and not thorough)
# At night, with NIGHTLY=1, more cases of what other tests show, and dbt's own tests in more catalogs.
MORE := $(if $(NIGHTLY),(official or processes or exhaustive),(official or processes) and not exhaustive)

.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ For everybody

demo: $(READY) ## Load TPC-H in 20 dbt runs and show what clustering does to the table
	@cd integration_tests && $(CURDIR)/$(RUN)/python loads.py
	@echo
	@echo "Next, every load and recluster of the table; docs/start.md, part 4, goes on from there:"
	@echo "    cd integration_tests && ../$(RUN)/dbt run-operation clustering_history --args '{table: lineitem}'"

test: lint spark ## Lint, types and the short tests, in two processes
	@cat build/tests.txt

test-all: ## Lint, types, documentation and all tests
	@$(MAKE) --no-print-directory -j2 lint docs closed-network
	@$(MAKE) --no-print-directory THOROUGH=1 spark more versions
	@cat build/tests.txt

##@ For contributors

install: $(READY) ## Make .venv and install everything into it

lint: $(READY) ## ruff and mypy
	@echo "== lint"
	@$(RUN)/ruff check -q .
	@$(RUN)/ruff format -q --check .
	@$(RUN)/mypy --no-error-summary

docs: $(READY) ## Build the documentation into build/docs; a broken link is an error
	@echo "== documentation"
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }

unit: $(READY) ## Tests that need no Spark
	@$(RUN)/pytest tests/unit -m "$(SHARED)" -n $(PROCESSES) --dist worksteal $(PYTEST_ARGS)

# Files in their order: those whose tests take long come first, and the short ones of tests/unit fill the end.
spark: $(READY) ## Tests without Spark, and those that can share one; THOROUGH=1: those that take long, too
	@echo "== tests in $(PROCESSES) processes"
	@mkdir -p build && rm -f build/tests.txt
	@TEST_SUMMARY=build/tests.txt TEST_NAME="sharing a Spark" $(RUN)/pytest tests -m "$(SHARED)" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

more: $(READY) ## All other tests: dbt's own, what starts processes or kills them; NIGHTLY=1: more cases and catalogs
	@echo "== all other tests in $(PROCESSES) processes"
	@mkdir -p build
	@$(RUN)/python tests/support/postgres.py
	@TEST_SUMMARY=build/tests.txt TEST_NAME="all others" $(RUN)/pytest tests -m "$(MORE) and not network" -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

closed-network: $(READY) ## Install as README says for networks that reach PyPI only, into an empty environment
	@echo "== installing from PyPI alone"
	@$(RUN)/pytest tests/package -m network $(PYTEST_ARGS)

versions: $(READY) ## The core of the tests on every other Spark, Iceberg and dbt, with jars by Maven
	@echo "== other versions of Spark, Iceberg and dbt, in $(PROCESSES) processes"
	@PROCESSES=$(PROCESSES) $(RUN)/python tests/support/versions.py $(PYTEST_ARGS)

coverage: $(READY) ## The tests of `make spark`, with the lines of the package that they run
	@$(RUN)/pytest tests -m "not processes and not official and not exhaustive" -n $(PROCESSES) --dist loadfile --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

project: $(READY) ## Run the integration project: 10 loads, every model and every data test
	@cd integration_tests && $(CURDIR)/$(RUN)/python loads.py --build --loads 10 --scale 0.01 --block-rows 2000 --lakehouse lakehouse-test

writers: $(READY) ## Ten minutes beside a busy writer, over a catalog in PostgreSQL (installs it where it can)
	@$(RUN)/python benchmarks/other_writers.py --json benchmarks/results/other_writers.json

cluster: $(READY) ## On a cluster of two workers, one of which is lost in the middle
	@$(RUN)/python benchmarks/cluster.py --json benchmarks/results/cluster.json

memory: $(READY) ## A block set of four times the heap
	@$(RUN)/python benchmarks/larger_than_memory.py --json benchmarks/results/larger_than_memory.json

bench: ## List the benchmarks, each with its first line
	@cd benchmarks && awk 'FNR == 1 && /^"""/ {sub(/^"""/, ""); sub(/"""$$/, ""); printf "  %-24s %s\n", FILENAME, $$0}' *.py

scoreboard: $(READY) ## Who selects blocks how, and the rows rewritten at equal blocks opened
	@$(RUN)/python benchmarks/frontier.py --seeds 7 --scoreboard 7
	@$(RUN)/python benchmarks/reads.py --seeds 5 6 7
	@$(RUN)/python benchmarks/curves.py events

merge: $(READY) ## The merge beside Iceberg's own rewrites of the same files
	@$(RUN)/python benchmarks/merge.py

clean: ## Remove what the targets made
	@rm -rf $(VENV) build dist integration_tests/lakehouse* integration_tests/data integration_tests/target integration_tests/logs

$(READY): pyproject.toml constraints.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 14) else f"Python 3.11 to 3.14 is needed, and $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	@echo "installing into $(VENV) (Spark comes along: 300 MB)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN)/pip install --quiet --disable-pip-version-check --use-pep517 -r requirements-dev.txt
	@touch $@

.PHONY: help demo test test-all install lint docs unit spark more closed-network versions coverage project writers cluster memory bench scoreboard merge clean
