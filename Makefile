# `make help` says what there is. GNU make 3.81 is enough.
#
# Every word after a target (spec.gamma=6 prompts=factual) is an override. They are never used in this file: the
# commands read them from MAKEFLAGS in the environment (pipelines/makeflags.py), so that no value passes through
# make's expansion or a shell. For the same reason they are not exported one by one.
$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(eval unexport $(name))))

SHELL = /bin/sh
READY = .venv/ready
RUN = .venv/bin/python
CHECKED = src pipelines $(wildcard benchmarks)
TEST_ENVIRONMENT = OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
COMMANDS = study prefill decode speculate analyze figures doctor runs show compare distill bench

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup sweep test test-long lint $(COMMANDS)

##study       the whole study: every stage, tables, figures, report | make study spec.gamma=6 prompts=factual
##prefill     attention over the prompts, sinks, context health     | make prefill prefill.threshold=5
##decode      the verifier's own answers, token by token            | make decode decode.temperature=0
##speculate   speculative decoding against the verifier alone       | make speculate 'spec.gamma=[2,4,8]'
##analyze     correlations, claims, figures and report              | make analyze analysis.confidence=0.9
##sweep       the study at every combination, one joint report      | make sweep spec.gamma=2,4,6 prompts=code,math
##figures     draw a run's figures again from its tables            | make figures
##runs        the runs in outputs/ and how each differs             | make runs
##show        one prompt in the terminal                            | make show id=factual-01
##compare     two runs side by side                                 | make compare a=RUN b=RUN
##doctor      device, models, tokenizers, memory                    | make doctor models=qwen2.5
##distill     train the shipped draft anew                          | make distill
##bench       the benchmarks                                        | make bench
##setup       set up .venv (every command does so at first need)    | make setup PYTHON=python3.12
##test        lint and the tests                                    | make test
##test-long   the tests that take long                              | make test-long
##lint        ruff and mypy                                         | make lint
##help        this                                                  | make help

help:
	@echo 'specstudy: does prefill attention predict decode entropy, and that speculative acceptance?'
	@echo
	@sed -n 's/^##/  /p' Makefile
	@echo
	@echo 'Any override of conf/ can follow a target; `.venv/bin/python pipelines/study.py --help` lists them.'
	@echo 'A quick try of everything: make study experiment=smoke'

setup: $(READY)

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

sweep: $(READY)
	@$(RUN) pipelines/study.py --from-make --multirun

lint: $(READY)
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy $(CHECKED)

test: lint
	@$(TEST_ENVIRONMENT) $(RUN) -m pytest -m 'not long' -n 2

test-long: $(READY)
	@$(TEST_ENVIRONMENT) $(RUN) -m pytest -m long --timeout 3600
