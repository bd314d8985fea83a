# OpenROAD-flow-scripts: make DESIGN_CONFIG=<this file>
export DESIGN_NAME = {top}
export PLATFORM ?= nangate45

here := $(patsubst %/,%,$(dir $(abspath $(DESIGN_CONFIG))))
export VERILOG_FILES = {verilog}
export SDC_FILE = $(here)/{top}.sdc

export CORE_UTILIZATION ?= 55
export PLACE_DENSITY_LB_ADDON ?= 0.20
export TNS_END_PERCENT ?= 100
