# One clock; what the neighbours take of its period; a reset that is not timed.
# Times are in {time_unit}.
set period {period}
set external [expr {{external} * $period}]

create_clock -name clk -period $period {clock_port}

set data_inputs [list]
foreach port [all_inputs] {
    if {[lsearch -exact {clk rst} [get_property $port full_name]] < 0} {
        lappend data_inputs $port
    }
}
if {[llength $data_inputs] > 0} {
    set_input_delay $external -clock clk $data_inputs
}
set_output_delay $external -clock clk [all_outputs]
set_load {load} [all_outputs]
if {{has_reset}} {
    set_false_path -from [get_ports rst]
}
