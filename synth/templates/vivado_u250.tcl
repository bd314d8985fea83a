# Pins of the card, with the names of its board files.
create_bd_intf_port -mode Master -vlnv xilinx.com:interface:pcie_7x_mgt_rtl:1.0 pci_express_x16
create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 pcie_refclk
create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 default_300mhz_clk0
create_bd_intf_port -mode Master -vlnv xilinx.com:interface:ddr4_rtl:1.0 ddr4_sdram_c0
create_bd_port -dir I -type rst pcie_perstn
set_property CONFIG.POLARITY ACTIVE_LOW [get_bd_ports pcie_perstn]
set_property CONFIG.FREQ_HZ 100000000 [get_bd_intf_ports pcie_refclk]
set_property CONFIG.FREQ_HZ 300000000 [get_bd_intf_ports default_300mhz_clk0]

# The host reads and writes registers by a BAR, and memory by DMA.
create_bd_cell -type ip -vlnv xilinx.com:ip:util_ds_buf pcie_clock
set_property -dict {
    CONFIG.C_BUF_TYPE IBUFDSGTE
    CONFIG.DIFF_CLK_IN_BOARD_INTERFACE pcie_refclk
    CONFIG.USE_BOARD_FLOW true
} [get_bd_cells pcie_clock]
create_bd_cell -type ip -vlnv xilinx.com:ip:xdma host
set_property -dict {
    CONFIG.PCIE_BOARD_INTERFACE pci_express_x16
    CONFIG.SYS_RST_N_BOARD_INTERFACE pcie_perstn
    CONFIG.xdma_axi_intf_mm AXI_Memory_Mapped
    CONFIG.axilite_master_en true
    CONFIG.axilite_master_size 64
    CONFIG.axilite_master_scale Kilobytes
    CONFIG.pciebar2axibar_axil_master 0x00000000
    CONFIG.xdma_num_usr_irq 1
} [get_bd_cells host]
connect_bd_intf_net [get_bd_intf_ports pcie_refclk] [get_bd_intf_pins pcie_clock/CLK_IN_D]
connect_bd_intf_net [get_bd_intf_ports pci_express_x16] [get_bd_intf_pins host/pcie_mgt]
connect pcie_clock/IBUF_DS_ODIV2 host/sys_clk
connect pcie_clock/IBUF_OUT host/sys_clk_gt

# The first of the card's four DDR4 memories, 16 GB.
create_bd_cell -type ip -vlnv xilinx.com:ip:ddr4 memory
set_property -dict {
    CONFIG.C0_CLOCK_BOARD_INTERFACE default_300mhz_clk0
    CONFIG.C0_DDR4_BOARD_INTERFACE ddr4_sdram_c0
    CONFIG.C0.DDR4_AUTO_AP_COL_A3 true
    CONFIG.C0.DDR4_AxiAddressWidth 34
    CONFIG.C0.DDR4_AxiDataWidth 512
    CONFIG.C0.DDR4_Mem_Add_Map ROW_COLUMN_BANK_INTLV
} [get_bd_cells memory]
create_bd_cell -type ip -vlnv xilinx.com:ip:util_vector_logic memory_reset
set_property -dict {CONFIG.C_OPERATION not CONFIG.C_SIZE 1} [get_bd_cells memory_reset]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset memory_port_reset
connect_bd_intf_net [get_bd_intf_ports default_300mhz_clk0] [get_bd_intf_pins memory/C0_SYS_CLK]
connect_bd_intf_net [get_bd_intf_ports ddr4_sdram_c0] [get_bd_intf_pins memory/C0_DDR4]
connect_bd_net [get_bd_ports pcie_perstn] [get_bd_pins host/sys_rst_n] \
    [get_bd_pins memory_reset/Op1]
connect memory_reset/Res memory/sys_rst
connect memory/c0_ddr4_ui_clk_sync_rst memory_port_reset/ext_reset_in
connect memory_port_reset/peripheral_aresetn memory/c0_ddr4_aresetn

# The accelerator's clock. Its reset ends when the host's link and this clock are ready.
create_bd_cell -type ip -vlnv xilinx.com:ip:clk_wiz clock
set_property -dict {
    CONFIG.PRIM_SOURCE No_buffer
    CONFIG.CLKOUT1_REQUESTED_OUT_FREQ {clock_mhz}
    CONFIG.USE_RESET false
} [get_bd_cells clock]
connect host/axi_aresetn reset/ext_reset_in
connect clock/locked reset/dcm_locked
set clock clock/clk_out1
set platform_users {registers/aclk1 all_masters/aclk interrupt/src_clk}

# The interrupt remains high until the host clears it in the registers.
create_bd_cell -type ip -vlnv xilinx.com:ip:xpm_cdc_gen interrupt
set_property -dict {CONFIG.CDC_TYPE xpm_cdc_single CONFIG.WIDTH 1} [get_bd_cells interrupt]
connect accelerator/interrupt_request interrupt/src_in
connect interrupt/dest_out host/usr_irq_req

add_interconnect registers 1 1 2
connect reset/peripheral_aresetn registers/aresetn
join_interfaces host/M_AXI_LITE registers/S00_AXI
join_interfaces registers/M00_AXI accelerator/s_axi
assign_bd_address -offset {register_offset} -range {register_bytes} \
    -target_address_space [get_bd_addr_spaces host/M_AXI_LITE] \
    [get_bd_addr_segs accelerator/s_axi/reg0]

# The host and all groups of masters share the memory.
add_interconnect all_masters [expr {[llength $groups] + 1}] 1 3
connect reset/peripheral_aresetn all_masters/aresetn
join_interfaces host/M_AXI all_masters/S00_AXI
join_interfaces all_masters/M00_AXI memory/C0_DDR4_S_AXI
set segment [get_bd_addr_segs memory/C0_DDR4_MEMORY_MAP/C0_DDR4_ADDRESS_BLOCK]
assign_bd_address -offset 0 -range {memory_bytes} \
    -target_address_space [get_bd_addr_spaces host/M_AXI] $segment
set group 0
foreach masters $groups {
    join_interfaces masters_$group/M00_AXI all_masters/[format S%02d_AXI [expr {$group + 1}]]
    foreach master $masters {
        assign_bd_address -offset 0 -range {memory_bytes} \
            -target_address_space [get_bd_addr_spaces accelerator/[lindex $master 0]] $segment
    }
    incr group
}
connect host/axi_aclk clock/clk_in1 registers/aclk all_masters/aclk1 interrupt/dest_clk
connect memory/c0_ddr4_ui_clk memory_port_reset/slowest_sync_clk all_masters/aclk2

add_files -fileset constrs_1 -norecurse [file join $here u250.xdc]
