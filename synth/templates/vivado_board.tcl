# Vivado: block design {design} of {top} for the board {title}.
# vivado -mode batch -source package.tcl
# vivado -mode batch -source {board}.tcl
# With `-tclargs bitstream` Vivado also implements the design.
set here [file dirname [file normalize [info script]]]
set packages [file join $here ip]
if {![file isdirectory $packages]} {
    error "package the accelerator first: vivado -mode batch -source package.tcl"
}
set board [get_board_parts -quiet -latest_file_version {board_part}]
if {$board eq ""} {
    error "install the board files of {title}: no board is named {board_part}"
}
create_project {top}_{board} [file join $here {board}] -part {part}
set_property board_part $board [current_project]
set_property ip_repo_paths $packages [current_project]
update_ip_catalog
create_bd_design {design}

# Connect the pin `source` to all other pins.
proc connect {source args} {
    set pins [list [get_bd_pins $source]]
    foreach sink $args {
        lappend pins [get_bd_pins $sink]
    }
    connect_bd_net {*}$pins
}

# Connect two interfaces.
proc join_interfaces {first second} {
    connect_bd_intf_net [get_bd_intf_pins $first] [get_bd_intf_pins $second]
}

# Create a SmartConnect.
proc add_interconnect {name slaves masters clocks} {
    create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect $name
    set_property -dict [list CONFIG.NUM_SI $slaves CONFIG.NUM_MI $masters \
        CONFIG.NUM_CLKS $clocks] [get_bd_cells $name]
}

create_bd_cell -type ip -vlnv systola:llm:{top}:{version} accelerator
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
connect reset/peripheral_reset accelerator/rst

# The accelerator can wait for a burst of one port before it takes the data of another port. Each
# port has a FIFO for whole bursts, which requests a burst only if it has room for all its data, and
# writes one only if it has all its data. No burst then occupies the interconnect forever.
set groups {
{groups}
}
set group 0
foreach masters $groups {
    add_interconnect masters_$group [llength $masters] 1 1
    connect reset/peripheral_aresetn masters_$group/aresetn
    set number 0
    foreach master $masters {
        lassign $master name direction
        create_bd_cell -type ip -vlnv xilinx.com:ip:axi_data_fifo fifo_$name
        set_property -dict [list CONFIG.${direction}_FIFO_DEPTH 512 \
            CONFIG.${direction}_FIFO_DELAY 1] [get_bd_cells fifo_$name]
        join_interfaces accelerator/$name fifo_$name/S_AXI
        join_interfaces fifo_$name/M_AXI masters_$group/[format S%02d_AXI $number]
        connect reset/peripheral_aresetn fifo_$name/aresetn
        incr number
    }
    incr group
}

{platform}

# The accelerator's clock and its users.
set users {accelerator/clk reset/slowest_sync_clk}
set group 0
foreach masters $groups {
    lappend users masters_$group/aclk
    foreach master $masters {
        lappend users fifo_[lindex $master 0]/aclk
    }
    incr group
}
connect $clock {*}$users {*}$platform_users

validate_bd_design
save_bd_design
make_wrapper -files [get_files {design}.bd] -top -import
set_property top {design}_wrapper [current_fileset]
update_compile_order -fileset sources_1
if {[lindex $argv 0] eq "bitstream"} {
    launch_runs impl_1 -to_step write_bitstream
    wait_on_run impl_1
}
