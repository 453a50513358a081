# `make help` says what there is. GNU make 3.81 is enough.
#
# Every word after a target (spec.gamma=6 prompts=factual) is an override. They are never used in this file: the
# commands read them from MAKEFLAGS in the environment (command_line/makeflags.py), so that no value passes through
# make's expansion or a shell. For the same reason they are not exported one by one.
$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(eval unexport $(name))))

# With the first Python would not find what benchmarks share, with the second transformers not its own docstrings.
unexport PYTHONSAFEPATH
unexport PYTHONOPTIMIZE

override SHELL = /bin/sh
override READY := .venv/ready
override RUN := .venv/bin/python
override CHECKED = src pipelines $(wildcard benchmarks)
# Bytecode is kept whatever the user's shell says: the tests start dozens of processes, and pytest rewrites assertions.
override TEST_ENVIRONMENT = OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=
override COMMANDS = study prefill decode speculate routing analyze figures doctor runs compare reproduce distill bench

# The names, never the values, of what the user set on the command line.
override GIVEN := $(filter-out PYTHON GIVEN,$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
override NO_OVERRIDES = $(if $(GIVEN),@echo 'error: make $(or $(filter test,$(MAKECMDGOALS)),$@) takes no overrides; leave out what follows it' >&2; exit 2)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup sweep routing-sim show claims checks test test-long lint $(COMMANDS)

##make study spec.gamma=6 prompts=factual  every stage, tables, figures, report
##make prefill prefill.threshold=5         attention over the prompts, sinks
##make decode decode.temperature=0         the verifier's answers, token by token
##make speculate 'spec.gamma=[2,4,8]'      speculative decoding, and its speed
##make routing models=smollm2-moe          the study of a mixture of experts, and its routing
##make routing-sim n_experts=64 skew=0.5   what verifying costs in a layer nobody has trained
##make analyze analysis.confidence=0.9     correlations, claims, figures, report
##make sweep spec.gamma=2,4,6              the study at each value, one joint report
##make figures                             a run's figures and page again, from its tables
##make runs                                the runs there are, and how they differ
##make show id=factual-01                  one prompt in the terminal
##make show claims                         every claim with its verdict; make show checks: the self-checks
##make compare a=RUN b=RUN                 two runs side by side
##make reproduce run=RUN                  a run once more, and whether it is equal
##make doctor models=qwen2.5               device, model files, tokenizers, memory
##make distill                             train the shipped draft anew
##make bench                               the benchmarks
##make setup PYTHON=python3.12             set up .venv; all others do at first need
##make test                                lint, then the tests
##make test-long                           the tests that take long
##make lint                                ruff and mypy
##make help                                this list

help:
	$(NO_OVERRIDES)
	@echo 'specstudy: does prefill attention predict decode entropy, and that speculative acceptance?'
	@echo
	@sed -n 's/^##/  /p' Makefile
	@echo
	@echo 'A first try, in a minute: make study experiment=smoke'
	@echo 'Any setting can follow a target; `.venv/bin/python pipelines/study.py --help` lists all.'

setup: $(READY)
	$(NO_OVERRIDES)

$(READY): pyproject.toml constraints.txt pipelines/setup.py
	@PYTHON='$(PYTHON)'; \
	for python in $${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    exec "$$python" pipelines/setup.py; \
	  fi; \
	done; \
	echo "error: $${PYTHON:-python3} is not Python 3.11 or newer; name one: make setup PYTHON=python3.11" >&2; exit 2

$(COMMANDS): $(READY)
	@$(RUN) pipelines/$@.py --from-make

# `make show claims` has two goals: the second says what is shown, and the first has nothing left to do.
show: $(READY)
	@$(if $(filter claims checks,$(MAKECMDGOALS)),:,$(RUN) pipelines/show.py --from-make)

claims checks: $(READY)
	@$(RUN) pipelines/show.py --from-make $@

sweep: $(READY)
	@$(RUN) pipelines/study.py --from-make --multirun

routing-sim: $(READY)
	@$(RUN) pipelines/routing_sim.py --from-make

lint: $(READY)
	$(NO_OVERRIDES)
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy $(CHECKED)

test: lint
	$(NO_OVERRIDES)
	@$(TEST_ENVIRONMENT) $(RUN) -m pytest -m 'not long' -n 2 --dist worksteal

test-long: $(READY)
	$(NO_OVERRIDES)
	@$(TEST_ENVIRONMENT) $(RUN) -m pytest -m long --timeout 3600
