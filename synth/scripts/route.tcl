# Routing of a placed design by qrouter, without a window.
set no_graphics_mode true
source {library}/qrouter.tcl
verbose 1
read_lef {lef}
via stack 1
vdd {power}
gnd {ground}
read_def placed.def
qrouter::standard_route routed.def false {no_cleanup}
quit
