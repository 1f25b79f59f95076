"""``python -m {{ cookiecutter.package_name }}``: a short account of device, driver, torch and build."""

from torch_backplane.account import main

if __name__ == "__main__":
    raise SystemExit(main(__package__))
