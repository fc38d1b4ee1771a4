"""Build: the JVM part as a jar that is the same whenever it is built from the same sources.

`python -m nova.spark.realtime.build` needs a JDK 17 and pyspark; whoever only runs Nova needs neither, as the jar is
part of the package.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from nova.model.errors import NovaError

JAR = Path(__file__).with_name("nova-realtime.jar")
SOURCES = Path(__file__).with_name("java")
RELEASE = 17
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of every entry: the same at every build."""


def sources() -> list[Path]:
    """The Java files, in order."""
    return sorted(SOURCES.rglob("*.java"))


def digest() -> str:
    """A digest of the sources, which the jar's manifest carries."""
    told = hashlib.sha256()
    for file in sources():
        told.update(file.relative_to(SOURCES).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return told.hexdigest()


def built_from(jar: Path = JAR) -> str | None:
    """The digest of the sources that a jar was built from."""
    with zipfile.ZipFile(jar) as opened:
        lines = opened.read("META-INF/MANIFEST.MF").decode().splitlines()
    # a manifest's lines have at most 72 bytes, so the digest is in two
    halves = [line.split(": ")[1] for line in lines if line.startswith("Nova-Sources")]
    return "".join(halves) or None


def build(jar: Path = JAR) -> None:
    """Compile against pyspark's own jars, and pack."""
    javac = shutil.which("javac")
    if javac is None:
        raise NovaError(
            f"building {jar.name} needs a JDK {RELEASE} (Debian: apt install openjdk-{RELEASE}-jdk-headless)"
        )
    import pyspark

    libraries = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as classes:
        command = [
            javac,
            "--release",
            str(RELEASE),
            "-proc:none",
            "-g:source,lines",
            "-Xlint:all,-serial,-path,-classfile",
        ]
        command += ["-cp", f"{libraries}/*", "-d", classes, *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NovaError(f"javac: {done.stderr.strip()}")
        told = digest()
        manifest = f"Manifest-Version: 1.0\nNova-Sources-1: {told[:32]}\nNova-Sources-2: {told[32:]}\n\n"
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", EPOCH), manifest)
            for file in sorted(Path(classes).rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    build(*(Path(given) for given in sys.argv[1:2]))
