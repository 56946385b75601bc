// What two compared rooms are made of: configurations, one workload, a device. Pure data, so that a share link can carry it.

// The textbook case: two places, four requests of 8, 2, 2 and 3 tokens. Static batching needs 11 steps and leaves 7 cells idle;
// continuous batching needs 8 and leaves 1.
export const TEXTBOOK = {
  name: 'textbook', content: 'tokens',
  items: [8, 2, 2, 3].map((output) => ({ at_step: 0, prompt: 4, output })),
};
const SMALL = { block_size: 16, num_blocks: 64, max_batch_tokens: 64 };

// One-click comparisons: {key, configs: [a, b], workload or preset}.
export const PAIRS = [
  { key: 'textbook', configs: [{ ...SMALL, max_requests_per_batch: 2, scheduler_type: 'static' }, { ...SMALL, max_requests_per_batch: 2, scheduler_type: 'fifo' }], workload: TEXTBOOK },
  { key: 'static_continuous', configs: [{ ...SMALL, num_blocks: 128, max_requests_per_batch: 4, scheduler_type: 'static' }, { ...SMALL, num_blocks: 128, max_requests_per_batch: 4, scheduler_type: 'fifo' }],
    workload: { name: 'static or continuous', num_requests: 12, arrivals: { kind: 'at_once' }, prompt_length: { kind: 'fixed', value: 16 }, output_length: { kind: 'uniform', low: 2, high: 48 } } },
  { key: 'chunked', configs: [{ ...SMALL, num_blocks: 256, max_batch_tokens: 128, chunked_prefill: false }, { ...SMALL, num_blocks: 256, max_batch_tokens: 32, chunked_prefill: true }],
    workload: { name: 'a long prompt', items: [{ at_step: 0, prompt: 12, output: 40 }, { at_step: 0, prompt: 12, output: 40 }, { at_step: 8, prompt: 360, output: 8 }] } },
  { key: 'prefix', configs: [{ ...SMALL, num_blocks: 256, allow_block_sharing: false }, { ...SMALL, num_blocks: 256, allow_block_sharing: true }],
    workload: { name: 'one system prompt', num_requests: 8, arrivals: { kind: 'at_once' }, shared_prefix: { tokens: 128, groups: 1 }, prompt_length: { kind: 'uniform', low: 6, high: 20 }, output_length: { kind: 'fixed', value: 12 } } },
  { key: 'offload', configs: [{ block_size: 8, num_blocks: 40, max_batch_tokens: 64, max_requests_per_batch: 8, safety_margin: 0, cpu_offload_space: 0, allow_block_sharing: false },
    { block_size: 8, num_blocks: 40, max_batch_tokens: 64, max_requests_per_batch: 8, safety_margin: 0, cpu_offload_space: 0.05, allow_block_sharing: false }],
    workload: { name: 'more than the cache holds', num_requests: 10, arrivals: { kind: 'at_once' }, prompt_length: { kind: 'fixed', value: 24 }, output_length: { kind: 'fixed', value: 40 } } },
];

// Rows of the configuration table that are always shown; the others come when they differ or are asked for.
export const MAIN_KNOBS = ['scheduler_type', 'max_batch_tokens', 'max_requests_per_batch', 'num_blocks', 'block_size', 'chunked_prefill', 'allow_block_sharing', 'safety_margin', 'cpu_offload_space'];

// {configs: [a, b], workload, device, model, seed} with every value checked by the engine later; unknown names are left out here so
// that an old link still opens.
export function cleanSetup(value, knobs) {
  const known = new Set(knobs.map((knob) => knob.name));
  const clean = (config) => Object.fromEntries(Object.entries(config ?? {}).filter(([name, item]) => known.has(name) && (item === null || ['number', 'string', 'boolean'].includes(typeof item))));
  return {
    configs: [clean(value?.configs?.[0]), clean(value?.configs?.[1])],
    workload: typeof value?.workload === 'object' && value.workload !== null ? value.workload : TEXTBOOK,
    device: typeof value?.device === 'string' ? value.device.slice(0, 60) : 'model',
    model: typeof value?.model === 'string' ? value.model.slice(0, 60) : null,
  };
}

// The knobs in which two configurations differ, defaults filled in: [[name, a, b]].
export function differences(configs, knobs) {
  return knobs.map((knob) => [knob.name, ...configs.map((config) => (knob.name in config ? config[knob.name] : knob.default))]).filter(([, a, b]) => a !== b);
}

// Opens both rooms, paused, with the workload queued in each. Throws what the engine refuses; then nothing is left open.
export async function openPair(app, setup, titles, RoomLink) {
  const links = [];
  try {
    for (const [index, config] of setup.configs.entries()) {
      const made = await app.socket.command('create_room', {
        title: titles[index], config, paused: true, device: setup.device, ...(setup.device !== 'model' && setup.model ? { model: setup.model } : {}),
      });
      const link = new RoomLink(app, made.room, titles[index]);
      links.push(link);
      await link.open();
    }
    for (const link of links) await link.command('workload', { workload: setup.workload });
  } catch (error) {
    for (const link of links) await link.destroy();
    throw error;
  }
  return links;
}

// "What if": the same history twice, up to `step`, once as it was and once with `changes`. `source`: {room} of a live room or
// {journal} of a recording. Both rooms are paused at that step. Resolves to {links, futures}: what the run was still asked for
// afterwards, for PairRun to ask again.
export async function forkPair(app, source, step, changes, titles, RoomLink) {
  const links = [];
  try {
    const journal = source.journal ?? await app.socket.command('journal', { room: source.room });
    for (const [index, wanted] of [{}, changes].entries()) {
      const made = await app.socket.command('fork', { ...source, step, changes: wanted, title: titles[index] });
      const link = new RoomLink(app, made.room, titles[index]);
      links.push(link);
      await link.open();
    }
    await Promise.all(links.map((link) => replayed(link)));
    await Promise.all(links.map((link) => link.fetchPast()));
    return { links, futures: links.map((link, side) => futureOf(journal.entries, link.store.head, step, side ? changes : {})) };
  } catch (error) {
    for (const link of links) await link.destroy();
    throw error;
  }
}

// The entries that a room forked at `step` has not obeyed: submissions beyond those it knows, and other entries of later steps.
// Knobs that the fork changed stay as it wants them.
export function futureOf(entries, state, step, changes) {
  let known = Math.max(0, ...Object.values(state.requests).map((request) => request.ordinal));
  const future = [];
  for (const entry of entries) {
    if (entry.op === 'submit') {
      known -= entry.params?.n ?? 1;
      if (known < 0) future.push(entry);
    } else if (entry.step > step && entry.op === 'cancel') future.push(entry);
    else if (entry.step > step && entry.op === 'configure') {
      const kept = Object.fromEntries(Object.entries(entry.changes).filter(([name]) => !(name in changes)));
      if (Object.keys(kept).length) future.push({ ...entry, changes: kept });
    } else if (entry.step > step && entry.op === 'reset') break;            // what came after a reset is another run
  }
  return future;
}

// A forked room re-runs its journal and then says that it is paused.
function replayed(link) {
  const there = () => link.store.head.engine.status === 'paused' || link.store.head.engine.status === 'failed';
  if (there()) return Promise.resolve();
  return new Promise((resolve) => { const stop = link.store.subscribe(() => { if (there()) { stop(); resolve(); } }); });
}
