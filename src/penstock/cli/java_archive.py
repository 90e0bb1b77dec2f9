"""``penstock java-archive``: have Spark start faster on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.spark_needed import needing_spark


def command(
    remove: Annotated[bool, typer.Option("--remove", help="Remove the archive.")] = False,
) -> None:
    """Write an archive of Java's classes, by which `penstock run` starts Spark faster on this machine.

    It runs a small job on a local Kinesis, which takes about a minute. The archive takes about 200 MB of disk. Java
    ignores it once Spark or Java is another version: run this again then. PENSTOCK_JAVA_ARCHIVE names another place.
    """
    with needing_spark("an archive of its classes"):
        from penstock.pipeline.job.java_archive import remove_archive, write_archive
    if not remove:
        file = write_archive()
        typer.echo(f"{file}: {file.stat().st_size / 2**20:.0f} MB; penstock run uses it from now on")
        return
    removed = remove_archive()
    typer.echo("there is no archive" if removed is None else f"{removed} is removed")
