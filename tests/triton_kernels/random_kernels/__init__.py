"""Random kernels, on the device and by Triton's interpreter: ``python -m random_kernels --programs 100 --seed 1``."""
