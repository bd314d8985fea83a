# Every verb is one call into Python; `make` alone lists them. Variables become options:
# `make sim TOP=x PRESET=y` is `python -m systola sim --top=x --preset=y`.

PYTHON ?= python3
verbs := $(or $(MAKECMDGOALS),help)
given := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(v)))),$(v)))

# `systola.make` reads all variables from one; make would expand `$` in those that it exports.
export SYSTOLA_VARIABLES = $(MAKEOVERRIDES)
# With PYTHONSAFEPATH set, Python would not find the packages of the working directory.
unexport PYTHONSAFEPATH $(filter-out MAKEFLAGS,$(given))

.PHONY: $(verbs)
.DEFAULT_GOAL := help

# By `exec` a signal to make reaches Python, which ends the programs that it started.
$(verbs):
	@$(PYTHON) systola/environment.py
	@exec .venv/bin/python -m systola.make '$(subst ','\'',$@)'
