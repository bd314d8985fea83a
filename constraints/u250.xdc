# The reference clock of PCI Express; the block design's other clocks are derived or constrained by
# their cores.
create_clock -name pcie_refclk -period 10 [get_ports pcie_refclk_clk_p*]
