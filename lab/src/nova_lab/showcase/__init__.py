"""The showcase: regional climate anomalies, after the paper's use case (Section 1).

Pressure and humidity sensors in several regions, joined by region and window: generated ones, or those of a
Sensor.Community archive. One run on Spark under Nova's plan, in real time, finds the anomalies; the same
streams also go through simulated hosts under every baseline's plan.
"""
