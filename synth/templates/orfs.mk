# OpenROAD-flow-scripts: make -C <OpenROAD-flow-scripts>/flow DESIGN_CONFIG=<absolute path of this>
export DESIGN_NAME = {top}
export PLATFORM ?= nangate45

here := $(patsubst %/,%,$(dir $(abspath $(DESIGN_CONFIG))))
export VERILOG_FILES = {verilog}
export SDC_FILE = $(here)/{top}.sdc
# The flow would look for a number in the SDC file, where a variable is.
export ABC_CLOCK_PERIOD_IN_PS ?= {period_ps}

export CORE_UTILIZATION ?= 55
export PLACE_DENSITY_LB_ADDON ?= 0.20
export TNS_END_PERCENT ?= 100
