"""Functions of a lane-parallel datapath: softmax, norms, activations, rotary embedding."""
