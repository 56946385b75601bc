// The transport bar of a recording: the same controls and keys as the live one, but every one of them moves through the history;
// there is no engine to command and no "live" to return to.

import { EVENT_KINDS } from './store.js';

const STEPS_PER_SECOND_AT_1 = 8;
const SPEEDS = ['0.25', '0.5', '1', '2', '4', '8', '0', 'real'];          // factors of ×1; 0 as fast as frames come; real: recorded times
const MAX_WAIT_MS = 3000;                                                  // an idle stretch of a recording is not sat out
const KINDS = Object.keys(EVENT_KINDS);
const ICONS = {
  first: 'M3 3h2v10H3zM13 3v10L6 8z', back: 'M11 3v10L4 8z', play: 'M4 2.5v11l9-5.5z', pause: 'M4 3h3v10H4zM9 3h3v10H9z',
  step: 'M5 3v10l7-5z', last: 'M3 3v10l7-5zM11 3h2v10h-2z',
};
const icon = (name) => `<svg viewBox="0 0 16 16" width="16" height="16" fill="currentColor" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

export class ReplayTransport {
  // prefix: makes the ids of this bar's elements its own.
  constructor(root, { t, store, prefix = 'replay' }) {
    Object.assign(this, { root, t, store });
    root.classList.add('bs-replay-transport');
    root.setAttribute('role', 'toolbar');
    root.dataset.tLabel = 'replay.label';
    const button = (name, extra = '') => `<button type="button" class="bs-icon ${extra}" data-do="${name}" data-t-label="replay.${name}">${icon(name)}</button>`;
    root.innerHTML = `${button('first')}${button('back')}${button('play', 'bs-play')}${button('step')}${button('last')}
      <label class="bs-sr" for="bs-${prefix}-speed" data-t="replay.speed"></label>
      <select class="bs-select" id="bs-${prefix}-speed" data-speed>${SPEEDS.map((speed) => `<option value="${speed}"></option>`).join('')}</select>
      <span class="bs-step-read" aria-live="off"></span>
      <input class="bs-replay-range" type="range" min="0" step="1" data-t-label="replay.scrub">
      <label class="bs-sr" for="bs-${prefix}-kind" data-t="replay.kind"></label>
      <select class="bs-select bs-wide" id="bs-${prefix}-kind" data-kind>${KINDS.map((kind) => `<option value="${kind}" data-t="replay.kind.${kind}"></option>`).join('')}</select>
      <button type="button" class="bs-icon bs-wide" data-do="previous" data-t-label="replay.previous">‹</button>
      <button type="button" class="bs-icon bs-wide" data-do="next" data-t-label="replay.next">›</button>
      <span class="bs-sr" role="status" data-say></span>`;
    this.read = root.querySelector('.bs-step-read');
    this.range = root.querySelector('input');
    this.speed = root.querySelector('[data-speed]');
    this.kind = root.querySelector('[data-kind]');
    this.speed.value = '1';
    this.playButton = root.querySelector('[data-do=play]');
    root.addEventListener('click', (event) => this.act(event.target.closest('[data-do]')?.dataset.do));
    this.range.addEventListener('input', () => { this.pause(); store.seekIndex(Number(this.range.value)); });
    this.speed.addEventListener('change', () => { if (this.playing) { this.pause(); this.play(); } });
    this.onKey = (event) => this.#key(event);
    document.addEventListener('keydown', this.onKey);
    this.unsubscribe = store.subscribe(() => this.#schedule());
    if (store.live) store.seekIndex(store.first);
    this.relabel();
  }

  relabel() {
    const { t } = this;
    t.apply(this.root);
    for (const option of this.speed.options) {
      option.textContent = option.value === 'real' ? t('replay.real_time') : option.value === '0' ? '∞' : `×${option.value.replace('0.', '.')}`;
    }
    this.shownPlaying = null;
    this.#draw();
  }

  act(action) {
    const { store } = this;
    if (!action) return;
    if (action === 'play') { if (this.playing) this.pause(); else this.play(); return; }
    this.pause();
    if (action === 'first') store.seekIndex(store.first);
    else if (action === 'last') store.seekIndex(store.last);
    else if (action === 'back') this.move(-1);
    else if (action === 'step') this.move(1);
    else if (action === 'next' || action === 'previous') this.#jump(action === 'next' ? 1 : -1);
  }

  get atEnd() { return this.store.index >= this.store.last; }

  // One step on or back, never past the end: a recording has no live moment to arrive at.
  move(direction) {
    const { store } = this;
    store.moveStep(direction);
    if (store.live) store.seekIndex(store.last);
  }

  play() {
    if (this.atEnd) this.store.seekIndex(this.store.first);
    this.playing = true;
    this.#tick();
    this.#schedule();
  }

  pause() {
    this.playing = false;
    clearTimeout(this.timer);
    this.#schedule();
  }

  #tick() {
    if (!this.playing) return;
    const before = this.store.state.time;
    this.move(1);
    if (this.atEnd) { this.pause(); return; }
    const { value } = this.speed;
    const wait = value === 'real' ? Math.min(MAX_WAIT_MS, 1000 * Math.max(0, this.store.state.time - before))
      : value === '0' ? 16 : 1000 / (Number(value) * STEPS_PER_SECOND_AT_1);
    this.timer = setTimeout(() => this.#tick(), wait);
  }

  #jump(direction) {
    const index = this.store.find(EVENT_KINDS[this.kind.value], direction);
    const { t } = this;
    if (index !== null) this.store.seekIndex(index);
    else this.root.querySelector('[data-say]').textContent = t(direction > 0 ? 'replay.none_after' : 'replay.none_before', { kind: t(`replay.kind.${this.kind.value}`) });
  }

  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || this.root.offsetParent === null) return;
    const { target } = event;
    if (target.closest?.('input:not([type=range]), textarea, select, [contenteditable=true], dialog[open], [role=tab], [role=radiogroup]')) return;
    if (event.key === ' ' && target.closest?.('button, a, summary, [data-request]')) return;
    const times = event.shiftKey ? 10 : 1;
    const actions = {
      ' ': () => this.act('play'),
      ArrowLeft: () => { this.pause(); for (let n = 0; n < times; n += 1) this.move(-1); },
      ArrowRight: () => { this.pause(); for (let n = 0; n < times; n += 1) this.move(1); },
      Home: () => this.act('first'), End: () => this.act('last'), '[': () => this.act('previous'), ']': () => this.act('next'),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  #schedule() { this.frame ??= requestAnimationFrame(() => { this.frame = null; this.#draw(); }); }

  #draw() {
    const { t, store } = this;
    const text = t('replay.step_of', { step: t.number(store.state.step), last: t.number(store.head.step) });
    if (text !== this.shown) { this.shown = text; this.read.textContent = text; }
    this.range.min = store.first;
    this.range.max = Math.max(store.first + 1, store.last);
    this.range.value = store.index;
    this.range.setAttribute('aria-valuetext', text);
    if (this.playing !== this.shownPlaying) {
      this.shownPlaying = this.playing;
      this.playButton.innerHTML = icon(this.playing ? 'pause' : 'play');
      this.playButton.dataset.tLabel = this.playing ? 'replay.pause' : 'replay.play';
      t.apply(this.root);
    }
  }

  destroy() {
    this.pause();
    cancelAnimationFrame(this.frame);
    document.removeEventListener('keydown', this.onKey);
    this.unsubscribe();
    this.root.replaceChildren();
  }
}
