// What a step has to move and to compute, from its slices and the model's numbers: the twin of `load_of` and the byte and FLOP
// sums of `Roofline.step_cost` in engine/executor/roofline.py, where the sources of the formulas stand. A test holds both equal.

// Sums over the slices [[id, start, count, kind, samples]]. `window`: tokens of the sliding layers, or null.
export function loadOf(slices, window) {
  const load = { rows: slices.length, tokens: 0, sampled: 0, reads: 0, pairs: 0, slidingReads: 0, slidingPairs: 0 };
  for (const [, start, count, kind, samples] of slices) {
    const end = start + count;
    load.tokens += count;
    load.sampled += samples || kind === 'padding' ? 1 : 0;
    load.reads += end;
    load.pairs += Math.floor((count * (start + end + 1)) / 2);
    if (window) {
      load.slidingReads += Math.min(end, window + count - 1);
      const inside = Math.max(0, Math.min(end, window) - start);
      load.slidingPairs += Math.floor((inside * (2 * start + inside + 1)) / 2) + (count - inside) * window;
    }
  }
  return load;
}

// Bytes read and FLOPs done. `spec`: state.engine.spec; `groups`: state.layout.groups; `padding`: query rows a graph added.
export function workOf(load, spec, groups, padding = 0) {
  const tokens = load.tokens + padding;
  const headParams = spec.hidden_size * spec.vocab_size;
  const layerParams = spec.num_matmul_params - headParams;
  const activeParams = (spec.active_params ?? spec.num_matmul_params) - headParams;
  let fullLayers = 0;
  let slidingLayers = 0;
  for (const group of groups) if (group.window) slidingLayers += group.layers.length; else fullLayers += group.layers.length;
  const matmul = (params, active, rows) => (rows ? [Math.min(params, active * rows) * spec.dtype_bytes, 2 * active * rows] : [0, 0]);
  const [layerBytes, layerFlops] = matmul(layerParams, activeParams, tokens);
  const [headBytes, headFlops] = matmul(headParams, headParams, load.sampled);
  const kvBytes = 2 * spec.num_kv_heads * spec.head_dim * spec.dtype_bytes * (fullLayers * load.reads + slidingLayers * load.slidingReads);
  const attentionFlops = 4 * spec.num_heads * spec.head_dim * (fullLayers * load.pairs + slidingLayers * load.slidingPairs);
  return { bytes: layerBytes + headBytes + kvBytes, flops: layerFlops + headFlops + attentionFlops };
}

// The best rate (FLOP/s) that the machine can reach at this intensity (FLOP/byte): the roof.
export const roofAt = (machine, intensity) => Math.min(machine.peak_flops, machine.bandwidth * intensity);
