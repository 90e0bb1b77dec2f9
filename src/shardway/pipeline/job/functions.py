"""Find the functions that a job file names, and the files that executors need for them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.errors import OptionError
from shardway.extras import brings, is_installed
from shardway.pipeline.job.file.faults import Fault, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job


class NoSparkError(OptionError):
    """A module of the user's imports PySpark, which is not installed here: nothing is known of its functions."""


def load_function(name: str, folder: Path) -> Callable[..., Any]:
    """Import and return a function. ``folder`` is searched first. Raises OptionError that says what is missing, and
    NoSparkError where that is only PySpark itself.
    """
    module_name, _, function_name = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[: len(error.name.split("."))] == error.name.split("."):
            raise OptionError(
                f"there is no module {module_name} in the folder of the job file or where Python looks (sys.path)"
            ) from None
        without_spark = brings("spark", error.name) and not is_installed("pyspark")
        kind = NoSparkError if without_spark else OptionError
        raise kind(f"module {module_name} cannot be imported: there is no module {error.name}") from None
    except Exception as error:
        raise OptionError(f"module {module_name} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise OptionError(f"module {module_name} has no function {function_name}{nearest(function_name, names)}")
    return function  # type: ignore[no-any-return]


def unchecked_functions(job: Job, folder: Path) -> list[Fault]:
    """Return a note for each function whose module imports PySpark where PySpark is not installed."""
    notes = []
    for path, name in _functions_of(job):
        try:
            load_function(name, folder)
        except NoSparkError as error:
            notes.append(Fault(path, f"{name} was not looked at: {error}"))
    return notes


def _functions_of(job: Job) -> Iterator[tuple[KeyPath, str]]:
    if job.transform is not None and job.transform.function is not None:
        yield ("transform", "function"), job.transform.function
    for number, sink in enumerate(job.sinks):
        if sink.function is not None:
            yield ("sinks", number, "function"), sink.function


def file_to_send(name: str, folder: Path) -> Path | None:
    """Return the file of the function's module when it lies beside the job file, as executors do not have it; else
    None.
    """
    module = sys.modules.get(name.partition(":")[0].partition(".")[0])
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    path = Path(file)
    return path if path.parent == folder else None
