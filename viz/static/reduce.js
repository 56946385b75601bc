// The browser's reducer: builds the engine's state document from its event stream, section by section, in the order of the table
// in ARCHITECTURE.md. It is the twin of engine/state.py; tests hold both to Engine.snapshot() at every step.
//
// `apply` changes the state it is given and returns it (a snapshot returns a fresh one), so a caller that wants to keep a moment
// takes a `clone` first. No clock, no randomness, no page: the same events always give the same state.

const COUNTERS = [
  'steps', 'prompt_tokens', 'output_tokens', 'padding_tokens', 'prefix_hit_tokens', 'prefix_query_tokens', 'offloads',
  'soft_resets', 'restores', 'swap_bytes_out', 'swap_bytes_in', 'copies', 'idle_cells', 'useful_cells', 'captures', 'replays',
  'eager_steps', 'finished', 'cancelled', 'failed', 'recomputed_tokens',
];
const ENDED_STATES = new Set(['finished', 'cancelled', 'failed']);
const LAST_PARTS = ['slices', 'results_of', 'budget', 'graph', 'timing'];

export const emptyLast = () => ({ slices: [], results_of: null, budget: null, graph: null, timing: null });

export function emptyState() {
  return {
    seq: 0, step: 0, time: 0, engine: { status: 'loading' }, config: null, layout: null, requests: {}, queue: [], active: [], ended: [],
    hashes: {}, waiting: { refused: [], behind: null, behind_count: 0 }, last: emptyLast(),
    counters: Object.fromEntries(COUNTERS.map((name) => [name, 0])),
  };
}

export const isSnapshot = (message) => message.type === 'snapshot';

// A moment to keep: everything that `apply` may change later is copied, what it only replaces is shared.
export function clone(state) {
  const requests = {};
  for (const [id, request] of Object.entries(state.requests)) {
    const ended = ENDED_STATES.has(request.state);
    requests[id] = {
      ...request,
      tables: request.tables.map((table) => table.slice()),
      token_times: ended ? request.token_times : request.token_times.slice(),   // an ended request gets no more tokens
    };
  }
  return {
    ...state, requests, queue: state.queue.slice(), active: state.active.slice(), ended: state.ended.slice(),
    hashes: { ...state.hashes }, counters: { ...state.counters },
  };
}

export function apply(state, event) {
  if (isSnapshot(event)) return clone(event.state);
  if (event.seq !== state.seq + 1) throw new Error(`expected event ${state.seq + 1}, got ${event.seq}`);
  state.seq = event.seq;
  state.step = event.step;
  state.time = event.time;
  if ('engine' in event) state.engine = { ...state.engine, ...event.engine };
  if ('config' in event) state.config = event.config;
  if ('layout' in event) newLayout(state, event.layout);
  const { requests } = state;
  for (const record of event.requests ?? []) {
    requests[record.id] = newRequest(record);
    state.queue.push(record.id);
  }
  for (const transition of event.transitions ?? []) applyTransition(state, transition);
  for (const operation of event.blocks ?? []) applyBlockOperation(state, operation);
  for (const [id, start, count, kind] of event.slices ?? []) {
    if (kind !== 'padding') requests[id].computed = start + count;
  }
  for (const hit of event.prefix_hits ?? []) requests[hit.id].prefix_hit_tokens += hit.tokens;
  for (const token of event.tokens ?? []) {
    const request = requests[token.id];
    request.outputs += 1;
    request.text += token.text;
    request.token_times.push(event.time);
    request.first_token ??= event.time;
  }
  if ('waiting' in event) state.waiting = event.waiting;
  if (event.type === 'step') {
    const last = emptyLast();
    for (const name of LAST_PARTS) if (name in event) last[name] = event[name];
    state.last = last;
  }
  Object.assign(state.counters, event.counters);
  for (const id of event.retired ?? []) {
    delete requests[id];
    remove(state.ended, id);
  }
  return state;
}

function newRequest(record) {
  return {
    id: record.id, ordinal: record.ordinal, prompt: record.prompt, prompt_len: record.prompt_tokens.length, params: record.params,
    arrival: record.arrival, arrival_step: record.arrival_step, parent: record.parent, visitor: record.visitor, state: 'pending',
    offloaded: false, computed: 0, outputs: 0, text: '', tables: [], slots: [], admitted: null, first_token: null, finished: null,
    reason: null, token_times: [], prefix_hit_tokens: 0, offloads: 0, soft_resets: 0, holds_slot: false,
  };
}

// A fresh cache: nothing is owned and nothing is known any more.
function newLayout(state, layout) {
  state.layout = layout;
  state.hashes = {};
  for (const request of Object.values(state.requests)) { request.tables = []; request.slots = []; }
}

function applyTransition(state, transition) {
  const { id, cause, to } = transition;
  const request = state.requests[id];
  request.state = to;
  if (cause === 'admitted') {
    remove(state.queue, id);
    state.active.push(id);
    request.admitted ??= transition.time;
  } else if (cause === 'restore') {
    request.offloaded = false;
    remove(state.queue, id);
    state.active.push(id);
  } else if (cause === 'offload' || cause === 'soft_reset' || cause === 'rebuild') {
    if (cause === 'offload') {
      request.offloaded = true;
      request.offloads += 1;
    } else {
      request.offloaded = false;
      request.computed = 0;
      if (cause === 'soft_reset') request.soft_resets += 1;
    }
    if (remove(state.active, id)) enqueueByArrival(state, id);
  } else if (cause === 'static_release') {
    request.holds_slot = false;
    remove(state.active, id);
    state.ended.push(id);
  } else if (ENDED_STATES.has(to)) {
    request.reason = transition.reason;
    request.finished = transition.time;
    request.offloaded = false;
    if (transition.holds_slot) { request.holds_slot = true; return; }
    if (!remove(state.queue, id)) remove(state.active, id);
    state.ended.push(id);
  }
}

// A preempted request returns to the queue at the place of its original arrival.
function enqueueByArrival(state, id) {
  const { ordinal } = state.requests[id];
  let at = state.queue.length;
  while (at > 0 && state.requests[state.queue[at - 1]].ordinal > ordinal) at -= 1;
  state.queue.splice(at, 0, id);
}

function applyBlockOperation(state, operation) {
  const { requests, hashes } = state;
  const [name, id] = operation;
  switch (name) {
    case 'alloc': case 'share': {
      const table = tableOf(state, id, operation[2]);
      for (const block of operation[3]) table.push(block);
      break;
    }
    case 'copy': tableOf(state, id, operation[2])[operation[3]] = operation[5]; break;
    case 'free': requests[id].tables = []; requests[id].slots = []; break;
    case 'hash': hashes[operation[1]] = [operation[2], operation[3]]; break;
    case 'demote': for (const block of operation[1]) delete hashes[block]; break;
    case 'forget': state.hashes = {}; break;
    case 'swap_out': requests[id].tables = []; requests[id].slots = operation[3].map((slots) => slots.slice()); break;
    case 'swap_in': requests[id].tables = operation[3].map((blocks) => blocks.slice()); requests[id].slots = []; break;
    default: throw new Error(`unknown block operation ${name}`);
  }
}

function tableOf(state, id, group) {
  const request = state.requests[id];
  if (!request.tables.length) request.tables = state.layout.groups.map(() => []);
  return request.tables[group];
}

function remove(list, item) {
  const at = list.indexOf(item);
  if (at >= 0) list.splice(at, 1);
  return at >= 0;
}

// Physical block → ids of the requests whose tables contain it.
export function blockOwners(state) {
  const owners = new Map();
  for (const [id, request] of Object.entries(state.requests)) {
    for (const table of request.tables) {
      for (const block of table) {
        const list = owners.get(block);
        if (list) list.push(id); else owners.set(block, [id]);
      }
    }
  }
  return owners;
}

// How many blocks are owned, cached (initialized, without an owner) and free (uninitialized).
export function blockCounts(state) {
  const owners = blockOwners(state);
  let cached = 0;
  for (const block of Object.keys(state.hashes)) if (!owners.has(Number(block))) cached += 1;
  const total = state.layout ? state.layout.num_blocks : 0;
  return { owned: owners.size, cached, free: total - owners.size - cached, total };
}
