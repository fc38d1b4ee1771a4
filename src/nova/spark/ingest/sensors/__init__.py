"""Sensor.Community archives in, clean streams out: readings with regions, measured rates, a scenario to start from."""
