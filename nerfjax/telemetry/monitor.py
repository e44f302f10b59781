"""What programs and machine say of themselves while a run goes: added to each report of ``telemetry.meters``.

======================== ===========================================================================================
key                      meaning
======================== ===========================================================================================
flops_per_second         operations of the steps, by XLA's count (``telemetry.costs``), per second of ``step_seconds``
matmul_share             of that in the speed of large matrix products on the same devices, measured at the start
device_memory_bytes      highest use of one device so far: by its allocator where it counts, else by XLA's plan of the
                         largest program
host_memory_bytes        resident size of this process now
cpu_cores                processor time of this process per wall time since the last report: 1.5 is one core and a half
device_hours             hours of the training clock times devices (evaluation is left out, as in ``compare``)
cost                     ``device_hours`` times the price, where one is given
save/blocked_seconds     how long the saves that were finished since the last report held the loop, and how long they
save/background_seconds  took from then on
======================== ===========================================================================================

Nothing here waits for a device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import psutil

from nerfjax.telemetry.costs import program_cost


class Monitor:
    """Reads the machine for the reports.

    Args:
      devices: of the run, in all processes; the first device by default.
      peak: FLOP/s that they reach at best (``costs.matmul_peak``); None leaves the share out.
      price_per_device_hour: in any currency; 0 leaves the cost out.
    """

    def __init__(
        self, *, devices: Sequence[Any] = (), peak: float | None = None, price_per_device_hour: float | int = 0.0
    ):
        self._devices = tuple(devices) or tuple(jax.local_devices()[:1])
        self._peak, self._price = peak, price_per_device_hour
        self._planned_bytes: int | None = None
        self._saves, self._save_seconds = 0, {"blocked": 0.0, "background": 0.0}
        self._process = psutil.Process()
        self._cpu, self._time = self._cpu_seconds(), time.perf_counter()

    def flops_per_step(self, program: Any) -> float | None:
        """Returns the operations of one step of a compiled dispatch, and notes what memory it needs."""
        cost = program_cost(program, devices=len(self._devices))
        if cost.memory_bytes is not None:
            self._planned_bytes = max(cost.memory_bytes, self._planned_bytes or 0)
        return cost.flops_per_step

    def with_readings(self, report: Mapping[str, Any], checkpoints: Any = None) -> dict[str, Any]:
        """Returns a report with the readings and the times of the saves that were finished since the last."""
        saves = {} if checkpoints is None else self.saved(checkpoints.take_times())
        return {**report, **self.readings(report), **saves}

    def readings(self, report: Mapping[str, Any]) -> dict[str, float | int]:
        """Returns what is to be added to a report of ``Interval.report``."""
        now, cpu = time.perf_counter(), self._cpu_seconds()
        found: dict[str, float | int] = {
            "host_memory_bytes": self._process.memory_info().rss,
            "cpu_cores": (cpu - self._cpu) / max(now - self._time, 1e-9),
            "device_hours": report.get("seconds", 0.0) / 3600.0 * len(self._devices),
        }
        self._cpu, self._time = cpu, now
        memory = self.device_memory_bytes()
        if memory is not None:
            found["device_memory_bytes"] = memory
        if "flops_per_step" in report and "step_seconds" in report:
            found["flops_per_second"] = report["flops_per_step"] / max(report["step_seconds"], 1e-12)
            if self._peak:
                found["matmul_share"] = found["flops_per_second"] / self._peak
        if self._price:
            found["cost"] = found["device_hours"] * self._price
        return found

    def saved(self, times: Sequence[Any]) -> dict[str, float]:
        """Takes the ``blocked`` and ``background`` seconds of finished saves; returns what to report of them."""
        if not times:
            return {}
        spent = {name: float(sum(getattr(each, name) for each in times)) for name in self._save_seconds}
        self._saves += len(times)
        self._save_seconds = {name: seconds + spent[name] for name, seconds in self._save_seconds.items()}
        return {f"save/{name}_seconds": seconds for name, seconds in spent.items()}

    def summary(self) -> dict[str, Any]:
        """Returns what the manifest's seal says of the whole process."""
        seconds = {f"{name}_seconds": value for name, value in self._save_seconds.items()}
        memory = self.device_memory_bytes()
        return {"saves": {"count": self._saves, **seconds}} | ({"device_memory_bytes": memory} if memory else {})

    def device_memory_bytes(self) -> int | None:
        """Returns the highest use of one device so far, bytes; None where nobody knows."""
        own = [device for device in self._devices if device.process_index == jax.process_index()]
        stats = [device.memory_stats() or {} for device in own]
        peaks = [int(each["peak_bytes_in_use"]) for each in stats if "peak_bytes_in_use" in each]
        return max(peaks, default=self._planned_bytes)

    def _cpu_seconds(self) -> float:
        used = self._process.cpu_times()
        return used.user + used.system
