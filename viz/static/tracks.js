// Series that panels share, derived from the event stream as it arrives (see Store.track). Rows carry `seq`, so that a panel which
// looks at the past can leave out what came later. Both are bounded.

const MAX_STEPS = 20000;
const MAX_LIVES = 3000;

// One row a step: {seq, step, time, slices, tokens, budget, graph, timing}.
export class StepRows {
  rows = [];
  reset() { this.rows = []; }
  heal() { /* rows before a gap stay true; the steps that were lost are simply missing */ }

  push(event) {
    if (event.type !== 'step') return;
    this.rows.push({
      seq: event.seq, step: event.step, time: event.time, slices: event.slices ?? [], tokens: event.tokens?.length ?? 0,
      budget: event.budget ?? null, graph: event.graph ?? null, timing: event.timing ?? null,
    });
    if (this.rows.length > MAX_STEPS) this.rows.splice(0, MAX_STEPS / 10);
  }

  forget(oldest) {
    const keep = this.rows.findIndex((row) => row.seq >= oldest);
    if (keep > 0) this.rows.splice(0, keep);
  }

  // Index one behind the last row with seq <= `seq`.
  upTo(seq) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].seq <= seq) low = middle + 1; else high = middle;
    }
    return low;
  }
}

export const stepRows = (store) => store.track('steps', () => new StepRows());

const MARK_OF_CAUSE = {
  offload: 'offload', restore: 'restore', soft_reset: 'soft_reset', rebuild: 'soft_reset', stop: 'finished', length: 'finished',
  cancelled: 'cancelled', failed: 'failed',
};

// The life of each request in runs of steps:
//   spans: {kind: 'queued' | 'active' | 'offloaded', from, to}   where it stood; `to` is null while it lasts
//   work:  {kind: 'prefill' | 'decode' | 'padding', from, to}      steps in which it was computed, neighbours joined
//   marks: {kind, step, seq}                                       what happened to it at once
// Step s covers [s, s + 1).
export class Lives {
  byId = new Map();

  reset(state) {
    this.byId.clear();
    this.heal(state);
  }

  // After a gap: what is known now goes on from here.
  heal(state) {
    for (const id of [...state.queue, ...state.active]) {
      const request = state.requests[id];
      const life = this.#lifeOf(request, state.seq);
      const kind = request.offloaded ? 'offloaded' : request.state === 'pending' ? 'queued' : 'active';
      const open = life.spans.at(-1);
      if (open?.to === null && open.kind !== kind) this.#close(life, state.step + 1);
      if (life.spans.at(-1)?.to !== null) life.spans.push({ kind, from: state.step + 1, to: null });
    }
    for (const life of this.byId.values()) {
      const request = state.requests[life.id];
      if (!request || request.finished !== null) this.#close(life, state.step + 1);
    }
  }

  push(event, state) {
    for (const record of event.requests ?? []) {
      const life = this.#lifeOf(record, event.seq);
      life.spans.push({ kind: 'queued', from: record.arrival_step + 1, to: null });
    }
    for (const transition of event.transitions ?? []) this.#transition(transition, event);
    for (const [id, , count, kind] of event.slices ?? []) {
      const life = this.byId.get(id);
      if (!life) continue;
      const last = life.work.at(-1);
      if (last && last.kind === kind && last.to === event.step && kind !== 'prefill') last.to = event.step + 1;
      else life.work.push({ kind, from: event.step, to: event.step + 1, count });
      life.lastSeq = event.seq;
    }
    if (this.byId.size > MAX_LIVES) this.#dropOldest(state);
  }

  #transition(transition, event) {
    const life = this.byId.get(transition.id);
    if (!life) return;
    const { cause } = transition;
    life.lastSeq = event.seq;
    const mark = MARK_OF_CAUSE[cause];
    if (mark) life.marks.push({ kind: mark, step: event.step, seq: event.seq });
    const next = { admitted: 'active', restore: 'active', offload: 'offloaded', soft_reset: 'queued', rebuild: 'queued' }[cause];
    if (next) { this.#close(life, event.step); life.spans.push({ kind: next, from: event.step, to: null }); }
    else if (mark) this.#close(life, event.step + 1);
  }

  #lifeOf(request, seq) {
    let life = this.byId.get(request.id);
    if (!life) {
      life = { id: request.id, ordinal: request.ordinal, spans: [], work: [], marks: [], lastSeq: seq, firstSeq: seq };
      this.byId.set(request.id, life);
    }
    return life;
  }

  #close(life, step) {
    const open = life.spans.at(-1);
    if (open && open.to === null) open.to = Math.max(open.from, step);
  }

  #dropOldest(state) {
    for (const life of this.byId.values()) {
      if (this.byId.size <= MAX_LIVES * 0.9) break;
      if (state.requests[life.id]?.finished !== null) this.byId.delete(life.id);
    }
  }

  forget(oldest) {
    for (const life of this.byId.values()) if (life.lastSeq < oldest && life.spans.at(-1)?.to !== null) this.byId.delete(life.id);
  }
}

export const lives = (store) => store.track('lives', () => new Lives());
