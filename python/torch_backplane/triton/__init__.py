"""Triton kernels on the device: its TTIR becomes text of the kernel dialect.

``compiler`` and ``driver`` are Triton's own interfaces, which an entry point of the backend's package names;
``reader``, ``ttir`` and ``lowering`` need no Triton. Nothing here is imported before Triton asks for it, which it does
when it is imported, by Inductor too; the lowering is imported when a kernel is compiled.
"""
