# Vivado without a project: synthesis out of context, with reports and a checkpoint.
# vivado -mode batch -source synth.tcl
set part [expr {[llength $argv] > 0 ? [lindex $argv 0] : "{part}"}]
set here [file dirname [file normalize [info script]]]
set out [file join $here out]
file mkdir $out

foreach name {{verilog}} {
    read_verilog [file join $here rtl $name]
}
read_xdc -mode out_of_context [file join $here {top}.xdc]
synth_design -top {top} -part $part -mode out_of_context -flatten_hierarchy rebuilt
report_utilization -hierarchical -file [file join $out utilization.txt]
report_timing_summary -file [file join $out timing.txt]
write_checkpoint -force [file join $out {top}.dcp]
