# The processor reads and writes the registers, and takes the interrupt.
create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e processor
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e \
    -config {apply_board_preset "1"} [get_bd_cells processor]
set_property -dict {
    CONFIG.PSU__FPGA_PL0_ENABLE 1
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {clock_mhz}
    CONFIG.PSU__USE__IRQ0 1
    CONFIG.PSU__USE__M_AXI_GP0 1
    CONFIG.PSU__USE__M_AXI_GP1 0
    CONFIG.PSU__USE__M_AXI_GP2 0
    CONFIG.PSU__MAXIGP0__DATA_WIDTH 32
} [get_bd_cells processor]
set clock processor/pl_clk0
set platform_users {processor/maxihpm0_fpd_aclk registers/aclk}
connect processor/pl_resetn0 reset/ext_reset_in
connect accelerator/interrupt_request processor/pl_ps_irq0
add_interconnect registers 1 1 1
connect reset/peripheral_aresetn registers/aresetn
join_interfaces processor/M_AXI_HPM0_FPD registers/S00_AXI
join_interfaces registers/M00_AXI accelerator/s_axi
assign_bd_address -offset {register_offset} -range {register_bytes} \
    -target_address_space [get_bd_addr_spaces processor/Data] \
    [get_bd_addr_segs accelerator/s_axi/reg0]

# Each group of masters has a high-performance port of 128 bits: S_AXI_GP2 is S_AXI_HP0_FPD, and so
# on. Of its memory, the masters can access the first {memory_bytes} bytes of DDR4.
set group 0
foreach masters $groups {
    set slave [expr {$group + 2}]
    set_property -dict [list CONFIG.PSU__USE__S_AXI_GP$slave 1 \
        CONFIG.PSU__SAXIGP${slave}__DATA_WIDTH 128] [get_bd_cells processor]
    join_interfaces masters_$group/M00_AXI processor/S_AXI_HP${group}_FPD
    lappend platform_users processor/saxihp${group}_fpd_aclk
    foreach master $masters {
        set space [get_bd_addr_spaces accelerator/[lindex $master 0]]
        foreach segment [get_bd_addr_segs processor/SAXIGP$slave/*] {
            if {[string match */HP${group}_DDR_LOW $segment]} {
                assign_bd_address -offset 0 -range {memory_bytes} -target_address_space $space $segment
            } else {
                exclude_bd_addr_seg -target_address_space $space $segment
            }
        }
    }
    incr group
}
