"""Split exchange in PyTorch: where new weights are waited for, and an optimizer's state that ranks share out."""
