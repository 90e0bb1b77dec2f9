"""Parses the options that a user gave: names in any case, and one error of all faults; an unknown name gets the nearest
right one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from shardway.core.options.hints import defects
from shardway.errors import OptionError
from shardway.spark.options.option import Declaration, GivenOptions, declarations
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.options.sink_options import SinkOptions

G = TypeVar("G", bound=GivenOptions)

READ_OPTIONS = declarations(ReadOptions)
"""All options for reading."""
SINK_OPTIONS = declarations(SinkOptions)
"""All options for writing."""
ALIASES = {"endpoint": "endpointUrl", "initialposition": "startingPosition", "regionname": "region"}
"""Names that other connectors use for the same thing, lower case."""

_CREDENTIALS = {"awsaccesskey", "awsaccesskeyid", "awssecretkey", "awssecretaccesskey", "sessiontoken"}
_FAN_OUT = {"consumermode", "consumertype", "consumername", "consumernameprefix", "consumerarn", "fanoutconsumerarn"}
"""The names, in lower case, that other connectors have for enhanced fan-out."""
_HINT = ": did you mean "
_SPARKS_OWN = {"checkpointlocation", "path", "queryname"}


class Use(NamedTuple):
    """One of the two uses of the format, with its options by name in lower case."""

    name: str
    options: Mapping[str, Declaration]


_READ_USE = Use("reading", {one.name.lower(): one for one in READ_OPTIONS})
_WRITE_USE = Use("writing", {one.name.lower(): one for one in SINK_OPTIONS})


class _GivenOption(NamedTuple):
    """One option that was given: its name and text as they came, and the option that it is, if it is one."""

    key: str
    text: str
    option: Declaration | None


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options for reading. Raises OptionError with all faults at once; reads and calls nothing."""
    return _parse(ReadOptions, given, _READ_USE, streaming=streaming)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options for writing. Raises OptionError with all faults at once; reads and calls nothing."""
    return _parse(SinkOptions, given, _WRITE_USE)


def check_options(given: Mapping[str, str]) -> None:
    """Raise OptionError for options that are wrong for each use: a source's options come before its use is known.

    An option that only readers have, or only writers, tells the use.
    """
    reading, writing = set(_READ_USE.options), set(_WRITE_USE.options)
    names = {_lower_name(key) for key in given}
    uses: list[Callable[[], object]] = []
    if not names & (writing - reading) or names & (reading - writing):
        uses += [
            lambda: parse_read_options(given, streaming=True),
            lambda: parse_read_options(given, streaming=False),
        ]
    if not names & (reading - writing):
        uses.append(lambda: parse_sink_options(given))
    faults: list[list[str]] = []
    for use in uses:
        try:
            use()
        except OptionError as error:
            faults.append(error.faults)
        else:
            return
    common = [fault for fault in faults[0] if all(fault in others for others in faults)]
    # A misspelt name has its hint in the use that it belongs to, and is wrong in the other one too.
    misspelt = [fault for others in faults for fault in others if _HINT in fault]
    if common or misspelt:
        raise OptionError(list(dict.fromkeys([*common, *misspelt])))


def _parse(kind: type[G], given: Mapping[str, str], use: Use, *, streaming: bool = True) -> G:
    found = [_GivenOption(key, str(text), use.options.get(_lower_name(key))) for key, text in given.items()]
    faults = [*_faults_of_names(found, use), *_faults_of_use(found, streaming)]
    values: dict[str, Any] = {} if use is _WRITE_USE else {"streaming": streaming}
    names: dict[str, str] = {}
    for option, text in _firsts(found, streaming):
        names[option.field] = option.name
        try:
            value = option.parse(text)
        except ValueError as error:
            faults.append(f"{option.name} {error}")
            continue
        wrong = list(defects(option.name, value, option.hint))
        faults += wrong
        if not wrong:
            values[option.field] = value
    options = kind(**values)
    faults += options.rules(names)
    if faults:
        raise OptionError(faults)
    return options


def _firsts(found: list[_GivenOption], streaming: bool) -> Iterator[tuple[Declaration, str]]:
    """Yield each option that counts in this use, and its text; of one that is given twice the first."""
    seen = set()
    for _, text, option in found:
        if option is not None and option.name not in seen and (option.stream if streaming else option.batch):
            seen.add(option.name)
            yield option, text


def _faults_of_use(found: list[_GivenOption], streaming: bool) -> Iterator[str]:
    """Yield a fault for each option that this use does not have, or that is given twice."""
    seen = set()
    for one in found:
        if one.option is None:
            continue
        name = one.option.name
        if not (one.option.stream if streaming else one.option.batch):
            yield f"{name} is for {'batch' if streaming else 'streaming'} reads only"
        elif name in seen:
            yield f"{name} is given twice, once under another name"
        seen.add(name)


def _faults_of_names(found: list[_GivenOption], use: Use) -> Iterator[str]:
    """Yield a fault for each name that is no option. Names that are like no other share one fault, which lists the
    right ones.
    """
    unknown = []
    for key, _, option in found:
        if option is not None or key.lower() in _SPARKS_OWN or key.startswith("__"):
            continue
        fault = _fault_of_name(key, use)
        if fault is None:
            unknown.append(key)
        else:
            yield fault
    if unknown:
        right = ", ".join(option.name for option in use.options.values())
        which = f"is no option {unknown[0]}" if len(unknown) == 1 else f"are no options {', '.join(unknown)}"
        yield f"there {which}; those for {use.name} are {right}"


def _fault_of_name(key: str, use: Use) -> str | None:
    """Return what is wrong with a name that a use lacks; None where nothing is known of it."""
    lower = key.lower()
    if lower in _CREDENTIALS:
        return (
            f"{key} is not taken: options are shown in plans and sent to every executor. Credentials come from the AWS "
            "SDK's chain on each machine (environment, profile, instance or pod role); roleArn assumes a role"
        )
    if lower in _FAN_OUT:
        return f"{key} is not taken: this source reads by GetRecords, and has no enhanced fan-out"
    other = _READ_USE if use is _WRITE_USE else _WRITE_USE
    elsewhere = other.options.get(_lower_name(key))
    if elsewhere is not None:
        return f"{elsewhere.name} is for {other.name} only"
    near = difflib.get_close_matches(lower, use.options, n=1, cutoff=0.6)
    return f"there is no option {key}{_HINT}{use.options[near[0]].name}?" if near else None


def _lower_name(key: str) -> str:
    return ALIASES.get(key.lower(), key).lower()
