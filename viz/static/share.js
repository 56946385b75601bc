// The whole state of the page in the address behind "#": configuration, workload, panels, language, lesson step, compared setup. It
// is compact (only what differs from the defaults, as JSON, deflated, in base64url), versioned ("b1."), checked on opening, and
// never holds a secret: the host's token stands in the query string and is not read here.

import { cleanSetup } from './compare_setup.js';

const MARK = 'b1.';
const MAX_LENGTH = 8000;             // characters of a link that every browser and chat program takes
const MAX_UNPACKED = 200000;
const TABS = ['live', 'compare', 'lessons', 'recordings'];

// A link that cannot be opened: `key` is a text (`share.bad.<key>`).
export class LinkRefused extends Error {
  constructor(key) { super(key); this.key = key; }
}

// Only what differs from the default of each knob.
export function configDifference(config, knobs) {
  return Object.fromEntries(knobs.filter((knob) => config && knob.name in config && config[knob.name] !== knob.default).map((knob) => [knob.name, config[knob.name]]));
}

// The state to share. Parts are left out when they say nothing.
export function stateToShare(app, extra = {}) {
  const { head } = app.store;
  const state = {
    t: extra.tab, c: configDifference(head.config, app.data.knobs), w: extra.workload ?? app.workload ?? undefined, p: app.layout.toText() || undefined,
    l: app.t.language(), h: (extra.hidden ?? document.body.dataset.hiddenControls) || undefined, s: extra.lesson ?? app.lesson ?? undefined, x: extra.compare ?? app.compare?.setup ?? undefined,
    d: document.body.classList.contains('bs-projector') ? 'projector' : undefined,
  };
  return Object.fromEntries(Object.entries(state).filter(([, value]) => value !== undefined));
}

export async function pack(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const packed = new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream('deflate-raw'))).arrayBuffer());
  let binary = '';
  for (const byte of packed) binary += String.fromCharCode(byte);
  return MARK + btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

// The state in a hash ("#b1.…"), or null when there is none. Throws LinkRefused.
export async function unpack(hash) {
  const text = hash.replace(/^#/, '');
  if (!/^b\d+\./.test(text)) return null;
  if (!text.startsWith(MARK)) throw new LinkRefused('version');
  if (text.length > MAX_LENGTH * 2) throw new LinkRefused('long');
  let value;
  try {
    const binary = atob(text.slice(MARK.length).replace(/-/g, '+').replace(/_/g, '/'));
    const stream = new Blob([Uint8Array.from(binary, (letter) => letter.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
    value = JSON.parse(await boundedText(stream));
  } catch (error) { throw error instanceof LinkRefused ? error : new LinkRefused('damaged'); }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new LinkRefused('damaged');
  return value;
}

async function boundedText(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    if (text.length > MAX_UNPACKED) { reader.cancel(); throw new LinkRefused('long'); }
  }
}

// Reads an unpacked state, keeping what is known and of the right kind; the values themselves are checked by whoever takes them
// (the engine refuses a bad knob with a sentence).
export function clean(value, app) {
  const knobs = new Map(app.data.knobs.map((knob) => [knob.name, knob]));
  const scalar = (item) => item === null || ['number', 'string', 'boolean'].includes(typeof item);
  const short = (item, length) => (typeof item === 'string' && item.length <= length ? item : null);
  const plain = (item) => (item !== null && typeof item === 'object' && !Array.isArray(item) ? item : null);
  return {
    tab: TABS.includes(value.t) ? value.t : null,
    config: Object.fromEntries(Object.entries(plain(value.c) ?? {}).filter(([name, item]) => knobs.has(name) && scalar(item))),
    workload: plain(value.w), panels: short(value.p, 2000)?.match(/^[a-z0-9_.,]*$/)?.[0] ?? null,
    language: app.t.languages().includes(value.l) ? value.l : null, hidden: short(value.h, 200)?.match(/^[a-z0-9_, -]*$/)?.[0] ?? null,
    lesson: plain(value.s) ?? short(value.s, 80), compare: plain(value.x) ? cleanSetup(value.x, app.data.knobs) : null, projector: value.d === 'projector',
  };
}

// Opens a shared state: texts and panels at once; settings and workload in a room of one's own, so that a link never changes what
// others are looking at. Resolves to a sentence about what was done, or null when there was no link. Throws LinkRefused.
export async function openLink(app, hash, show) {
  const packed = await unpack(hash);
  if (packed === null) return null;
  const state = clean(packed, app);
  if (state.language) app.setLanguage(state.language);
  if (state.panels !== null) { app.layout.fromText(state.panels); app.screen?.applyLayout(); }
  if (state.projector) app.setProjector(true);
  if (state.hidden) document.body.dataset.hiddenControls = state.hidden;
  if (state.lesson !== null) app.lesson = state.lesson;
  if (state.compare) {
    if (app.compare) document.dispatchEvent(new CustomEvent('bs:compare', { detail: { setup: state.compare } }));
    else app.compareRequest = { setup: state.compare };
  }
  if (state.tab) show(state.tab);
  if (!state.workload && !Object.keys(state.config).length) return app.t('share.opened');
  const full = Object.fromEntries(app.data.knobs.map((knob) => [knob.name, knob.name in state.config ? state.config[knob.name] : knob.default]));
  const room = await app.socket.command('create_room', { title: app.t('share.room'), config: full, paused: true });
  await app.watch(room.room);
  if (state.workload) { await app.socket.command('workload', { room: room.room, workload: state.workload }); app.workload = state.workload; }
  await app.socket.command('pace', { room: room.room, steps_per_second: 8 });
  await app.socket.command('resume', { room: room.room });
  return app.t('share.opened_room');
}

// The link to this page as it is. The query string is left out, because it may hold the host's token.
export async function shareLink(app, extra) {
  return `${location.origin}${location.pathname}#${await pack(stateToShare(app, extra))}`;
}

export const tooLong = (link) => link.length > MAX_LENGTH;

// A run card to paste into a report: what ran where, with which settings, and what came out.
export function runCardText(state, { workload = null, knobs, header = {} } = {}) {
  const engine = state.engine ?? {};
  const { counters } = state;
  const lines = [
    ['batchscope run', header.title || ''], ['model', header.model || engine.model], ['device', `${header.device || engine.device}${engine.simulated ? ' (simulated)' : ''}`],
    ['dtype', header.dtype || engine.dtype], ['attention', engine.backend], ['recorded', header.started ?? ''],
    ['settings', JSON.stringify(configDifference(state.config, knobs))], ['workload', workload ? JSON.stringify(workload) : ''], ['seed', state.config?.seed ?? 0],
    ['cache', state.layout ? `${state.layout.num_blocks} blocks × ${state.layout.block_size} tokens` : ''], ['steps', counters.steps],
    ['tokens', `${counters.prompt_tokens} prompt computed, ${counters.prefix_hit_tokens} prompt from cache, ${counters.output_tokens} output`],
    ['preemptions', `${counters.offloads} offloads, ${counters.soft_resets} soft resets`], ['ended', `${counters.finished} finished, ${counters.cancelled} cancelled, ${counters.failed} failed`],
  ];
  return lines.filter(([, value]) => value !== '' && value !== undefined).map(([name, value]) => `${name}: ${value}`).join('\n');
}
