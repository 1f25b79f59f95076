"""``python -m backplane_tools``: the command torch-backplane, where its scripts are not on the path."""

from backplane_tools.cli import main

if __name__ == "__main__":
    main(prog_name="torch-backplane")
