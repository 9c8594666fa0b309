"""Speed, as ratios to PyTorch on the same threads: `python -m bench [CASE...]`."""
