# One clock; what the neighbours take of its period; a reset that is not timed.
# The clock's period is {period} ps, and a load is {load} fF. A command of SDC takes numbers in the
# units of the first library, so OpenSTA, also as a part of OpenROAD, converts seconds and farads.
set period [sta::time_sta_ui [expr {{period} * 1e-12}]]
set external [expr {{external} * $period}]

create_clock -name clk -period $period {clock_port}
if {{has_double_clock}} {
    # It rises with each edge of clk.
    create_clock -name clk_double -period [expr {$period / 2}] [get_ports clk_double]
}

set data_inputs [list]
foreach port [all_inputs] {
    if {[lsearch -exact {clk clk_double rst} [get_property $port full_name]] < 0} {
        lappend data_inputs $port
    }
}
if {[llength $data_inputs] > 0} {
    set_input_delay $external -clock clk $data_inputs
}
set_output_delay $external -clock clk [all_outputs]
set_load [sta::capacitance_sta_ui [expr {{load} * 1e-15}]] [all_outputs]
if {{has_reset}} {
    set_false_path -from [get_ports rst]
}
