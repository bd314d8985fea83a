"""What a board needs around an accelerator: AXI4 masters, registers, clock-domain crossing."""
