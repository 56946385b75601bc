"""Workloads: seeded generators, recorded traces, and the traffic that feeds an engine by its clock."""

from engine.workload.driver import Traffic, WorkloadDriver
from engine.workload.traces import load_trace
from engine.workload.workload import Workload

__all__ = ["Traffic", "Workload", "WorkloadDriver", "load_trace"]
