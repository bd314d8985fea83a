
# Memory macros: these folders must contain <macro>.lef and <macro>.lib for each of them.
MACRO_LEF_DIR ?= $(PLATFORM_DIR)/lef
MACRO_LIB_DIR ?= $(PLATFORM_DIR)/lib
memory_macros := {macros}
export ADDITIONAL_LEFS = $(memory_macros:%=$(MACRO_LEF_DIR)/%.lef)
export ADDITIONAL_LIBS = $(memory_macros:%=$(MACRO_LIB_DIR)/%.lib)
