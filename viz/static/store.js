// The history of one room: every retained event, checkpoints to seek from, and the place that is being looked at.
//
// Live, `state` is the newest; after `seek` it is the state at that event, rebuilt from the nearest checkpoint, while new events
// keep arriving behind the scenes. Memory is bounded: the oldest events go together with their checkpoint.

import { apply, clone, emptyState, isSnapshot } from './reduce.js';

const CHECKPOINT_EVERY = 128;      // events between two checkpoints: bounds the cost of a seek
const MAX_EVENTS = 6000;          // retained events: twelve minutes at ×1, and some 100 MB in the fullest rooms

export class Store {
  constructor({ checkpointEvery = CHECKPOINT_EVERY, maxEvents = MAX_EVENTS } = {}) {
    this.checkpointEvery = checkpointEvery;
    this.maxEvents = maxEvents;
    this.whole = false;            // whether this is a whole run, a recording, to which nothing will be added
    this.listeners = new Set();
    this.tracks = new Map();
    this.clear();
  }

  clear() {
    this.events = [];              // retained messages in order; snapshots are entries too
    this.checkpoints = [];         // {index, state}: the state after events[index - offset]
    this.offset = 0;               // index of events[0] in the room's whole history as seen here
    this.head = emptyState();      // the newest state
    this.started = false;          // whether a snapshot has come: deltas before it have nothing to stand on
    this.life = null;              // which numbering of events this is, where the server says so
    this.lastEvent = null;         // newest message
    this.cursor = null;            // {index, state, event} while looking at the past
    for (const track of this.tracks.values()) track.reset(this.head);
    this.notify('clear');
  }

  // --- receiving -------------------------------------------------------------------------------------------------------

  // Takes one message. Returns false when its sequence number shows a gap: the caller must ask for a snapshot.
  receive(message) {
    const snapshot = isSnapshot(message);
    if (!snapshot) {
      if (this.started && message.seq <= this.head.seq) return true;     // an event we already have, after a reconnect
      if (message.seq !== this.head.seq + 1) return false;
    }
    // Another numbering (a reset, a restarted engine): nothing of the old history may be mixed with it.
    if (snapshot && this.started && (message.seq < this.head.seq || (message.life ?? this.life) !== this.life)) this.clear();
    if (snapshot) this.life = message.life ?? null;
    const healed = snapshot && this.started;
    this.started = true;
    this.head = apply(this.head, message);
    this.events.push(message);
    this.lastEvent = message;
    const index = this.offset + this.events.length - 1;
    const newest = this.checkpoints.at(-1);
    if (snapshot || !newest || index - newest.index >= this.checkpointEvery) {
      this.checkpoints.push({ index, state: clone(this.head) });
    }
    if (this.events.length > this.maxEvents) this.#forgetOldest();
    for (const track of this.tracks.values()) {
      if (!snapshot) track.push(message, this.head);
      else if (healed && track.heal) track.heal(this.head, message);
      else track.reset(this.head, message);
    }
    this.notify('event', message);
    return true;
  }

  #forgetOldest() {
    if (this.checkpoints.length < 2) return;
    // Drop up to the second checkpoint: what remains still starts at a checkpoint, so every retained event can be reached.
    const keepFrom = this.checkpoints[1].index;
    this.events.splice(0, keepFrom - this.offset);
    this.offset = keepFrom;
    this.checkpoints.shift();
    const oldest = this.events[0].seq;
    for (const track of this.tracks.values()) track.forget?.(oldest);
    if (this.cursor && this.cursor.index < this.offset) this.seekIndex(this.offset);
  }

  // Puts an earlier past before what is here: `messages` are a snapshot and the events after it, up to at least the snapshot that this
  // history started with. Returns whether they joined.
  prepend(messages) {
    const start = this.events[0];
    if (!start || !isSnapshot(start) || !messages.length || !isSnapshot(messages[0])) return false;
    let older = messages.filter((message) => message.seq <= start.seq);
    if (older.length < 2 || older.at(-1).seq !== start.seq || older.some((message, at) => at && message.seq !== older[at - 1].seq + 1)) return false;
    older = startLater(older, this.maxEvents - this.events.length);
    if (older.length < 2) return false;
    // The snapshot we started with gives way to the event of the same number, after which the state is the same.
    const shift = older.length - 1;
    this.events = [...older, ...this.events.slice(1)];
    this.checkpoints = [];
    let state = null;
    older.forEach((message, at) => {
      state = apply(state, message);
      if (at % this.checkpointEvery === 0) this.checkpoints.push({ index: this.offset + at, state: clone(state) });
    });
    this.#recheck(shift, state);
    if (this.cursor) this.cursor.index += shift;
    for (const track of this.tracks.values()) this.#replayInto(track);
    this.notify('seek');
    return true;
  }

  // Checkpoints for the events from `from` on, whose state before them is `state`.
  #recheck(from, state) {
    state = clone(state);
    for (let at = from + 1; at < this.events.length; at += 1) {
      state = apply(state, this.events[at]);
      if (at % this.checkpointEvery === 0 || isSnapshot(this.events[at])) this.checkpoints.push({ index: this.offset + at, state: clone(state) });
    }
  }

  // --- tracks ------------------------------------------------------------------------------------------------------------

  // A track derives series from the stream: an object with `reset(state, snapshotMessage?)`, `push(event, stateAfter)` and
  // optionally `heal(state, snapshotMessage)` (events were lost; without it `reset` is called) and `forget(oldestSeq)`. It sees every event exactly once and in order, whatever is being looked at, so rows
  // should carry `seq` and panels show those with `seq <= view.seq`. Panels that ask for the same name share one track.
  track(name, create) {
    if (!this.tracks.has(name)) {
      const track = create();
      this.tracks.set(name, track);
      track.reset(this.head);
      this.#replayInto(track);
    }
    return this.tracks.get(name);
  }

  #replayInto(track) {
    if (!this.checkpoints.length) return;
    let state = clone(this.checkpoints[0].state);
    track.reset(state, this.events[0]);
    for (const message of this.events.slice(this.checkpoints[0].index - this.offset + 1)) {
      state = apply(state, message);
      if (!isSnapshot(message)) track.push(message, state);
      else if (track.heal) track.heal(state, message);
      else track.reset(state, message);
    }
  }

  // --- looking -----------------------------------------------------------------------------------------------------------

  get live() { return this.cursor === null; }
  get state() { return this.cursor ? this.cursor.state : this.head; }
  get event() { return this.cursor ? this.cursor.event : this.lastEvent; }
  get first() { return this.offset; }
  get last() { return this.offset + this.events.length - 1; }
  get index() { return this.cursor ? this.cursor.index : this.last; }

  view() {
    const state = this.state;
    return { state, event: this.event, live: this.live, step: state.step, seq: state.seq, head: this.head };
  }

  messageAt(index) { return this.events[index - this.offset]; }

  // Looks at the state after the event with this index (see `index`, `first`, `last`); clamped to what is retained.
  seekIndex(index) {
    if (!this.events.length) return;
    index = Math.max(this.first, Math.min(this.last, Math.round(index)));
    const checkpoint = this.checkpoints.findLast((item) => item.index <= index);
    const ahead = this.cursor && this.cursor.index <= index && this.cursor.index >= checkpoint.index;
    let state = ahead ? this.cursor.state : clone(checkpoint.state);
    for (let at = (ahead ? this.cursor.index : checkpoint.index) + 1; at <= index; at += 1) {
      state = apply(state, this.events[at - this.offset]);
    }
    this.cursor = { index, state, event: this.messageAt(index) };
    this.notify('seek');
  }

  // Looks at the state after the event with this sequence number.
  seekSeq(seq) {
    let low = 0;
    let high = this.events.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.events[middle].seq <= seq) low = middle; else high = middle - 1;
    }
    this.seekIndex(this.offset + low);
  }

  // Looks at the last event of this engine step.
  seekStep(step) {
    for (let index = this.last; index >= this.first; index -= 1) {
      const at = this.messageAt(index).step;
      if (at !== undefined && at <= step) { this.seekIndex(index); return; }
    }
    this.seekIndex(this.first);
  }

  // One engine step back (-1) or on (+1) in the past; stepping on from the last one returns to live.
  moveStep(direction) {
    let index = this.index + direction;
    while (index > this.first && index <= this.last && this.messageAt(index).type !== 'step') index += direction;
    if (index > this.last) this.goLive(); else this.seekIndex(index);
  }

  goLive() {
    if (this.cursor === null) return;
    this.cursor = null;
    this.notify('seek');
  }

  // Index of the next (+1) or previous (-1) event for which `matches(message)` holds, or null.
  find(matches, direction = 1, from = this.index) {
    for (let index = from + direction; index >= this.first && index <= this.last; index += direction) {
      if (matches(this.messageAt(index))) return index;
    }
    return null;
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  notify(what, message) { for (const listener of this.listeners) listener(what, message); }
}

// The last `count` of these messages, begun with a snapshot of the state that the ones left out lead to.
function startLater(messages, count) {
  const skipped = messages.length - Math.max(0, count);
  if (skipped <= 0) return messages;
  let state = null;
  for (const message of messages.slice(0, skipped + 1)) state = apply(state, message);
  const { v, room, seq } = messages[skipped] ?? messages.at(-1);
  return [{ v, type: 'snapshot', room, seq, state }, ...messages.slice(skipped + 1)];
}

// What "jump to the next …" can look for.
export const EVENT_KINDS = {
  preemption: (message) => message.transitions?.some((item) => item.cause === 'offload' || item.cause === 'soft_reset') ?? false,
  swap: (message) => message.blocks?.some((op) => op[0] === 'swap_out' || op[0] === 'swap_in') ?? false,
  capture: (message) => message.graph?.action === 'capture',
  prefix_hit: (message) => (message.prefix_hits?.length ?? 0) > 0,
  finish: (message) => message.transitions?.some((item) => item.to === 'finished') ?? false,
  config: (message) => message.type === 'config',
};
