"""``python -m torch_backplane.cli``: the command torch-backplane, where its scripts are not on the path."""

from torch_backplane.cli import main

if __name__ == "__main__":
    main(prog_name="torch-backplane")
