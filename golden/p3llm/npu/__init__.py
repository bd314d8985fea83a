"""Models of the NPU's parts."""
