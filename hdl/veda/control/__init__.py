"""VEDA's control: scheduler, layer sequencer, operand feeder and routes of results."""
