# Comparison of the extracted netlist with the netlist of the layout by netgen.
set ::env(CAD_ROOT) "{netgen}"
set argv {}
set argc 0
# The path of netgen's library is compiled into its startup script.
set file [open "{netgen}/netgen/tcl/netgen.tcl"]
set startup [read $file]
close $file
eval [string map [list /usr/lib/netgen "{netgen}/netgen"] $startup]
# Fillers have only rails, which the extraction has followed.
set setup [open setup.tcl w]
puts $setup "ignore class {-circuit1 {filler}}\nignore class {-circuit2 {filler}}"
close $setup
lvs {extracted.spice {top}} {netlist.spice {top}} setup.tcl lvs.out -blackbox -json
quit
