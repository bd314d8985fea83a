# Timing of a mapped netlist: the longest path of each kind, then power.
foreach file {{libraries}} { read_liberty $file }
set_cmd_units -time ps -capacitance fF
read_verilog {netlist}
link_design {top}
source {sdc}
{wires}

set registers [all_registers -clock_pins]
set register_inputs [all_registers -data_pins]
set ends [dict create \
    register_to_register [list $registers $register_inputs] \
    input_to_register [list $data_inputs $register_inputs] \
    register_to_output [list $registers [all_outputs]] \
    input_to_output [list $data_inputs [all_outputs]]]
foreach kind {{kinds}} {
    lassign [dict get $ends $kind] from to
    puts "@@ $kind"
    if {[llength $from] > 0 && [llength $to] > 0} {
        report_checks -from $from -to $to -digits 3 -no_line_splits
    }
}

# The commands under set_power_activity; its own -pins calls a missing procedure in version 2.0.17.
proc pin_activity {name transitions ones} {
    foreach pin [get_pins $name] { sta::set_power_pin_activity $pin $transitions $ones }
}
proc port_activity {name transitions ones} {
    foreach port [get_ports $name] { sta::set_power_input_port_activity $port $transitions $ones }
}
# Cells of constants: the name of one, its pin, what that gives, and so on.
proc constant_cells {ties} {
    foreach cell [get_cells -hierarchical *] {
        foreach {name pin value} $ties {
            if {[get_property $cell ref_name] eq $name} {
                pin_activity [get_property $cell full_name]/$pin 0 $value
            }
        }
    }
}
{activity}
puts "@@ power"
report_power -digits 6
puts "@@ end"
