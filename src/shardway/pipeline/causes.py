"""Take an error of Spark apart: the Java exceptions behind it, each with its class, its SQLSTATE and its place
in the query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator


_CAUSES_MAX = 20
_FRAGMENT_CHARS_MAX = 200
DATA_STATES = ("21", "22", "23", "38", "39", "P0")
"""The classes of SQLSTATE whose errors are about values of rows: cardinality, data, constraints, functions of the
user's, and errors that a query raises itself (``raise_error``)."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
"""The pattern of a condition as Spark writes it into a message."""
_AT_RUN_TIME = re.compile(r"org\.apache\.spark\.Spark\w+")
"""The pattern of the Java classes of errors that come while rows are computed; those of the analysis have another
package."""


class Cause(NamedTuple):
    """One Java exception behind an error."""

    java: Any
    kind: str
    """The name of its Java class."""
    said: str
    condition: str
    """Spark's error class; empty for an exception that is none of Spark's."""
    state: str

    @property
    def is_of_data(self) -> bool:
        """True where its message and its parameters may have values of rows.

        Class 42 is of the query's text where Spark analyses it; where a task raises it, it quotes the row: the input of
        ``to_number`` that does not match its format, for one.
        """
        is_of_a_run = self.state.startswith("42") and _AT_RUN_TIME.match(self.kind) is not None
        return self.state.startswith(DATA_STATES) or is_of_a_run

    @property
    def told(self) -> str:
        """What it says, with its kind where that is needed to understand it."""
        name = self.kind.rpartition(".")[2].rpartition("$")[2]
        if not self.said:
            return name
        told = self.said.lstrip().startswith("[") or name.startswith(("Spark", "Analysis", "Parse", "Python"))
        return self.said if told else f"{name}: {self.said}"


def whole_text(error: BaseException) -> str:
    """Return all that an error and the Java exceptions behind it say: for finding what it was, and not for showing."""
    return "\n".join([str(error), *(cause.told for cause in causes_of(error))])


def has_condition(error: BaseException, *names: str) -> bool:
    """True where an error, or an exception behind it, is of one of these conditions of Spark's, or of a part of one."""
    return any(condition.partition(".")[0] in names for condition in _conditions(error))


def _conditions(error: BaseException) -> Iterator[str]:
    # An error that went through a task or through Python comes to the driver as a text, with the condition in brackets.
    yield from CONDITION.findall(str(error))
    for cause in causes_of(error):
        yield from [cause.condition] if cause.condition else CONDITION.findall(cause.said)


def is_sparks(error: BaseException) -> bool:
    """True for an error that PySpark made of one of Java."""
    return hasattr(error, "_desc")


def causes_of(error: BaseException) -> list[Cause]:
    """Return the Java exceptions behind a PySpark error, from the outermost to the deepest one."""
    java: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: list[Cause] = []
    while java is not None and len(found) < _CAUSES_MAX:
        condition, state = _class_of(java)
        found.append(Cause(java, str(java.getClass().getName()), str(java.getMessage() or ""), condition, state))
        java = java.getCause()
    return found


def _class_of(java: Any) -> tuple[str, str]:
    """Return Spark's class of an error and its SQLSTATE; empty texts for an exception that has none."""
    try:  # those without the methods are Java's own
        return str(java.getCondition() or ""), str(java.getSqlState() or "")
    except (Py4JError, AttributeError, TypeError):
        return "", ""


def parameters_of(java: Any) -> list[Any]:
    """Return the values that Spark's message of an error has in it; none for an exception that is not Spark's."""
    try:
        return list(dict(java.getMessageParameters()).values())
    except (Py4JError, AttributeError, TypeError):
        return []


def place_of(java: Any) -> str:
    """Return where in the query it was, as Spark knows it: the text is the query's own."""
    try:
        contexts = list(java.getQueryContext())
        for one in contexts:
            if str(one.contextType()) == "SQL":
                fragment = " ".join(str(one.fragment()).split())[:_FRAGMENT_CHARS_MAX]
                return f", in {fragment}"
            return f", in the function {one.fragment()}"
    except (Py4JError, AttributeError, TypeError):
        return ""
    return ""
