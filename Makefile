# Every verb is one call into Python; `make` alone lists them. Variables become options:
# `make sim TOP=x PRESET=y` is `python -m systola sim --top x --preset y`.

PYTHON ?= python3
verbs := $(or $(MAKECMDGOALS),help)
given := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(v)))),$(v)))
quoted = '$(subst ','\'',$(1))'
options = $(foreach v,$(filter-out PYTHON MAKEFLAGS,$(given)),--$(shell echo $(v) | tr A-Z_ a-z-) $(call quoted,$(value $(v))))

.PHONY: $(verbs)
.DEFAULT_GOAL := help

# By `exec` a signal to make reaches Python, which ends what it started.
$(verbs):
	@$(PYTHON) systola/environment.py
	@exec .venv/bin/python -m systola $(call quoted,$@) $(options)
