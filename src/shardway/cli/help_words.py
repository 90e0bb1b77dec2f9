"""The words for values in the help of all commands: the help names what a user writes (``FILE``, ``STREAM``), and never
the type that Python has for it.

typer writes the type of a parameter into its help, as ``<list[str]>``, also of a flag, which takes no value, and also
beside an argument that has a name already.
"""

from __future__ import annotations

from typing import Any


def name_values(command: Any) -> None:
    """Give the parameters of a command, and of all commands below it, words in place of the types of their values.

    A choice keeps the list of what may be chosen.
    """
    context = command.context_class(command, info_name=command.name)
    for one in command.get_params(context):
        if one.param_type_name == "argument":
            if not _is_choice(one):
                one.display_type_rich = _no_type
        elif one.is_flag:
            one.metavar = ""
        elif one.metavar is None and not _is_choice(one):
            one.metavar = one.name.upper()
    for below in getattr(command, "commands", {}).values():
        name_values(below)


def _is_choice(parameter: Any) -> bool:
    described = getattr(parameter, "type_descriptor", None)
    return bool(described is not None and described.is_choice)


def _no_type(ctx: Any) -> str:  # noqa: ARG001 - it stands for a method of typer, which calls it by this name
    return ""
