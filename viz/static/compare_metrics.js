// What is compared between two runs, from their event streams: a track per store, and the rows of the difference table.
//
// Two kinds of latency: in *steps*, which do not depend on how fast the machine or a teacher runs them, and in milliseconds of the
// room's clock, which only mean something while both run freely. "Computing time" adds up the steps themselves, from scheduling to
// the end on the device, so it is the same whether the room was paused in between or not.

import { percentile } from './measures.js';

export class CompareTrack {
  constructor() { this.reset(); }

  reset() {
    this.arrivals = new Map();       // request → {step, time}
    this.lastToken = new Map();      // request → {step, time} of its newest token
    this.ttft = { steps: [], ms: [] };
    this.itl = { steps: [], ms: [] };
    this.computing = 0;              // seconds, and the tokens that came out of them
    this.outputs = 0;
    this.lastEnd = null;
    this.started = new Map();        // step → when its scheduling began
  }

  heal() { /* what was seen stays; what was lost is missing from the samples, and the counters come from the state */ }

  push(event) {
    for (const record of event.requests ?? []) {
      this.arrivals.set(record.id, { step: event.step, time: record.arrival });
    }
    const step = event.results_of ?? event.step;
    this.outputs += event.tokens?.length ?? 0;
    for (const token of event.tokens ?? []) {
      const before = this.lastToken.get(token.id);
      const from = before ?? this.arrivals.get(token.id);
      if (from) {
        const samples = before ? this.itl : this.ttft;
        samples.steps.push(step - from.step);
        samples.ms.push(1000 * (event.time - from.time));
      }
      this.lastToken.set(token.id, { step, time: event.time });
    }
    const { schedule, device } = event.timing ?? {};
    if (schedule) this.started.set(event.step, schedule[0]);
    if (device) {
      const [of, start, end] = device;
      // With async batching steps overlap: a step's own share begins where the one before it ended.
      const began = Math.max(this.started.get(of) ?? start, this.lastEnd ?? -Infinity);
      this.computing += Math.max(0, end - began);
      this.lastEnd = end;
      this.started.delete(of);
    }
    for (const transition of event.transitions ?? []) {
      if (transition.to !== 'finished') continue;
      this.arrivals.delete(transition.id);
      this.lastToken.delete(transition.id);
    }
  }
}

export const compareTrack = (store) => store.track('compare', () => new CompareTrack());

// Rows {key, unit, digits, better: 'less' | 'more' | null, of: (track, state) → number or null}. `unit`: '' or steps, ms, percent, rate, seconds.
const last = (list, percent) => percentile(Float64Array.from(list).sort(), percent);
const share = (part, whole) => (whole ? (100 * part) / whole : null);

export const ROWS = [
  { key: 'steps', digits: 0, better: 'less', of: (track, { counters }) => counters.steps },
  { key: 'idle_cells', digits: 0, better: 'less', of: (track, { counters }) => counters.idle_cells },
  { key: 'useful_share', unit: '%', digits: 0, better: 'more', of: (track, { counters }) => share(counters.useful_cells, counters.useful_cells + counters.idle_cells) },
  { key: 'output_tokens', digits: 0, better: null, of: (track, { counters }) => counters.output_tokens },
  { key: 'tokens_per_step', digits: 2, better: 'more', of: (track, { counters }) => (counters.steps ? counters.output_tokens / counters.steps : null) },
  { key: 'throughput', digits: 1, better: 'more', of: (track) => (track.computing > 0 ? track.outputs / track.computing : null) },
  { key: 'computing', unit: 's', digits: 2, better: 'less', of: (track) => track.computing || null },
  { key: 'ttft_steps_p50', digits: 1, better: 'less', steps: true, of: (track) => last(track.ttft.steps, 50) },
  { key: 'ttft_steps_p99', digits: 1, better: 'less', steps: true, of: (track) => last(track.ttft.steps, 99) },
  { key: 'itl_steps_p99', digits: 1, better: 'less', steps: true, of: (track) => last(track.itl.steps, 99) },
  { key: 'ttft_p50', unit: 'ms', digits: 0, better: 'less', clock: true, of: (track) => last(track.ttft.ms, 50) },
  { key: 'ttft_p99', unit: 'ms', digits: 0, better: 'less', clock: true, of: (track) => last(track.ttft.ms, 99) },
  { key: 'itl_p50', unit: 'ms', digits: 1, better: 'less', clock: true, of: (track) => last(track.itl.ms, 50) },
  { key: 'itl_p99', unit: 'ms', digits: 1, better: 'less', clock: true, of: (track) => last(track.itl.ms, 99) },
  { key: 'preemptions', digits: 0, better: 'less', of: (track, { counters }) => counters.offloads + counters.soft_resets },
  { key: 'recomputed', digits: 0, better: 'less', of: (track, { counters }) => counters.recomputed_tokens },
  { key: 'prefix_hits', digits: 0, better: 'more', of: (track, { counters }) => counters.prefix_hit_tokens },
  { key: 'finished', digits: 0, better: null, of: (track, { counters }) => counters.finished },
];

// The table: [{key, unit, digits, values: [a, b], better: 0 | 1 | null, ratio: b/a or null}]. `clock`: whether the rooms ran freely,
// so that milliseconds of their clocks mean something (they always do where the clock is a simulated one).
export function compareRows(sides, { clock }) {
  return ROWS.filter((row) => (row.clock ? clock : row.steps ? !clock : true)).map((row) => {
    const values = sides.map(({ track, state }) => row.of(track, state));
    const [a, b] = values;
    const known = a !== null && b !== null;
    const better = !known || row.better === null || a === b ? null : (a < b) === (row.better === 'less') ? 0 : 1;
    return { key: row.key, unit: row.unit ?? '', digits: row.digits, values, better, ratio: known && a > 0 ? b / a : null };
  });
}
