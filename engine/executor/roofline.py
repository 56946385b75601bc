"""How long a step takes: bytes over bandwidth, FLOPs over peak, and what the host adds.

The model is the roofline of Williams, Waterman and Patterson (CACM 2009): an operation takes the longer of the time to move
its bytes and the time to do its arithmetic. A step runs one after another

* the **linear layers**: every weight is read once whatever the batch, ``2 · parameters`` FLOPs a query token
  (Kaplan et al. 2020, §2.1);
* **attention**: K and V of each request's context are read once (grouped-query heads share them), and a query row takes
  ``4 · heads · head_dim`` FLOPs per position that it sees (the two products of Vaswani et al. 2017, eq. 1);
* the **LM head**: its weights once, ``2 · hidden · vocabulary`` FLOPs per sampled row;
* with tensor parallelism over D devices: bytes and FLOPs divided by D, and two all-reduces of the activations a layer
  (Shoeybi et al. 2019, §3). A ring all-reduce of ``b`` bytes takes ``latency + 2(D-1)/D · b / link`` (Patarasuk and
  Yuan 2009);
* **launching**: a GPU runs behind the host, so eager kernels cost whichever is longer, their work or their launches; a
  short gap between kernels remains in any case, and is all that a replayed graph leaves. The constants are typical
  figures, not data-sheet ones.

Left out: activations between kernels (below a tenth of a large prefill), clock throttling, cache hits in L2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from engine.executor.catalog import Hardware
from engine.model_spec import FULL, ModelSpec
from engine.plan import Slice

#: Kernels of one layer in eager mode: two norms, QKV product, rotation of Q and K, cache write, attention, output
#: product, two residual adds, gate-and-up product, activation, down product.
KERNELS_PER_LAYER = 12
#: Outside the layers: embedding, final norm, gather of the sampled rows, LM head, and four for sampling.
KERNELS_PER_STEP = 8


@dataclass(slots=True)
class StepLoad:
    """What a step has to compute, summed over its slices (padding rows of a graph included in ``query_tokens``).

    ``*_reads`` are cached tokens read in a layer of that kind, ``*_pairs`` (query, visible position) pairs in such a layer.
    """

    rows: int = 0
    query_tokens: int = 0
    sampled_rows: int = 0
    longest_context: int = 0
    full_reads: int = 0
    full_pairs: int = 0
    sliding_reads: int = 0
    sliding_pairs: int = 0


def load_of(slices: list[Slice], window: int | None) -> StepLoad:
    """Sum up the slices of a step. ``window`` is the sliding window in tokens, or ``None`` if no layer slides."""
    query = sampled = longest = reads = pairs = sliding_reads = sliding_pairs = 0
    for _, start, count, kind, samples in slices:
        end = start + count
        query += count
        # A static slot's padding row is computed like any other, its LM head row included: that is the waste it shows.
        sampled += samples or kind == "padding"
        longest = max(longest, end)
        reads += end
        pairs += count * (start + end + 1) // 2
        if window is not None:
            sliding_reads += min(end, window + count - 1)
            inside = max(0, min(end, window) - start)      # rows that see their whole past
            sliding_pairs += inside * (2 * start + inside + 1) // 2 + (count - inside) * window
    return StepLoad(len(slices), query, sampled, longest, reads, pairs, sliding_reads, sliding_pairs)


@dataclass(slots=True)
class StepCost:
    """Where a step's device time goes, in seconds, and what it moved and computed."""

    linear: float = 0.0
    attention: float = 0.0
    head: float = 0.0
    all_reduce: float = 0.0
    launch: float = 0.0          # time that launching adds to the work itself
    bytes_read: float = 0.0
    flops: float = 0.0

    @property
    def total(self) -> float:
        return self.linear + self.attention + self.head + self.all_reduce + self.launch

    @property
    def intensity(self) -> float:
        """FLOP per byte of this step."""
        return self.flops / self.bytes_read if self.bytes_read else 0.0


class Roofline:
    """Step times of one model on one kind of device, ``num_devices`` of them in tensor parallel."""

    def __init__(self, hardware: Hardware, spec: ModelSpec, num_devices: int = 1) -> None:
        self.hardware = hardware
        self.spec = spec
        self.num_devices = num_devices
        self.full_layers = sum(kind == FULL for kind in spec.layer_types)
        self.sliding_layers = spec.num_layers - self.full_layers
        self.head_params = spec.hidden_size * spec.vocab_size
        self.layer_params = spec.num_matmul_params - self.head_params
        self.active_layer_params = (spec.active_params or spec.num_matmul_params) - self.head_params
        # A KV head cannot be split, so with more devices than KV heads each keeps a copy.
        self.kv_shards = min(num_devices, spec.num_kv_heads)
        self.bandwidth = hardware.bandwidth * hardware.bandwidth_efficiency
        self.attention_flops = hardware.peak_flops * hardware.attention_efficiency * num_devices

    @cached_property
    def num_kernels(self) -> int:
        return self.spec.num_layers * (KERNELS_PER_LAYER + (2 if self.num_devices > 1 else 0)) + KERNELS_PER_STEP

    def matmul_time(self, params: int, active: int, rows: int) -> tuple[float, float, float]:
        """Seconds, bytes and FLOPs of ``rows`` tokens through matrices of ``params`` weights, ``active`` of them per token."""
        if rows == 0:
            return 0.0, 0.0, 0.0
        touched = min(params, active * rows)      # equal to params but for mixtures of experts at small batch
        size, flops = touched * self.spec.dtype_bytes, 2.0 * active * rows
        if self.hardware.matmul_rates:
            return flops / self._measured_rate(rows), size, flops
        hardware = self.hardware
        return max(size / (self.bandwidth * self.num_devices),
                   flops / (hardware.peak_flops * hardware.flops_efficiency * self.num_devices)), size, flops

    def _measured_rate(self, rows: int) -> float:
        """FLOP/s at that many rows, interpolated between the measured points on logarithmic axes."""
        points = self.hardware.matmul_rates
        if rows <= points[0][0]:
            return points[0][1]
        for (low, slow), (high, fast) in zip(points, points[1:]):
            if rows <= high:
                share = math.log(rows / low) / math.log(high / low)
                return slow * (fast / slow) ** share
        return points[-1][1]

    def step_cost(self, load: StepLoad, replayed: bool = False) -> StepCost:
        """Device time of the forward pass and sampling of one step; copies and host work are apart."""
        cost = StepCost()
        if load.query_tokens == 0:
            return cost
        hardware, spec = self.hardware, self.spec
        cost.linear, linear_bytes, linear_flops = self.matmul_time(self.layer_params, self.active_layer_params, load.query_tokens)
        cost.head, head_bytes, head_flops = self.matmul_time(self.head_params, self.head_params, load.sampled_rows)
        kv_bytes = spec.kv_bytes_per_token_per_layer * (
            self.full_layers * load.full_reads + self.sliding_layers * load.sliding_reads)
        attention_flops = 4.0 * spec.num_heads * spec.head_dim * (
            self.full_layers * load.full_pairs + self.sliding_layers * load.sliding_pairs)
        if hardware.attention_cost is not None:
            per_read, per_pair = hardware.attention_cost
            cost.attention = max(per_read * (self.full_layers * load.full_reads + self.sliding_layers * load.sliding_reads),
                                 per_pair * (self.full_layers * load.full_pairs + self.sliding_layers * load.sliding_pairs))
        else:
            cost.attention = max(kv_bytes / (self.bandwidth * self.kv_shards), attention_flops / self.attention_flops)
        if self.num_devices > 1:
            activations = load.query_tokens * spec.hidden_size * spec.dtype_bytes
            ring = 2.0 * (self.num_devices - 1) / self.num_devices * activations / hardware.link_bandwidth
            cost.all_reduce = 2 * spec.num_layers * (hardware.link_latency + ring)
        work = cost.total
        if replayed:
            cost.launch = self.num_kernels * hardware.graph_gap
        elif hardware.launch_overlaps:
            cost.launch = max(self.num_kernels * hardware.graph_gap, self.num_kernels * hardware.kernel_launch - work)
        else:
            cost.launch = self.num_kernels * hardware.kernel_launch
        cost.bytes_read = linear_bytes + head_bytes + kv_bytes
        cost.flops = linear_flops + head_flops + attention_flops
        return cost

    def host_time(self, rows: int) -> float:
        """What the host needs to prepare a step of that many batch rows and to read its tokens."""
        return self.hardware.host_step + rows * self.hardware.host_row

    def copy_time(self, num_bytes: float) -> float:
        """One batched copy between host and device. Each device moves its own share over its own bus."""
        if not num_bytes:
            return 0.0
        rate = self.hardware.host_bandwidth * self.hardware.host_bandwidth_efficiency * self.num_devices
        return self.hardware.kernel_launch + num_bytes / rate

    def block_copy_time(self, num_bytes: float) -> float:
        """Copy on write inside the device: read once, written once."""
        return 2.0 * num_bytes / (self.bandwidth * self.num_devices) + (self.hardware.kernel_launch if num_bytes else 0.0)

    def bound(self, cost: StepCost) -> str:
        """What limits the step, in one word: ``bandwidth``, ``compute``, ``launch`` or ``link``."""
        if cost.launch > 0.5 * cost.total:
            return "launch"
        if cost.all_reduce > 0.5 * cost.total:
            return "link"
        return "compute" if cost.intensity > self.hardware.ridge else "bandwidth"
