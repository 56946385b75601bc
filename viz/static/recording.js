// Recordings in the browser: reading a file within limits, filling a store with it, and packing what a store has seen. The format
// and the reasons for the limits stand in viz/recording.py, its twin. What is read is data: it is never run and never becomes markup.

import { isSnapshot } from './reduce.js';

export const FORMAT = 'batchscope-recording';
export const VERSION = 1;
export const LIMITS = { packed: 64 * 2 ** 20, unpacked: 256 * 2 ** 20, line: 16 * 2 ** 20, lines: 200000, depth: 24 };
const EVENT_TYPES = new Set(['step', 'submit', 'cancel', 'config', 'engine']);

// A file that is not a recording, is damaged, or is too large. `key` and `values` make the sentence: `recording.refused.<key>`.
export class RecordingRefused extends Error {
  constructor(key, values = {}) { super(`${key} ${JSON.stringify(values)}`); this.key = key; this.values = values; }

  sentence(t) { return t(`recording.refused.${this.key}`, this.values); }
}

// Reads a Blob (or File) → {header, snapshot, events}. Throws RecordingRefused.
export async function parseRecording(blob, limits = LIMITS) {
  if (blob.size > limits.packed) throw new RecordingRefused('packed', { mib: mib(limits.packed) });
  const lines = new Lines(limits);
  const reader = (await unpacked(blob)).getReader();
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const parsed = new Parser(limits);
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await read(reader, size);
      if (done) break;
      size += value.byteLength;
      if (size > limits.unpacked) throw new RecordingRefused('unpacked', { mib: mib(limits.unpacked) });
      for (const line of lines.push(decode(decoder, value, lines))) parsed.line(line, lines.number);
    }
    for (const line of lines.end(decode(decoder, null, lines))) parsed.line(line, lines.number);
  } finally {
    reader.cancel().catch(() => {});
  }
  return parsed.result();
}

async function unpacked(blob) {
  const magic = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  if (magic[0] !== 0x1f || magic[1] !== 0x8b) return blob.stream();
  if (typeof DecompressionStream === 'undefined') throw new RecordingRefused('browser');
  return blob.stream().pipeThrough(new DecompressionStream('gzip'));
}

async function read(reader, size) {
  try { return await reader.read(); } catch { throw new RecordingRefused('gzip', { bytes: size }); }
}

function decode(decoder, chunk, lines) {
  try { return chunk ? decoder.decode(chunk, { stream: true }) : decoder.decode(); } catch { throw new RecordingRefused('text', { line: lines.number + 1 }); }
}

class Lines {
  constructor(limits) { this.limits = limits; this.rest = ''; this.number = 0; }

  * push(text) {
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      const line = this.rest + text.slice(start, end);
      this.rest = '';
      start = end + 1;
      this.#check(line.length);
      this.number += 1;
      if (this.number > this.limits.lines) throw new RecordingRefused('lines', { count: this.limits.lines });
      yield line;
    }
    this.rest += text.slice(start);
    this.#check(this.rest.length);
  }

  * end(text) {
    yield* this.push(text);
    if (this.rest) { this.number += 1; yield this.rest; }
  }

  #check(length) {
    if (length > this.limits.line) throw new RecordingRefused('line', { line: this.number + 1, mib: mib(this.limits.line) });
  }
}

class Parser {
  constructor(limits) { this.limits = limits; this.events = []; }

  line(text, number) {
    let value;
    try { value = JSON.parse(text); } catch { throw new RecordingRefused('json', { line: number }); }
    if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new RecordingRefused('json', { line: number });
    checkShape(value, this.limits.depth, number);
    if (number === 1) this.header = checkHeader(value);
    else if (number === 2) this.snapshot = checkSnapshot(value);
    else {
      if (!EVENT_TYPES.has(value.type)) throw new RecordingRefused('event', { line: number });
      const expected = this.snapshot.seq + this.events.length + 1;
      if (value.seq !== expected) throw new RecordingRefused('gap', { line: number, seq: expected });
      this.events.push(value);
    }
  }

  result() {
    if (!this.header) throw new RecordingRefused('short', {});
    if (!this.snapshot) throw new RecordingRefused('short', {});
    return { header: this.header, snapshot: this.snapshot, events: this.events };
  }
}

// Nesting is bounded, and no key or id may be "__proto__": requests are looked up by id in plain objects.
function checkShape(value, depth, line) {
  let level = [value];
  for (let deep = 0; deep < depth && level.length; deep += 1) {
    const next = [];
    for (const item of level) {
      if (Object.hasOwn(item, '__proto__') || item.id === '__proto__') throw new RecordingRefused('event', { line });
      for (const child of Object.values(item)) if (child !== null && typeof child === 'object') next.push(child);
    }
    level = next;
  }
  if (level.length) throw new RecordingRefused('depth', { line, depth });
}

function checkHeader(header) {
  if (header.format !== FORMAT) throw new RecordingRefused('format');
  if (!Number.isInteger(header.version) || header.version < 1) throw new RecordingRefused('format');
  if (header.version > VERSION) throw new RecordingRefused('version', { version: header.version, known: VERSION });
  for (const name of ['model', 'device', 'title', 'dtype', 'started']) {
    if (header[name] !== undefined && header[name] !== null && typeof header[name] !== 'string') throw new RecordingRefused('card', { name });
  }
  return header;
}

function checkSnapshot(snapshot) {
  if (!isSnapshot(snapshot) || snapshot.state === null || typeof snapshot.state !== 'object' || !Number.isInteger(snapshot.seq)
    || typeof snapshot.state.requests !== 'object') throw new RecordingRefused('snapshot');
  return snapshot;
}

// Puts a recording into an empty store. Throws RecordingRefused, naming the line, when an event does not continue the run.
export function fillStore(store, recording) {
  store.maxEvents = Infinity;
  store.whole = true;
  store.checkpointEvery = Math.max(128, Math.ceil(recording.events.length / 250));      // bounds the memory of a long recording
  const messages = [recording.snapshot, ...recording.events];
  for (const [index, message] of messages.entries()) {
    let taken = false;
    try { taken = store.receive(message); } catch { /* told below */ }
    if (!taken) throw new RecordingRefused('event', { line: index + 2 });
  }
}

// What the store has seen, as a recording: from the oldest state it can rebuild, without a gap, to the newest event.
export function recordingOf(store, { title = '', workload = null, journal = null, versions = {} } = {}) {
  if (!store.started || !store.events.length) return null;
  const lastSnapshot = store.events.findLastIndex(isSnapshot) + store.offset;
  const checkpoint = store.checkpoints.find((item) => item.index >= lastSnapshot) ?? store.checkpoints.at(-1);
  const { state } = checkpoint;
  const first = store.messageAt(checkpoint.index);
  const room = first.room ?? '';
  const engine = state.engine ?? {};
  return {
    header: {
      format: FORMAT, version: VERSION, title, room, started: new Date().toISOString(), model: engine.model ?? '', device: engine.device ?? '',
      dtype: engine.dtype ?? '', backend: engine.backend ?? '', executor: engine.executor ?? '', simulated: Boolean(engine.simulated),
      versions, config: state.config ?? {}, seed: state.config?.seed ?? null, workload, ...(journal ? { journal } : {}),
    },
    snapshot: { v: 1, type: 'snapshot', room, seq: state.seq, state },
    events: store.events.slice(checkpoint.index - store.offset + 1),
  };
}

// The recording as the bytes of its file.
export async function packRecording(recording) {
  const text = [recording.header, recording.snapshot, ...recording.events].map((part) => `${JSON.stringify(part)}\n`);
  const blob = new Blob(text, { type: 'application/jsonl' });
  if (typeof CompressionStream === 'undefined') return blob;                 // an old browser saves it unpacked; both can be opened
  const packed = await new Response(blob.stream().pipeThrough(new CompressionStream('gzip'))).blob();
  return new Blob([packed], { type: 'application/gzip' });
}

// Hands a file to the person.
export function download(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const fileName = (header, ending) => `batchscope-${(header.title || (header.model || 'run').split('/').at(-1)).toLowerCase().replace(/[^a-z0-9가-힣]+/g, '-').slice(0, 40)}.${ending}`;

const mib = (bytes) => Math.round(bytes / 2 ** 20);
