"""Chooses the implementations behind the seams. Nothing else does."""

from collections.abc import Callable

from ecobench.clock import LiveClock
from ecobench.launcher import SupervisedLauncher
from ecobench.meters import Discovery, discover
from ecobench.seams import Clock, Launcher


def make_clock() -> Clock:
    """The machine's own clock."""
    return LiveClock()


def make_launcher() -> Launcher:
    """A supervisor for one trial."""
    return SupervisedLauncher()


def meter_finder(choice: str) -> Callable[[int], Discovery]:
    """Opens the meters of `choice` for a trial, given the root of the workload's process tree."""
    return lambda root_pid: discover(choice, root_pid=root_pid)
