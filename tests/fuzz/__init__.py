"""Random programs on the device and on the CPU, compared: ``make fuzz``, or ``python -m fuzz`` in the folder ``tests``.

A program is plain data: steps, each a call of a function on named tensors (``values``, ``helpers``). ``grammar`` draws
it from the families of steps (``families``, and the modules that it names). ``reference`` runs it on the CPU, and
decides what may be compared and which stream must wait for which; ``device`` runs it on the device. ``shrink`` drops
steps while it goes on failing, and ``script`` writes what is left as a Python file. ``batch`` runs many in forked
children (``child``), ``__main__`` on all kinds of device (``kinds``). ``compiled`` has random functions under
torch.compile instead.
"""
