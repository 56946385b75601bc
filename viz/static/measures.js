// Figures over time from the event stream: one row a step, one sample for each first token (TTFT) and each gap between two tokens
// of a request (ITL). A store track; bounded; each row carries the `seq` it belongs to, so that a past moment shows only its past.

import { loadOf } from './step_work.js';

const MAX_STEPS = 6000;
const MAX_SAMPLES = 12000;
export const WINDOW = 1000;            // samples that "running" percentiles look back on
const RATE_SECONDS = 2;                // throughput is averaged over this much of the room's clock

export class MeasureTrack {
  constructor() { this.reset(); }

  reset() {
    this.steps = [];
    this.ttft = [];
    this.itl = [];
    this.version = 0;
  }

  // Events were lost: what was seen before stays true, unless the numbering began anew.
  heal(state) { if (this.steps.length && this.steps.at(-1).seq > state.seq) this.reset(); }

  forget(oldestSeq) {
    for (const list of [this.steps, this.ttft, this.itl]) {
      const first = list.findIndex((row) => row.seq >= oldestSeq);
      list.splice(0, first < 0 ? list.length : first);
    }
  }

  push(event, state) {
    for (const token of event.tokens ?? []) this.#token(token, event, state);
    if (event.type !== 'step') return;
    const slices = event.slices ?? [];
    let decode = 0; let prefill = 0; let idle = 0;
    for (const [, , count, kind] of slices) {
      if (kind === 'decode') decode += count; else if (kind === 'prefill') prefill += count; else idle += count;
    }
    const window = state.layout?.groups.find((group) => group.window)?.window ?? null;
    const row = {
      seq: event.seq, step: event.step, time: event.time, decode, prefill, idle, load: loadOf(slices, window),
      idleCells: event.budget?.idle_cells ?? 0, active: state.active.length, waiting: state.queue.length,
      outputs: event.tokens?.length ?? 0, timing: event.timing ?? null, device: null, deviceSeq: null, graph: null, padding: 0,
    };
    this.steps.push(row);
    this.#results(event);
    if (this.steps.length > MAX_STEPS) this.steps.splice(0, MAX_STEPS >> 2);
    this.version += 1;
  }

  // With async batching the interval of a step, and what its graph did, arrive with the event of the next one.
  #results(event) {
    if (!event.timing?.device) return;
    const [step, from, to] = event.timing.device;
    for (let at = this.steps.length - 1; at >= 0 && at >= this.steps.length - 4; at -= 1) {
      const row = this.steps[at];
      if (row.step !== step || row.device) continue;
      Object.assign(row, { device: [from, to], deviceSeq: event.seq, graph: event.graph?.action ?? null, padding: event.graph?.q_padding ?? 0 });
      return;
    }
  }

  #token(token, event, state) {
    const request = state.requests[token.id];
    if (!request) return;              // ended and retired within this very event
    const times = request.token_times;
    if (times.length === 1) this.#sample(this.ttft, event, token.id, times[0] - request.arrival);
    else this.#sample(this.itl, event, token.id, times[times.length - 1] - times[times.length - 2]);
  }

  #sample(list, event, id, seconds) {
    list.push({ seq: event.seq, time: event.time, id, ms: 1000 * seconds });
    if (list.length > MAX_SAMPLES) list.splice(0, MAX_SAMPLES >> 2);
  }
}

// How many entries at the front of `list` have `seq` at most this. The lists are ordered by seq.
export function countUpTo(list, seq) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].seq <= seq) low = middle + 1; else high = middle;
  }
  return low;
}

// The newest `limit` entries not after `seq`.
export function recent(list, seq, limit) {
  const end = countUpTo(list, seq);
  return list.slice(Math.max(0, end - limit), end);
}

// Linear interpolation between closest ranks (NumPy's default, and that of the CSV export). `ordered` ascends.
export function percentile(ordered, percent) {
  if (!ordered.length) return null;
  const place = ((ordered.length - 1) * percent) / 100;
  const low = Math.floor(place);
  const high = Math.min(low + 1, ordered.length - 1);
  return ordered[low] + (ordered[high] - ordered[low]) * (place - low);
}

// {count, p50, p90, p99} of the last WINDOW samples not after `seq`; values in milliseconds, null without samples.
export function summary(list, seq, limit = WINDOW) {
  const ordered = Float64Array.from(recent(list, seq, limit), (sample) => sample.ms).sort();
  return { count: ordered.length, ordered, p50: percentile(ordered, 50), p90: percentile(ordered, 90), p99: percentile(ordered, 99) };
}

// Tokens per second over the last RATE_SECONDS of the room's clock before each of these steps: {time, step, output, prompt}.
export function throughput(steps) {
  const points = [];
  let first = 0; let output = 0; let prompt = 0;
  for (const row of steps) {
    output += row.outputs;
    prompt += row.prefill;
    while (first < points.length && steps[first].time < row.time - RATE_SECONDS) {
      output -= steps[first].outputs;
      prompt -= steps[first].prefill;
      first += 1;
    }
    const span = row.time - (first > 0 ? steps[first - 1].time : steps[0].time);
    points.push({ time: row.time, step: row.step, output: span > 0 ? output / span : null, prompt: span > 0 ? prompt / span : null });
  }
  return points;
}

export const measureTrack = (store) => store.track('measures', () => new MeasureTrack());
