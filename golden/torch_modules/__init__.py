"""The bit-exact numpy models as modules of PyTorch; `docs/pytorch.md` describes them."""
