"""The command ``torch-backplane``. A part is loaded when it is called: ``new`` and ``check-driver`` need no torch."""

from __future__ import annotations

import importlib

import click

from backplane_sdk import __version__

# command -> (module:attribute, one line for --help)
COMMANDS = {
    "new": ("backplane_tools.cli.new:new", "Write a new backend project."),
    "check-driver": ("backplane_tools.cli.check_driver:check_driver", "Check a driver against the contract."),
    "coverage": ("backplane_tools.cli.coverage:coverage", "List what a model runs, and what to implement next."),
    "conformance": ("backplane_tools.cli.conformance:conformance", "Compare a device with the CPU, case by case."),
    "lint-ops": ("backplane_tools.cli.lint_ops:lint_ops", "Find registrations that go wrong silently."),
    "lint-kernels": ("backplane_tools.cli.lint_kernels:lint_kernels", "Find what a compiler of kernels would refuse."),
    "explain": ("backplane_tools.cli.explain:explain", "Show an operator's way through the dispatcher."),
    "trace": ("backplane_tools.cli.trace:trace", "Show what the device did while a program ran, and when."),
    "precompile": ("backplane_tools.cli.precompile:precompile", "Compile kernels for the package, without a device."),
    "cache": ("backplane_tools.cli.cache:cache", "Show or clear the cache of compiled kernels."),
    "port": ("backplane_tools.cli.port:port", "Find where a program names CUDA, and what to write instead."),
    "drift": (
        "backplane_tools.cli.drift:drift",
        "Compare the private names of torch that the SDK uses with a torch.",
    ),
    "doctor": ("backplane_tools.cli.doctor:doctor", "Explain a setup that does not work."),
}


class LazyGroup(click.Group):
    """Imports a command's module when that command runs, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of a vendor's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None for an unknown one."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torch-backplane")
def main() -> None:
    """Backplane brings a chip to PyTorch."""
