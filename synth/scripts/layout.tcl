# Setup and hold of a layout: the slack of the worst path of each kind.
foreach file {{libraries}} { read_liberty $file }
set_cmd_units -time ps -capacitance fF
read_verilog {netlist}
link_design {top}
source {sdc}
{parasitics}

set registers [all_registers -clock_pins]
set register_inputs [all_registers -data_pins]
set ends [dict create \
    register_to_register [list $registers $register_inputs] \
    input_to_register [list $data_inputs $register_inputs] \
    register_to_output [list $registers [all_outputs]] \
    input_to_output [list $data_inputs [all_outputs]]]
foreach kind [dict keys $ends] {
    lassign [dict get $ends $kind] from to
    foreach {check delay} {setup max hold min} {
        puts "@@ $check $kind"
        if {[llength $from] > 0 && [llength $to] > 0} {
            report_checks -path_delay $delay -from $from -to $to -digits 3 -no_line_splits
        }
    }
}
puts "@@ end"
