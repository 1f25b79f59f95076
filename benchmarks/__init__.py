"""Measures a PrivateUse1 device against the CPU in one process and prints ratios: ``python -m benchmarks --help``."""
