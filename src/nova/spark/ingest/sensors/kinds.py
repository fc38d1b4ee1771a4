"""Which readings make up which stream, and what a sane value is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One logical stream of an archive."""

    stream: str
    sensors: tuple[str, ...]
    """Types of sensors whose records belong to the stream, as archives write them."""
    column: str
    """Column of the archive that holds the value."""
    unit: str
    least: float
    most: float
    """Values outside are faults of the sensor, not weather."""


PRESSURE = Kind("pressure", ("BME280", "BMP280"), "pressure", "Pa", 30_000.0, 110_000.0)
"""From the top of the highest mountain to above the record at sea level."""
HUMIDITY = Kind("humidity", ("DHT22",), "humidity", "%", 0.0, 100.0)
KINDS = (PRESSURE, HUMIDITY)
