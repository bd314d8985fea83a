# Every verb is one call into Python; `make` alone lists them. Variables become options:
# `make sim TOP=x PRESET=y` is `python -m systola sim --top x --preset y`.

PYTHON ?= python3
VERBS := list sim verilog synth fpga export operators report study test lint format doctor clean help
given := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(v)))),$(v)))
options = $(foreach v,$(filter-out PYTHON MAKEFLAGS,$(given)),--$(shell echo $(v) | tr A-Z_ a-z-) '$($(v))')

.PHONY: $(VERBS)
.DEFAULT_GOAL := help

$(VERBS):
	@$(PYTHON) systola/environment.py
	@.venv/bin/python -m systola $@ $(options)
