"""Cache policies: one rule per policy, its fast form in torch, and the bit-exact form it names."""
