// The metrics of a run in the browser: the twin of lessons/measure.py, held to it by a test on every recorded lesson.
// Feed it every event with the state after it; read `record()` at any time.

const REASONS = ["token_budget", "no_free_block", "safety_margin", "request_cap", "kv_read_budget", "static_barrier", "whole_prompt", "starved"];
const SHARES = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["max", 1]];
const FIELDS = ["id", "arrival_step", "admitted_step", "first_token_step", "finished_step", "prompt", "outputs", "prefix_hits", "slices",
  "offloads", "soft_resets", "digest"];
const FNV_START = 2166136261;

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);
const most = (values, otherwise) => (values.length ? values.reduce((a, b) => (b > a ? b : a)) : otherwise);
const gapsOf = (times) => times.slice(1).map((time, at) => time - times[at]);

function percentile(values, share) {
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

// One step of FNV-1a over a token id.
function fold(digest, number) {
  for (const shift of [0, 8, 16, 24]) digest = Math.imul(digest ^ ((number >>> shift) & 0xff), 16777619) >>> 0;
  return digest;
}

export class Measure {
  constructor(limits = {}) {
    this.limits = limits ?? {};
    this.state = null;
    this.requests = new Map();
    this.waited = Object.fromEntries(REASONS.map((name) => [name, 0]));
    this.series = { batch: [], tokens: [], budget: [], kv: [], device: [], decode: [], cycle: [], prepare: [], used: [], waste: [] };
    this.peaks = { slice: 0, intrusion: 0, used: 0, cached: 0, shared: 0, queue: 0 };
    this.freeMin = null;
    this.deviceSpans = new Map();
    this.prepareSpans = new Map();
    this.lastResult = null;
    this.blocksNow = [0, 0];
  }

  take(event, state) {
    this.state = state;
    for (const record of event.requests ?? []) {
      this.requests.set(record.id, {
        id: record.id, arrival: record.arrival, arrival_step: record.arrival_step, admitted: null, admitted_step: null,
        first_token_step: null, finished_step: null, finished: null, slices: 0, prompt: record.prompt_tokens.length, outputs: 0,
        prefix_hits: 0, offloads: 0, soft_resets: 0, times: [], digest: FNV_START,
      });
    }
    for (const transition of event.transitions ?? []) this.#transition(transition, event);
    for (const hit of event.prefix_hits ?? []) this.requests.get(hit.id).prefix_hits += hit.tokens;
    for (const token of event.tokens ?? []) {
      const request = this.requests.get(token.id);
      request.outputs += 1;
      request.times.push(event.time);
      request.digest = fold(request.digest, token.token);
      request.first_token_step ??= event.step;
    }
    if (event.type === "step") this.#step(event, state);
    this.#memory(event, state);
    this.peaks.queue = Math.max(this.peaks.queue, state.queue.length);
  }

  #transition(transition, event) {
    const request = this.requests.get(transition.id);
    const { cause } = transition;
    if (cause === "admitted" && request.admitted_step === null) {
      request.admitted = transition.time;
      request.admitted_step = event.step;
    } else if (cause === "offload") request.offloads += 1;
    else if (cause === "soft_reset") request.soft_resets += 1;
    else if (["finished", "cancelled", "failed"].includes(transition.to) && cause !== "static_release") {
      request.finished = transition.time;
      request.finished_step = event.step;
    }
  }

  #step(event, state) {
    const { series, peaks } = this;
    const slices = event.slices ?? [];
    const real = slices.filter((piece) => piece[3] !== "padding");
    const prompts = real.filter((piece) => piece[3] === "prefill").map((piece) => piece[2]);
    const reason = state.waiting.refused[0]?.reason;
    if (reason in this.waited) this.waited[reason] += 1;
    if (slices.length) {
      for (const piece of real) this.requests.get(piece[0]).slices += piece[3] === "prefill" ? 1 : 0;
      series.batch.push(real.length);
      series.tokens.push(sum(real.map((piece) => piece[2])));
      series.kv.push(sum(real.map((piece) => piece[1] + piece[2])));
      if (event.budget) series.budget.push(event.budget.tokens[0] / event.budget.tokens[1]);
      if (prompts.length) peaks.slice = Math.max(peaks.slice, ...prompts);
      if (prompts.length && prompts.length < real.length) peaks.intrusion = Math.max(peaks.intrusion, sum(prompts));
    }
    this.#timing(event, real.length > 0 && !prompts.length);
  }

  #timing(event, onlyDecodes) {
    const { device, prepare } = event.timing ?? {};
    if (device) {
      this.deviceSpans.set(device[0], [device[1], device[2]]);
      this.series.device.push(device[2] - device[1]);
      if (onlyDecodes && device[0] === event.step) this.series.decode.push(device[2] - device[1]);
    }
    if (prepare) {
      this.prepareSpans.set(prepare[0], [prepare[1], prepare[2]]);
      this.series.prepare.push(prepare[2] - prepare[1]);
    }
    if (event.tokens?.length) {
      if (this.lastResult !== null) this.series.cycle.push(event.time - this.lastResult);
      this.lastResult = event.time;
    }
  }

  #memory(event, state) {
    const { layout } = state;
    if (!layout || !["blocks", "slices", "layout", "transitions"].some((name) => name in event)) return;
    const owners = new Map();
    let slots = 0;
    let tokens = 0;
    for (const request of Object.values(state.requests)) {
      request.tables.forEach((table, at) => {
        const group = layout.groups[at];
        const held = group.window === null ? request.computed : Math.min(request.computed, group.window);
        slots += table.length * layout.block_size;
        tokens += Math.min(held, table.length * layout.block_size);
        for (const block of table) owners.set(block, (owners.get(block) ?? 0) + 1);
      });
    }
    const used = owners.size;
    const cached = Object.keys(state.hashes).filter((block) => !owners.has(Number(block))).length;
    this.blocksNow = [used, cached];
    const { peaks } = this;
    peaks.used = Math.max(peaks.used, used);
    peaks.cached = Math.max(peaks.cached, cached);
    peaks.shared = Math.max(peaks.shared, [...owners.values()].filter((count) => count > 1).length);
    const free = layout.num_blocks - used;
    this.freeMin = this.freeMin === null ? free : Math.min(this.freeMin, free);
    if (event.type === "step") {
      this.series.used.push(used);
      if (slots) this.series.waste.push(1 - tokens / slots);
    }
  }

  /** Every metric by name (see METRICS in lessons/measure.py), or null before the first event. */
  record() {
    const { state, series, peaks } = this;
    if (!state) return null;
    const all = [...this.requests.values()];
    const rows = all.map((request) => this.#request(request));
    const seconds = all.length ? state.time - Math.min(...all.map((request) => request.arrival)) : 0;
    const current = Object.values(state.requests);
    const count = (name) => current.filter((request) => request.state === name).length;
    const found = {
      ...state.counters, step: state.step, time: state.time, steps_run: series.batch.length, seconds, requests: rows,
      pending: count("pending"), prefilling: count("prefilling"), decoding: count("decoding"),
      offloaded: current.filter((request) => request.offloaded).length, ended: all.filter((request) => request.finished !== null).length,
    };
    for (const kind of ["ttft", "queue", "itl", "e2e"]) {
      const values = kind === "itl" ? all.flatMap((request) => gapsOf(request.times)) : rows.map((row) => row[kind]).filter((value) => value !== null);
      found[`${kind}_mean`] = mean(values);
      for (const [name, share] of SHARES) found[`${kind}_${name}`] = percentile(values, share);
    }
    const finished = rows.filter((row) => row.e2e !== null);
    const good = finished.filter((row) => this.#good(row));
    const rate = (amount) => (seconds ? amount / seconds : null);
    const { counters } = state;
    const computed = counters.prompt_tokens + counters.output_tokens + counters.padding_tokens;
    const layout = state.layout ?? {};
    return Object.assign(found, {
      output_tok_s: rate(sum(rows.map((row) => row.outputs))), request_s: rate(finished.length),
      good_share: rows.length ? good.length / rows.length : null, good_tok_s: rate(sum(good.map((row) => row.outputs))),
      batch_max: most(series.batch, 0), batch_mean: mean(series.batch), step_tokens_max: most(series.tokens, 0),
      step_tokens_mean: mean(series.tokens), budget_use: mean(series.budget), slice_max: peaks.slice, intrusion_max: peaks.intrusion,
      kv_read_mean: mean(series.kv), device_s: sum(series.device), step_s_p50: percentile(series.device, 0.5),
      step_s_max: most(series.device, null), decode_s_p50: percentile(series.decode, 0.5), cycle_s_p50: percentile(series.cycle, 0.5),
      device_busy: this.#busy(), prepare_s_mean: mean(series.prepare), overlap: this.#overlap(),
      blocks_total: layout.num_blocks ?? null, block_size: layout.block_size ?? null, block_bytes: layout.block_bytes ?? null,
      groups: layout.groups?.length ?? 0, used_max: peaks.used, used_mean: mean(series.used), used_now: this.blocksNow[0],
      cached_now: this.blocksNow[1], free_min: this.freeMin, cached_max: peaks.cached, shared_max: peaks.shared,
      waste_mean: mean(series.waste), waste_max: most(series.waste, null), waited: { ...this.waited }, queue_max: peaks.queue,
      preemptions: counters.offloads + counters.soft_resets, padding_share: computed ? counters.padding_tokens / computed : null,
      hit_share: counters.prefix_query_tokens ? counters.prefix_hit_tokens / counters.prefix_query_tokens : null,
      digest: all.reduce((digest, request) => fold(digest, request.digest), FNV_START), simulated: Boolean(state.engine.simulated),
    });
  }

  #request(request) {
    const gaps = gapsOf(request.times);
    return {
      ...Object.fromEntries(FIELDS.map((name) => [name, request[name]])),
      queue: request.admitted === null ? null : request.admitted - request.arrival,
      ttft: request.times.length ? request.times[0] - request.arrival : null,
      e2e: request.finished === null ? null : request.finished - request.arrival,
      itl_mean: mean(gaps), itl_max: most(gaps, null),
    };
  }

  #good(row) {
    const late = row.ttft === null || row.ttft > (this.limits.ttft ?? Infinity);
    return !late && !(row.itl_mean !== null && row.itl_mean > (this.limits.itl ?? Infinity));
  }

  #busy() {
    const spans = [...this.deviceSpans.values()];
    if (!spans.length) return null;
    const whole = Math.max(...spans.map((span) => span[1])) - Math.min(...spans.map((span) => span[0]));
    return whole > 0 ? Math.min(1, sum(spans.map(([start, end]) => end - start)) / whole) : null;
  }

  #overlap() {
    let total = 0;
    let hidden = 0;
    for (const [step, [start, end]] of this.prepareSpans) {
      total += end - start;
      const before = this.deviceSpans.get(step - 1);
      if (before) hidden += Math.max(0, Math.min(end, before[1]) - Math.max(start, before[0]));
    }
    return total > 0 ? hidden / total : null;
  }
}
