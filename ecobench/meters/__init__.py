"""Meters: the ways to read a power domain. Nothing outside of this package knows how the machine is measured."""

from ecobench.meters.discovery import CHOICES, Discovery, discover

__all__ = ["CHOICES", "Discovery", "discover"]
