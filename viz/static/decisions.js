// What the engine decided, as rows that sentences are made from: the decision log shows all of them, a request's story those
// that concern it. A store track: sees each event once, in order, and keeps a bounded number of rows.
//
// A row is {seq, step, time, id, key, values, until, untilSeq, detail}. `key` names the sentence (`log.<key>` in viz/i18n);
// `until` is set on rows that stand for several steps in a row (waiting for one reason, decoding); `detail` rows are only for
// a request's story. Nothing is inferred: each row repeats a transition, a refusal or an operation of the event.

const MAX_ROWS = 4000;
const DROP_AT_ONCE = 500;
const ENDS = new Set(['stop', 'length', 'failed']);

export class DecisionTrack {
  constructor() { this.reset(); }

  reset(state) {
    this.rows = [];
    this.status = state?.engine?.status ?? null;
    this.waiting = new Map();        // request → its open row "waits for this reason"
    this.decoding = new Map();       // request → its open row "writes tokens"
    this.version = 0;
    this.dropped = 0;                // rows forgotten at the front, so that a place in the list stays a stable number
  }

  // Events were lost: rows seen before stay true, but nothing is known to have gone on since; unless the numbering began anew.
  heal(state) {
    if (this.rows.length && this.rows.at(-1).seq > state.seq) { this.reset(); return; }
    this.waiting.clear();
    this.decoding.clear();
    this.version += 1;
  }

  forget(oldestSeq) {
    let count = 0;
    while (count < this.rows.length && (this.rows[count].untilSeq ?? this.rows[count].seq) < oldestSeq) count += 1;
    this.#drop(count);
  }

  #drop(count) {
    if (!count) return;
    this.rows.splice(0, count);
    this.dropped += count;
    this.version += 1;
  }

  push(event, state) {
    const base = { seq: event.seq, step: event.step, time: event.time };
    const add = (id, key, values = {}, detail = false) => {
      const row = { ...base, id, key, values, detail, until: null, untilSeq: null };
      this.rows.push(row);
      return row;
    };
    // The engine repeats its status with every announcement; only a change of it is news.
    if (event.engine?.status && event.engine.status !== this.status) {
      this.status = event.engine.status;
      add(null, `engine_${event.engine.status}`, { message: event.engine.message ?? '' });
    }
    for (const row of configRows(event)) add(null, row.key, row.values);
    for (const record of event.requests ?? []) {
      add(record.id, record.parent ? 'forked' : 'arrives', { tokens: record.prompt_tokens.length, limit: record.params?.max_new_tokens ?? '?', parent: record.parent });
    }
    for (const hit of event.prefix_hits ?? []) add(hit.id, 'prefix_hit', { tokens: hit.tokens, blocks: hit.blocks });
    // In the order of a step: what was decided, what was computed, what came of it. A slice told after its request's end would
    // open a row that nothing closes.
    const transitions = event.transitions ?? [];
    const tell = (chosen) => { for (const item of transitions) if (chosen(item.cause)) this.#transition(item, state, add); };
    tell((cause) => cause !== 'prompt_done' && !ENDS.has(cause));
    for (const operation of event.blocks ?? []) blockRow(operation, add);
    if (event.graph?.action === 'capture') add(null, 'capture', { shape: event.graph.key, backend: event.graph.backend });
    for (const slice of event.slices ?? []) this.#slice(slice, base, state, add);
    tell((cause) => cause === 'prompt_done');
    for (const token of event.tokens ?? []) {
      const request = state.requests[token.id];
      if (request && request.outputs === 1) add(token.id, 'first_token', { ms: 1000 * (event.time - request.arrival) }, true);
    }
    tell((cause) => ENDS.has(cause));
    if (event.type === 'step' || event.waiting) this.#refusals(state.waiting, base, state, add);
    if (this.rows.length > MAX_ROWS) this.#drop(DROP_AT_ONCE);
    this.version += 1;
  }

  #transition(transition, state, add) {
    const { id, cause } = transition;
    this.waiting.delete(id);
    if (cause !== 'prompt_done') this.decoding.delete(id);
    const request = state.requests[id];
    const values = { for: transition.for ?? [], demand: transition.demand ?? 0, blocks: transition.blocks ?? 0 };
    if (cause === 'admitted') values.ms = request ? 1000 * (transition.time - request.arrival) : 0;
    if (cause === 'stop' || cause === 'length') values.tokens = request?.outputs ?? 0;
    if (cause === 'failed') values.reason = transition.reason ?? '';
    // A request may be preempted because it is itself the newest of those that lack blocks.
    const forItself = (cause === 'offload' || cause === 'soft_reset') && !values.for.length;
    add(id, forItself ? `${cause}_self` : cause, values);
  }

  #slice([id, start, length, kind], base, state, add) {
    if (kind === 'decode') {
      const open = this.decoding.get(id);
      if (open && open.until === base.step - 1) {
        open.until = base.step;
        open.untilSeq = base.seq;
        open.values.tokens += 1;
        return;
      }
      const row = add(id, 'decodes', { tokens: 1 }, true);
      row.until = base.step;
      row.untilSeq = base.seq;
      this.decoding.set(id, row);
    } else if (kind === 'prefill') {
      add(id, 'computes', { count: length, from: start, to: start + length, total: state.requests[id]?.prompt_len ?? 0 }, true);
    } else {
      this.decoding.delete(id);
    }
  }

  #refusals(waiting, base, state, add) {
    const seen = new Set();
    for (const refused of waiting?.refused ?? []) {
      seen.add(refused.id);
      this.#stillWaiting(refused.id, `wait_${refused.reason}`, { need: refused.need, have: refused.have, limit: refused.limit }, base, add);
    }
    if (waiting?.behind != null && waiting.behind_count > 0) {
      seen.add('');
      this.#stillWaiting('', 'wait_behind', { behind: waiting.behind, count: waiting.behind_count }, base, add);
    }
    for (const id of this.waiting.keys()) if (!seen.has(id)) this.waiting.delete(id);
  }

  // One row per reason, however many steps it lasts. The numbers are those of the first refusal.
  #stillWaiting(id, key, values, base, add) {
    const open = this.waiting.get(id);
    if (open && open.key === key && (id || open.values.behind === values.behind)) {
      open.until = base.step;
      open.untilSeq = base.seq;
      return;
    }
    this.waiting.set(id, add(id || values.behind, key, values));
  }
}

function configRows(event) {
  if (!event.changed?.length || !event.config) return [];
  const changes = event.changed.map((name) => `${name} = ${event.config[name] ?? 'auto'}`).join(', ');
  return [{ key: event.rebuilt ? 'config_rebuilt' : 'config_changed', values: { changes } }];
}

function blockRow(operation, add) {
  const [name, id] = operation;
  if (name === 'share' && operation[4] === 'fork') add(id, 'shares', { blocks: operation[3].length });
  else if (name === 'copy') add(id, 'copies', { from: operation[4], to: operation[5] });
  else if (name === 'demote') add(null, 'demotes', { blocks: operation[1].length });
  else if (name === 'forget') add(null, 'forgets');
}

// --- sentences ---------------------------------------------------------------------------------------------------------

// The sentence of a row. `step` is the step that is being looked at: a row that lasts beyond it is told only that far.
export function sentence(row, t, step = Infinity) {
  const values = { id: row.id ?? '', ...row.values };
  if (row.key === 'decodes' && row.until > step) values.tokens -= row.until - step;
  if ('ms' in values) values.ms = duration(values.ms, t);
  if (Array.isArray(values.for)) values.for = values.for.join(', ');
  // "1 token", "2 tokens": English needs both, and the sentences carry only the name.
  for (const [name, unit] of [['blocks', 'block'], ['tokens', 'token']]) {
    if (typeof values[name] === 'number') values[name] = t(values[name] === 1 ? `unit.${unit}` : `unit.${unit}s`, { count: t.number(values[name]) });
  }
  for (const name of ['need', 'have', 'limit']) if (typeof values[name] === 'number') values[name] = t.number(values[name]);
  const key = `log.${row.key}`;
  return t(t.has(key) ? key : 'log.other', t.has(key) ? values : { ...values, key: row.key });
}

// "step 57" or "steps 57–63", only as far as the step that is being looked at.
export function stepLabel(row, t, step = Infinity) {
  const until = row.until === null ? row.step : Math.min(row.until, step);
  return until > row.step ? t('log.steps', { from: row.step, to: until }) : t('log.step', { step: row.step });
}

export function duration(ms, t) {
  return ms >= 10000 ? `${t.number(ms / 1000, 1)} s` : ms >= 100 ? `${t.number(ms)} ms` : `${t.number(ms, 1)} ms`;
}

// Whether a row tells something about this request.
export const concerns = (row, id) => row.id === id || (Array.isArray(row.values.for) && row.values.for.includes(id));

export const decisionTrack = (store) => store.track('decisions', () => new DecisionTrack());
