"""MEADOW's control: instructions, the weight path, the activation memory."""
