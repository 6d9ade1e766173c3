# `make help` lists what there is. Everything is installed into .venv, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := planner api targets tests examples benchmarks changelog.d docs/site setup.py
PYTEST_ARGS ?=
# The checkout whose tests qonnx-suite runs: an address or a folder, and a commit.
QONNX ?= https://github.com/fastmachinelearning/qonnx
QONNX_AT ?= cc2ec17
# A checkout of FINN (Xilinx/finn at 39f0c9a), which is no package, and a Python that its pins have wheels for.
FINN ?= .oracles/finn-source
FINN_PYTHON ?= python3.10
# Hundreds of tests start processes of their own, which compile every module anew where PYTHONDONTWRITEBYTECODE is set.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for servers, engines and children much of their time: three workers keep two cores busy. Each begins with
# a third of the files, so that most fixtures and caches of a file are made once.
WORKERS ?= 3
COMPILE := @$(BIN)/python -m compileall -q $(SOURCES)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Types are checked beside the tests, on what these leave of the cores, and told behind them.
define BESIDE_TYPES
$(info $(1))
@mkdir -p out; $(BIN)/mypy --strict > out/types.txt 2>&1 & types=$$!; \
$(1); tests=$$?; wait $$types; typed=$$?; \
echo "$(BIN)/mypy --strict"; cat out/types.txt; exit $$((tests ? tests : typed))
endef

.DEFAULT_GOAL := help
.PHONY: audit changelog docs hashes image-test sbom help setup demo serve oracles test check lint format bench qonnx-suite soak clean

help: ## say what the targets are
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.core ## plan the digits example for three targets, run the files, print a table
	$(BIN)/python examples/demo.py

setup: $(VENV)/.test ## install all that development needs into .venv

serve: $(VENV)/.service ## serve the planner over HTTP on loopback, data in out/service
	$(BIN)/qplan serve --data out/service

oracles: .oracles/hls4ml/.made .oracles/iree/.made .oracles/jax/.made .oracles/litert/.made .oracles/mlir/.made .oracles/openapi/.made .oracles/otel/.made .oracles/qnn/.made .oracles/qonnx/.made .oracles/schemathesis/.made .oracles/torch/.made .oracles/tosa/.made .oracles/vela/.made ## the tools that tests compare with, each in an environment of its own

test: format oracles ## format, lint, types, and every test but those of soak
	$(COMPILE)
	$(call BESIDE_TYPES,$(PYTEST) --junitxml out/tests.xml $(PYTEST_ARGS))

check: format ## the same without the long tests, and properties with few examples
	$(COMPILE)
	$(call BESIDE_TYPES,QPLAN_HYPOTHESIS=few $(PYTEST) -m "not long and not slow and not soak" $(PYTEST_ARGS))

format: $(VENV)/.test
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

lint: format
	$(BIN)/mypy --strict

docs: $(VENV)/.docs ## build the documentation with its search into out/docs (python -m http.server -d out/docs shows it)
	$(BIN)/python docs/site/build.py out/docs

bench: $(VENV)/.test ## compare with onnxruntime's own quantizer (needs the model folder, see benchmarks/)
	$(BIN)/python -m benchmarks.main_job

qonnx-suite: $(VENV)/.core .oracles/qonnx-suite/.made .oracles/qonnx-source ## qonnx's own tests with ours in their place, into docs/results/qonnx-suite.md
	$(BIN)/python -m benchmarks.qonnx_suite --source .oracles/qonnx-source --python .oracles/qonnx-suite/bin/python --version $(QONNX_AT) --write

soak: $(VENV)/.test oracles .oracles/atheris/.made .oracles/executorch/.made .oracles/typescript/.made ## the slow tests and those of hours, one at a time, into docs/results/soak.md
	$(COMPILE)
	$(BIN)/python -m pytest -m "slow or soak" --junitxml out/soak.xml $(PYTEST_ARGS)
	$(BIN)/python -m benchmarks.soak_page out/soak.xml docs/results/soak.md

changelog: ## move the fragments of changelog.d into CHANGELOG.md
	$(PYTHON) changelog.d/assemble.py

hashes: docker/requirements.txt ## the image's packages with their hashes, which its build then requires

audit: .oracles/audit/.made ## look the pinned packages up in PyPI's list of known vulnerabilities (needs the network)
	.oracles/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

sbom: out/sbom.json ## the same as a bill of materials (CycloneDX)

image-test: $(VENV)/.service ## build the image, bring compose.yaml up, back up, upgrade, roll back; skipped without an engine
	docker/test.sh

clean: ## remove .venv, caches and what demo and builds wrote
	rm -rf $(VENV) .oracles out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

docker/requirements.txt: pyproject.toml setup.py constraints.txt docker/hashes.py | $(VENV)/bin/python
	mkdir -p out
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report out/report.json --constraint constraints.txt '.[service,cluster]'
	$(BIN)/python docker/hashes.py < out/report.json > $@.new
	mv $@.new $@

out/sbom.json: docker/requirements.txt .oracles/sbom/.made
	mkdir -p out
	.oracles/sbom/bin/cyclonedx-py requirements $< --output-format JSON --output-file $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, %s is %s; try make PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.service: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[service,cluster]'
	@touch $@ $(VENV)/.core

$(VENV)/.test: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/.core $(VENV)/.service

$(VENV)/.docs: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@ $(VENV)/.core

.oracles/qonnx-source:
	git clone --quiet $(QONNX) $@.new
	git -C $@.new checkout --quiet $(QONNX_AT)
	mv $@.new $@

# Without what simulates Verilog: run_finn.py needs FINN's Python up to hardware layers alone.
.oracles/finn/.made: tests/oracles/finn.txt
	@test -d $(FINN)/src/finn || { echo "FINN=CHECKOUT is needed, a checkout of Xilinx/finn"; exit 1; }
	@rm -rf $(@D)
	$(FINN_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@realpath $(FINN)/src > $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/finn.pth
	@touch $@

# Node's, with npm; only soak asks for it.
.oracles/typescript/.made: tests/oracles/typescript.json
	@rm -rf $(@D) && mkdir -p $(@D) && cp $< $(@D)/package.json
	cd $(@D) && npm install --silent --no-audit --no-fund --no-package-lock
	@touch $@

# An oracle is pip's requirements, with ==; tests skip where it is missing, and CI fails where one is skipped.
.oracles/%/.made: tests/oracles/%.txt
	@rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@
