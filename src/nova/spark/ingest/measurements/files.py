"""Which files an input means, and in which format each is: by its ending, and by its first line where that decides.

Paths go through Hadoop's file systems, so that `s3a://` or `hdfs://` work where Spark can read them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

from pyspark.sql import SparkSession

from nova.model.errors import Fault, InvalidInput

Format = Literal["csv", "json", "json array", "parquet"]

ENDINGS: dict[str, Format] = {
    "csv": "csv",
    "tsv": "csv",
    "txt": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
}
"""Endings of file names, after that of a compression was taken off."""
COMPRESSIONS = ("gz", "bz2", "zst", "lz4", "snappy")
SAMPLE = 65536
"""Bytes of a text file that are looked at to tell what it is."""
DELIMITERS = (";", "\t", ",", "|")


@dataclass(frozen=True)
class InputFile:
    """One file to read."""

    path: str
    """As Spark's readers take it."""
    uri: str
    """As Spark names it in results: with encoded characters. Local ones begin with `file:///`."""
    size: int
    """Bytes, as stored."""
    format: Format
    head: str = ""
    """First line of a CSV file; the beginning of a JSON file."""

    @property
    def name(self) -> str:
        """The path as people write it."""
        return unquote(re.sub(r"^file:/+", "/", self.uri))


def find(spark: SparkSession, inputs: list[str]) -> list[InputFile]:
    """All files that the inputs (files, folders, globs) mean, each once, in order of their names.

    Hidden files and those that begin with `_` are passed over in folders, as Spark does. A file in a folder whose
    ending says nothing is a fault: results must not be lost because of a name.
    """
    faults: list[Fault] = []
    found: dict[str, InputFile] = {}
    for given in inputs:
        matches = _matches(spark, given)
        if not matches:
            faults.append(Fault(given, "no such file, folder or glob"))
        for path, size in matches:
            kind = format_of(path)
            if kind is None:
                faults.append(
                    Fault(
                        path,
                        f"unknown ending; known are {', '.join(ENDINGS)}, each also compressed "
                        f"({', '.join(COMPRESSIONS)})",
                    )
                )
            else:
                found[path] = named(spark, path, size, kind)
    if faults:
        raise InvalidInput(faults)
    return [with_head(spark, found[path]) for path in sorted(found)]


def named(spark: SparkSession, path: str, size: int, form: Format) -> InputFile:
    """A file by its path, as listings give it."""
    hadoop, _ = _hadoop(spark)
    uri = str(hadoop.fs.Path(path).toUri().toString())
    return InputFile(path, re.sub(r"^file:/+", "file:///", uri), size, form)


def format_of(path: str) -> Format | None:
    """Format by the ending of a file's name; None where it says nothing."""
    parts = path.lower().rsplit("/", 1)[-1].split(".")
    if len(parts) > 1 and parts[-1] in COMPRESSIONS:
        parts.pop()
    # Spark's own files carry the compression before the ending: part-….snappy.parquet
    return ENDINGS.get(parts[-1]) if len(parts) > 1 else None


def delimiter_of(head: str) -> str:
    """The delimiter of a header line: the one that occurs most."""
    return max(DELIMITERS, key=head.count)


def _hadoop(spark: SparkSession) -> tuple[Any, Any]:
    """Hadoop's classes in the driver's JVM, and its configuration. Spark has no public way to list or open files."""
    jvm = spark._jvm
    assert jvm is not None, "a running session has a JVM"
    return jvm.org.apache.hadoop, spark._jsc.hadoopConfiguration()


def _matches(spark: SparkSession, given: str) -> list[tuple[str, int]]:
    """(path, size) of every file below a path or glob."""
    hadoop, configuration = _hadoop(spark)
    path = hadoop.fs.Path(given)
    system = path.getFileSystem(configuration)
    # a name with glob characters may also be meant literally
    roots = [system.getFileStatus(path)] if system.exists(path) else list(system.globStatus(path) or [])
    files: list[tuple[str, int]] = []
    waiting = roots
    while waiting:
        status = waiting.pop()
        name = status.getPath().getName()
        if status not in roots and name.startswith(("_", ".")):
            continue
        if status.isDirectory():
            waiting.extend(system.listStatus(status.getPath()))
        else:
            files.append((str(status.getPath().toString()), int(status.getLen())))
    return files


def with_head(spark: SparkSession, file: InputFile) -> InputFile:
    """The file with its beginning, and with its format made exact by it."""
    if file.format == "parquet":
        return file
    hadoop, configuration = _hadoop(spark)
    path = hadoop.fs.Path(file.path)
    stream = path.getFileSystem(configuration).open(path)
    codec = hadoop.io.compress.CompressionCodecFactory(configuration).getCodec(path)
    try:
        inner = codec.createInputStream(stream) if codec is not None else stream
        text = bytes(inner.readNBytes(SAMPLE)).decode("utf-8", errors="replace")
    except Exception as error:  # py4j wraps Java's IOException
        reason = next((line for line in str(error).splitlines() if "Exception" in line), str(error))
        raise InvalidInput([Fault(file.name, f"cannot be read: {reason.strip()}")]) from None
    finally:
        stream.close()
    if file.format == "csv":
        return replace(file, head=next((line for line in text.splitlines() if line.strip()), ""))
    array = text.lstrip("\ufeff \t\r\n").startswith("[")
    return replace(file, format="json array" if array else "json", head=text)
