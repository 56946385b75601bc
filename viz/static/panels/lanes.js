// Lifecycle lanes. A request is one chip that moves to its next lane; what it is doing is a shape (hollow, hatched, solid, dashed,
// tick, cross) before it is a colour, and its progress fills the chip. Slow enough, a move is animated; fast, chips just appear.

import { arrange } from '../arrange.js';

const LANES = ['pending', 'prefilling', 'decoding', 'finished'];
const MOVE_MS = 220;
// The sizes of a chip with its gap, from the roomiest to the densest: [width, height]. A lane takes the first with which all fit.
const CHIP_SIZES = [[72, 28], [50, 23], [42, 19]];

export function laneOf(request) {
  if (request.offloaded) return 'offloaded';
  if (request.state === 'cancelled' || request.state === 'failed') return 'finished';
  return request.state;
}

// What share of its present task a request has done, 0 to 1.
export function progressOf(request) {
  if (request.state === 'prefilling') return Math.min(1, request.computed / Math.max(1, request.prompt_len + request.outputs));
  if (request.state === 'decoding') return Math.min(1, request.outputs / Math.max(1, request.params.max_new_tokens));
  return request.state === 'pending' ? 0 : 1;
}

export default class Lanes {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context });
    this.chips = new Map();
    this.lanes = {};
    this.watcher = new ResizeObserver((records) => {
      for (const record of records) this.lanes[record.target.dataset.lane].room = record.contentRect;
      context.invalidate('lanes');
    });
    const grid = document.createElement('div');
    grid.className = 'bs-lanes';
    for (const name of [...LANES, 'offloaded']) {
      const lane = document.createElement('div');
      lane.className = 'bs-lane';
      lane.dataset.lane = name;
      lane.innerHTML = `<div class="bs-lane-head"><i class="bs-shape" data-state="${name}"></i><span data-term="${name}" data-t="state.${name}" tabindex="0"></span><b>0</b></div>
        <ul class="bs-lane-chips" role="list"></ul><div class="bs-lane-more"></div>`;
      const item = { lane, list: lane.querySelector('ul'), count: lane.querySelector('b'), more: lane.querySelector('.bs-lane-more'), room: { width: 160, height: 90 } };
      item.list.dataset.lane = name;
      this.watcher.observe(item.list);
      this.lanes[name] = item;
      grid.append(lane);
    }
    this.empty = document.createElement('p');
    this.empty.className = 'bs-lanes-empty';
    this.empty.dataset.t = 'panel.lanes.empty';
    root.append(grid, this.empty);
    context.t.apply(root);
    this.grid = grid;
  }

  update(view) {
    const { state } = view;
    const members = this.#members(state);
    const animate = view.live && !this.context.reducedMotion() && this.context.rate() < this.options.animate_below && document.visibilityState === 'visible';
    const moving = animate ? this.#placesOfMovers(members) : null;
    const alive = new Set();
    for (const [name, ids] of Object.entries(members.shown)) {
      this.#fillLane(name, ids, members.total[name], state, alive);
    }
    for (const [id, chip] of this.chips) {
      if (!alive.has(id)) { chip.element.remove(); this.chips.delete(id); }
    }
    if (moving) this.#slide(moving);
    const nothing = this.chips.size === 0;
    if (nothing !== this.wasEmpty) { this.wasEmpty = nothing; this.empty.hidden = !nothing; this.grid.hidden = nothing; }
  }

  // Which requests each lane shows, in the order of their arrival; the newest ends first in the last lane.
  #members(state) {
    const groups = { pending: [], prefilling: [], decoding: [], finished: [], offloaded: [] };
    for (const id of state.queue) groups[laneOf(state.requests[id])]?.push(id);
    for (const id of state.active) groups[laneOf(state.requests[id])]?.push(id);
    for (let at = state.ended.length - 1; at >= 0; at -= 1) groups.finished.push(state.ended[at]);
    const shown = {};
    const total = {};
    for (const [name, ids] of Object.entries(groups)) {
      total[name] = ids.length;
      shown[name] = ids.slice(0, this.options.limits[name]);
    }
    const { counters } = state;
    total.finished = Math.max(total.finished, counters.finished + counters.cancelled + counters.failed);
    return { shown, total };
  }

  #placesOfMovers(members) {
    const places = new Map();
    for (const [name, ids] of Object.entries(members.shown)) {
      for (const id of ids) {
        const chip = this.chips.get(id);
        if (chip && chip.lane !== name) places.set(id, chip.element.getBoundingClientRect());
      }
    }
    return places;
  }

  #fillLane(name, ids, total, state, alive) {
    const lane = this.lanes[name];
    const requests = ids.map((id) => state.requests[id]).filter(Boolean);
    arrange(lane.list, requests.map((request) => {
      let chip = this.chips.get(request.id);
      if (!chip) { chip = this.#makeChip(request); this.chips.set(request.id, chip); }
      alive.add(request.id);
      this.#drawChip(chip, request, name);
      return chip.element;
    }));
    const countText = this.context.number(total);
    if (lane.countText !== countText) { lane.countText = countText; lane.count.textContent = countText; lane.lane.dataset.some = String(total > 0); }
    const { width, height } = lane.room;
    const fits = CHIP_SIZES.findIndex(([chipWidth, chipHeight]) => Math.floor(width / chipWidth) * Math.floor(height / chipHeight) >= ids.length);
    const dense = String(fits < 0 ? CHIP_SIZES.length - 1 : fits);
    if (lane.dense !== dense) { lane.dense = dense; lane.lane.dataset.dense = dense; }
    const hidden = total - ids.length;
    const moreText = hidden > 0 ? this.context.t('panel.lanes.more', { count: this.context.number(hidden) }) : '';
    if (lane.moreText !== moreText) { lane.moreText = moreText; lane.more.textContent = moreText; }
  }

  #makeChip(request) {
    const element = document.createElement('li');
    const { mark, label } = this.context.palette.of(request);
    element.className = 'bs-chip';
    element.tabIndex = 0;
    element.dataset.request = request.id;
    element.innerHTML = '<i class="bs-chip-fill"></i><i class="bs-shape"></i><span class="bs-chip-mark" aria-hidden="true"></span><span class="bs-chip-name"></span><span class="bs-chip-note"></span>';
    element.querySelector('.bs-chip-mark').textContent = mark;
    element.querySelector('.bs-chip-name').textContent = label;
    const chip = {
      element, fill: element.querySelector('.bs-chip-fill'), shape: element.querySelector('.bs-shape'), note: element.querySelector('.bs-chip-note').appendChild(new Text()),
      ordinal: request.ordinal,
    };
    element.style.setProperty('--hue', this.context.palette.color(request.ordinal));
    this.context.tip(element, () => this.#tell(request.id));
    return chip;
  }

  #drawChip(chip, request, lane) {
    const look = request.state === 'cancelled' || request.state === 'failed' ? request.state
      : request.offloaded ? 'offloaded' : request.state === 'pending' && request.soft_resets > 0 ? 'soft_reset' : request.state;
    if (chip.look !== look) { chip.look = look; chip.element.dataset.state = look; chip.shape.dataset.state = look; }
    chip.lane = lane;
    const progress = Math.round(progressOf(request) * 100);
    if (chip.progress !== progress) { chip.progress = progress; chip.fill.style.transform = `scaleX(${progress / 100})`; }
    const note = lane === 'prefilling' ? `${progress}%` : lane === 'decoding' ? `${request.outputs}` : lane === 'offloaded' ? `${request.slots.reduce((sum, slots) => sum + slots.length, 0)}▤`
      : lane === 'pending' && request.prompt_len ? `${request.prompt_len + request.outputs}` : '';
    if (chip.noteText !== note) { chip.noteText = note; chip.note.data = note; }
  }

  #tell(id) {
    const { state } = this.context.store;
    const request = state.requests[id];
    if (!request) return '';
    const { t, number } = this.context;
    const refused = state.waiting?.refused?.find((item) => item.id === id);
    return [
      `${this.context.palette.label(request)} · ${t(`state.${laneOf(request)}`)}`,
      t('request.tokens', { prompt: number(request.prompt_len), out: number(request.outputs), most: number(request.params.max_new_tokens) }),
      refused ? t(`reason.${refused.reason}`) : '',
      request.reason && request.state !== 'finished' ? String(request.reason) : '',
      request.prompt.length > 140 ? `${request.prompt.slice(0, 140)}…` : request.prompt,
    ].filter(Boolean).join('\n');
  }

  // FLIP: a moved chip is shown at its old place and let go to the new one.
  #slide(places) {
    for (const [id, from] of places) {
      const chip = this.chips.get(id);
      if (!chip) continue;
      const to = chip.element.getBoundingClientRect();
      const x = from.left - to.left;
      const y = from.top - to.top;
      if (Math.abs(x) + Math.abs(y) < 2) continue;
      chip.element.animate(
        [{ transform: `translate(${x}px, ${y}px)`, zIndex: 5 }, { transform: 'none', zIndex: 5 }],
        { duration: MOVE_MS, easing: 'cubic-bezier(.2,.7,.2,1)' });
    }
  }

  highlight(id) {
    for (const [chipId, chip] of this.chips) chip.element.dataset.on = chipId === id ? '1' : '';
  }

  restyle() {
    for (const chip of this.chips.values()) { chip.element.style.setProperty('--hue', this.context.palette.color(chip.ordinal)); }
    for (const lane of Object.values(this.lanes)) { lane.moreText = lane.countText = null; }
  }

  describe(view) {
    const counts = { pending: 0, prefilling: 0, decoding: 0, offloaded: 0 };
    for (const id of [...view.state.queue, ...view.state.active]) {
      const lane = laneOf(view.state.requests[id]);
      if (lane in counts) counts[lane] += 1;
    }
    return this.context.t('panel.lanes.describe', { ...counts, finished: view.state.counters.finished });
  }

  destroy() { this.watcher.disconnect(); this.root.replaceChildren(); }
}
