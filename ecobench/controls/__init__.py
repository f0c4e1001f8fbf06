"""Controls: settings of the machine that a run changes and puts back. Nothing heavy is imported here: the supervisor's
start must not wait for a driver that it does not need.
"""
