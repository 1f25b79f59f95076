"""``python -m backplane_sdk --cmake-dir``: prints a path of the SDK, for build scripts."""

import argparse

import backplane_sdk


def main() -> None:
    """Print the path or the version that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m backplane_sdk", description="Print where the Backplane SDK is.")
    group = parser.add_mutually_exclusive_group(required=True)
    for name in ("cmake", "include", "source", "template"):
        function = getattr(backplane_sdk, f"{name}_dir")
        group.add_argument(f"--{name}-dir", dest="answer", action="store_const", const=function, help=function.__doc__)
    group.add_argument(
        "--version", dest="answer", action="store_const", const=lambda: backplane_sdk.__version__, help="The version."
    )
    print(parser.parse_args().answer())


if __name__ == "__main__":
    main()
