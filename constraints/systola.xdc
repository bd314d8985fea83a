# Out-of-context synthesis: one clock, registers on both sides of every port.
create_clock -name clk -period {period_ns} [get_ports clk]
set_false_path -from [get_ports rst]
