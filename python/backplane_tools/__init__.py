"""Backplane's tools: the command ``torch-backplane`` and what implements it, for authors of a backend.

They import the runtime, :mod:`torch_backplane`, and never the other way. Importing this loads no torch.
"""
