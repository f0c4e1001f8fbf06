"""The built-in workloads, shipped as `ecobench.workloads`.

Nothing is imported from here: the harness finds a workload's folder by path and runs it in its own processes. The file
makes the folder a package, so that an editable install finds it where a wheel has it.
"""
