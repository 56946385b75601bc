// The transport bar: play, pause and step the engine while live; walk, play and scrub the history while in the past. The badge and
// the colour of the whole page tell the two apart, and one key returns to live.

import { EVENT_KINDS } from './store.js';

const STEPS_PER_SECOND_AT_1 = 8;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 0];                   // factors of ×1; 0 is unlimited
const JUMP_KINDS = ['preemption', 'swap', 'capture', 'prefix_hit', 'finish', 'config'];
const SCRUBBER_MS = 100;                                     // live, the handle stays at the end: ten times a second is enough
const MARK_KINDS = ['preemption', 'swap', 'capture'];
const ICONS = {
  start: 'M3 3h2v10H3zM13 3v10L6 8z', back: 'M11 3v10L4 8zM11 3', play: 'M4 2.5v11l9-5.5z', pause: 'M4 3h3v10H4zM9 3h3v10H9z',
  step: 'M3 3v10l7-5zM11 3h2v10h-2z',
};
const icon = (name) => `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

export class Transport {
  constructor(root, app) {
    Object.assign(this, { root, app, store: app.store });
    const { t } = app;
    root.setAttribute('role', 'toolbar');
    root.dataset.tLabel = 'transport.label';
    root.innerHTML = `
      <button class="bs-icon bs-wide" data-do="first" data-t-label="transport.first">${icon('start')}</button>
      <button class="bs-icon" data-do="back" data-t-label="transport.back">${icon('back')}</button>
      <button class="bs-icon bs-play" data-do="play" data-t-label="transport.pause">${icon('pause')}</button>
      <button class="bs-icon" data-do="step" data-t-label="transport.step">${icon('step')}</button>
      <label class="bs-sr" for="bs-speed" data-t="transport.speed"></label>
      <select class="bs-select" id="bs-speed" data-t-label="transport.speed">${SPEEDS.map((factor) => `<option value="${factor}">${factor ? `×${String(factor).replace('0.', '.')}` : '∞'}</option>`).join('')}</select>
      <span class="bs-step-read" aria-live="off"></span>
      <button class="bs-live-badge" data-do="live" data-live="true"></button>
      <div class="bs-scrub"><canvas></canvas><input type="range" min="0" max="1" value="1" step="1" data-t-label="transport.scrub"></div>
      <label class="bs-sr" for="bs-jump-kind" data-t="transport.kind"></label>
      <span class="bs-wide" style="display:flex;gap:4px"><select class="bs-select" id="bs-jump-kind" data-t-label="transport.kind">${JUMP_KINDS.map((kind) => `<option value="${kind}" data-t="kind.${kind}"></option>`).join('')}</select>
      <button class="bs-icon" data-do="previous" data-t-label="transport.previous">‹</button>
      <button class="bs-icon" data-do="next" data-t-label="transport.next">›</button></span>
      <p class="bs-sr" role="status" aria-live="polite" data-say></p>`;
    this.read = root.querySelector('.bs-step-read');
    this.badge = root.querySelector('.bs-live-badge');
    this.range = root.querySelector('input[type=range]');
    this.canvas = root.querySelector('canvas');
    this.speed = root.querySelector('#bs-speed');
    this.kind = root.querySelector('#bs-jump-kind');
    this.playButton = root.querySelector('[data-do=play]');
    t.apply(root);
    root.addEventListener('click', (event) => {
      const action = event.target.closest('[data-do]')?.dataset.do;
      if (action) this.act(action);
    });
    this.speed.addEventListener('change', () => this.#setSpeed(Number(this.speed.value)));
    this.range.addEventListener('input', () => this.#scrubbed());
    document.addEventListener('keydown', (event) => this.#key(event));
    this.marks = this.store.track('marks', () => new Marks());
    this.store.subscribe(() => this.#schedule());
    this.scrubberDrawnAt = -Infinity;
    new ResizeObserver(([record]) => { this.scrubber = record.contentRect; this.scrubberDrawnAt = -Infinity; this.#schedule(); }).observe(this.canvas);
    this.#draw();
  }

  get paused() { return this.store.head.engine.status === 'paused'; }

  async act(action) {
    const { store, app } = this;
    this.#stopReplay(action);
    if (action === 'first') store.seekIndex(store.first);
    else if (action === 'back') store.moveStep(-1);
    else if (action === 'live') store.goLive();
    else if (action === 'next' || action === 'previous') this.jump(action === 'next' ? 1 : -1);
    else if (!store.live) { if (action === 'play') this.#toggleReplay(); else store.moveStep(1); }
    else if (action === 'play') await this.#command(this.paused ? 'resume' : 'pause');
    else if (action === 'step') {
      if (!this.paused && !(await this.#command('pause'))) return;
      await this.#command('step', { count: 1 });
    }
    app.tooltip.hide();
  }

  async #command(cmd, fields) {
    try { await this.app.command(cmd, fields); return true; } catch (error) { this.#say(error.message); return false; }
  }

  #say(text) {
    this.root.querySelector('[data-say]').textContent = text;
    const box = this.playButton.getBoundingClientRect();
    this.app.tooltip.show(box.left + box.width / 2, box.bottom + 6, text, box);
  }

  #setSpeed(factor) {
    if (this.store.live) this.#command('pace', { steps_per_second: factor * STEPS_PER_SECOND_AT_1 });
    else if (this.replay) { this.#stopReplay('speed'); this.#toggleReplay(); }
  }

  // Plays the history from where one looks; it ends by arriving at live.
  #toggleReplay() {
    if (this.replay) { clearInterval(this.replay); this.replay = null; this.#schedule(); return; }
    const factor = Number(this.speed.value) || 16;
    this.replay = setInterval(() => {
      this.store.moveStep(1);
      if (this.store.live) this.#stopReplay('live');
    }, 1000 / (factor * STEPS_PER_SECOND_AT_1));
    this.#schedule();
  }

  #stopReplay(action) {
    if (action === 'play' || !this.replay) return;
    clearInterval(this.replay);
    this.replay = null;
  }

  jump(direction) {
    const { store, app } = this;
    const index = store.find(EVENT_KINDS[this.kind.value], direction);
    if (index === null) {
      const name = app.t(`kind.${this.kind.value}`);
      this.#say(app.t(direction > 0 ? 'transport.none_after' : 'transport.none_before', { kind: name }));
    } else store.seekIndex(index);
  }

  #scrubbed() {
    const seq = Number(this.range.value);
    if (seq >= this.store.head.seq) this.store.goLive(); else this.store.seekSeq(seq);
  }

  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.closest?.('input:not([type=range]), textarea, select, [contenteditable=true], dialog[open]')) return;
    if (event.key === '?') { event.preventDefault(); this.app.header?.help(); return; }
    if (this.root.offsetParent === null) return;                               // another tab is shown
    const onControl = target.closest?.('button, a, [role=tab], [data-request], summary, input');
    if (event.key === ' ') { if (!onControl) { event.preventDefault(); this.act('play'); } return; }
    if (target.closest?.('[role=tab], [role=radiogroup], [data-own-keys]') || target.type === 'range') {
      if (target !== this.range) return;
    }
    const steps = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => { for (let n = 0; n < steps; n += 1) this.store.moveStep(-1); },
      ArrowRight: () => {
        if (this.store.live) { this.act('step'); return; }
        for (let n = 0; n < steps && !this.store.live; n += 1) this.store.moveStep(1);
      },
      Home: () => this.act('first'),
      End: () => this.act('live'),
      '[': () => this.act('previous'),
      ']': () => this.act('next'),
    };
    if (actions[event.key]) { event.preventDefault(); this.#stopReplay(event.key); actions[event.key](); }
  }

  #schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = null; this.#draw(); });
  }

  #draw() {
    const { store, app } = this;
    const { t } = app;
    const { head, live } = store;
    const number = (value) => t.number(value);
    const text = live ? t('transport.step_live', { step: number(head.step) })
      : t('transport.step_past', { step: number(store.state.step), last: number(head.step) });
    if (text !== this.shownText) { this.shownText = text; this.read.textContent = text; }
    const badge = t(live ? 'transport.live' : 'transport.to_live');
    if (badge !== this.shownBadge) { this.shownBadge = badge; this.badge.textContent = badge; this.badge.dataset.live = String(live); }
    const playing = live ? !this.paused : Boolean(this.replay);
    const playKey = live ? (playing ? 'pause' : 'play') : (playing ? 'pause' : 'replay');
    if (playKey !== this.shownPlay) {
      this.shownPlay = playKey;
      this.playButton.innerHTML = icon(playing ? 'pause' : 'play');
      this.playButton.dataset.tLabel = `transport.${playKey}`;
      t.apply(this.root);
    }
    const pace = head.engine.pace;
    if (live && pace !== undefined && pace !== this.shownPace && document.activeElement !== this.speed) {
      this.shownPace = pace;
      const factor = pace / STEPS_PER_SECOND_AT_1;
      this.speed.value = String(SPEEDS.includes(factor) ? factor : pace ? this.#nearest(factor) : 0);
    }
    this.#moveScrubber(text);
  }

  // Asked for in every frame, done when it is due. In the past every move is shown at once.
  #moveScrubber(text) {
    const { store } = this;
    const { head, live } = store;
    const now = performance.now();
    if (live && this.scrubberLive && now - this.scrubberDrawnAt < SCRUBBER_MS) {
      this.scrubberTimer ??= setTimeout(() => { this.scrubberTimer = null; this.scrubberDrawnAt = -Infinity; this.#schedule(); }, SCRUBBER_MS);
      return;
    }
    this.scrubberDrawnAt = now;
    this.scrubberLive = live;
    const first = store.events.length ? store.messageAt(store.first).seq : 0;
    this.range.min = first;
    this.range.max = Math.max(first + 1, head.seq);
    this.range.value = live ? this.range.max : store.state.seq;
    this.range.setAttribute('aria-valuetext', text);
    this.#drawScrubber(first, Math.max(first + 1, head.seq), live ? head.seq : store.state.seq);
  }

  #nearest(factor) {
    return SPEEDS.filter(Boolean).reduce((best, each) => (Math.abs(each - factor) < Math.abs(best - factor) ? each : best));
  }

  #drawScrubber(first, last, at) {
    const { canvas } = this;
    const { width, height } = this.scrubber ?? {};
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    const pen = canvas.getContext('2d');
    const colors = this.app.colors();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const x = (seq) => 8 + ((seq - first) / (last - first)) * (width - 16);
    const middle = height / 2;
    pen.fillStyle = colors.line;
    pen.fillRect(8, middle - 2, width - 16, 4);
    pen.fillStyle = colors.accent;
    pen.fillRect(8, middle - 2, x(at) - 8, 4);
    const tint = { preemption: colors.bad, swap: colors.warn, capture: colors.accent };
    const rowOf = { preemption: middle - 11, swap: middle + 5, capture: middle + 5 };
    const drawnAt = {};                                        // a kind's last pixel: of a thousand marks on one, one is drawn
    for (const mark of this.marks.rows) {
      const pixel = Math.round(x(mark.seq));
      if (drawnAt[mark.kind] === pixel) continue;
      drawnAt[mark.kind] = pixel;
      pen.fillStyle = tint[mark.kind];
      pen.fillRect(pixel - 1, rowOf[mark.kind], 2, 6);
    }
    pen.beginPath();
    pen.arc(x(at), middle, 6, 0, 7);
    pen.fillStyle = this.store.live ? colors.accent : colors.warn;
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = colors.surface;
    pen.stroke();
  }

  restyle() { this.shownText = this.shownBadge = this.shownPlay = null; this.scrubberDrawnAt = -Infinity; this.#schedule(); }
}

// Where in the history something worth jumping to happened.
class Marks {
  rows = [];
  reset() { this.rows = []; }
  heal() { /* marks before the gap stay true */ }
  push(event) {
    for (const kind of MARK_KINDS) if (EVENT_KINDS[kind](event)) this.rows.push({ seq: event.seq, kind });
  }
  forget(oldest) { this.rows = this.rows.filter((mark) => mark.seq >= oldest); }
}
