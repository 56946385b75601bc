// Mounts the panels and draws them: at most once a frame, only those in sight, within one budget; what does not fit waits for
// the next frame, the longest-waiting first. Also the one place that knows which request is hovered or pinned.

const FRAME_BUDGET_MS = 8;
const SENTENCE_MS = 1000;              // a panel's sentence for screen readers changes at most this often

export class Screen {
  // hosts: {main, side, more} elements; context: what every panel gets (see ARCHITECTURE.md), completed here.
  constructor({ store, specs, hosts, context, layout, loadPanel }) {
    this.store = store;
    this.specs = specs;
    this.hosts = hosts;
    this.layout = layout;                       // PanelLayout: which panels are shown
    this.loadPanel = loadPanel ?? ((name) => import(`./panels/${name}.js`));
    this.entries = new Map();
    this.hovered = null;
    this.pinned = null;
    this.frameTimes = [];                       // milliseconds spent per frame, newest last: the benchmark reads it
    this.paintDelays = [];                      // milliseconds from an event's arrival to the end of the frame that shows it, per panel
    this.context = Object.assign(context, {
      hover: (id) => this.hover(id),
      select: (id) => this.select(id),
      selected: () => this.pinned,
      highlighted: () => this.hovered ?? this.pinned,
      rate: () => this.stepRate,
      invalidate: (name) => this.invalidate(name),
    });
    this.stepRate = 0;                          // engine steps per second as they arrive here, smoothed
    this.lastStepAt = null;
    this.visible = new IntersectionObserver((records) => {
      for (const record of records) {
        const entry = this.entries.get(record.target.dataset.panel);
        if (!entry) continue;
        entry.inSight = record.isIntersecting;
        entry.dirtySince = null;                 // what happened out of sight was not to be shown
        if (entry.inSight) this.invalidate(entry.spec.name);
      }
    }, { rootMargin: '80px' });
    this.resized = new ResizeObserver((records) => {
      for (const record of records) {
        const entry = this.entries.get(record.target.closest('[data-panel]')?.dataset.panel);
        if (entry?.panel) { entry.panel.resize?.(); this.invalidate(entry.spec.name); }
      }
    });
    this.unsubscribe = store.subscribe((what, message) => {
      if (what === 'event') {
        this.#measureRate(message);
        const now = performance.now();
        for (const entry of this.entries.values()) entry.dirtySince ??= now;
      }
      if (what === 'event') this.#markAll(); else this.invalidateAll();
    });
    for (const host of Object.values(hosts)) this.#delegate(host);
  }

  // --- mounting ----------------------------------------------------------------------------------------------------------

  async mount() {
    await Promise.all(Object.values(this.specs).map((spec) => this.#mountPanel(spec)));
    this.applyLayout();
  }

  async #mountPanel(spec) {
    const { t } = this.context;
    const card = document.createElement('section');
    card.className = `bs-panel bs-panel-${spec.name}`;
    card.dataset.panel = spec.name;
    card.style.setProperty('--span', spec.span);
    card.style.setProperty('--order', spec.order);
    card.setAttribute('aria-labelledby', `bs-title-${spec.name}`);
    card.innerHTML = `<header class="bs-panel-head">
        <h3 id="bs-title-${spec.name}" data-t="panel.${spec.name}.title"></h3>
        <span class="bs-panel-note"></span><span class="bs-panel-tools"></span>
        <button type="button" class="bs-icon bs-panel-fold" data-t-label="panel.fold" data-fold="${spec.name}" aria-expanded="${spec.phone}">▾</button>
        <button type="button" class="bs-icon bs-panel-hide" data-t-label="panel.hide" data-hide="${spec.name}">×</button>
      </header>
      <div class="bs-panel-body"></div>
      <p class="bs-panel-caption" data-t="panel.${spec.name}.caption"></p>
      <p class="bs-sr" data-describe></p>`;
    const body = card.querySelector('.bs-panel-body');
    // On a phone the rest folds; a folded panel is out of sight and costs nothing.
    card.dataset.folded = spec.phone ? '' : '1';
    if (spec.height) { body.dataset.sized = ''; body.style.setProperty('--height', `${spec.height}px`); }
    const host = this.hosts[spec.area] ?? this.hosts.more;
    const after = [...host.children].find((other) => Number(other.style.getPropertyValue('--order')) > spec.order);
    host.insertBefore(card, after ?? null);
    t.apply(card);
    const entry = { spec, card, body, panel: null, inSight: true, dirty: true, waited: 0, drawnAt: -Infinity, describedAt: -Infinity, untold: false, dirtySince: null, costs: [] };
    this.entries.set(spec.name, entry);
    try {
      const module = await this.loadPanel(spec.name);
      entry.panel = new module.default(body, spec, { ...this.context, ...this.#panelParts(card) });
      this.visible.observe(card);
      this.resized.observe(body);
    } catch (error) {
      body.textContent = t('panel.broken', { name: spec.name, error: String(error.message ?? error) });
      console.error(`panel ${spec.name}`, error);
    }
    this.invalidate(spec.name);
  }

  // `note(text)` writes beside the title, `tools` is an element for a panel's own small controls.
  #panelParts(card) {
    const noteElement = card.querySelector('.bs-panel-note');
    const tools = card.querySelector('.bs-panel-tools');
    let shown = '';
    return { tools, card, note: (text) => { if (text !== shown) { shown = text; noteElement.textContent = text; } } };
  }

  // Shows and hides panels by the person's choice; a hidden panel costs nothing.
  applyLayout() {
    for (const entry of this.entries.values()) {
      const shown = this.layout.isShown(entry.spec);
      entry.card.hidden = !shown;
      if (shown) this.invalidate(entry.spec.name);
    }
  }

  // --- drawing -----------------------------------------------------------------------------------------------------------

  // Asks for a draw in the next frame, also of a panel that was drawn a moment ago.
  invalidate(name) {
    const entry = this.entries.get(name);
    if (entry) { entry.dirty = true; entry.drawnAt = -Infinity; this.#schedule(); }
  }

  invalidateAll() {
    for (const entry of this.entries.values()) entry.drawnAt = -Infinity;
    this.#markAll();
  }

  #markAll() {
    for (const entry of this.entries.values()) entry.dirty = true;
    this.#schedule();
  }

  #schedule() {
    if (this.frame || this.stopped) return;
    this.frame = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.frame = null;
    const started = performance.now();
    const view = this.store.view();
    const waiting = [...this.entries.values()]
      .filter((entry) => entry.dirty && entry.panel && entry.inSight && !entry.card.hidden && this.#isDue(entry, view, started))
      .sort((one, other) => other.waited - one.waited || one.spec.order - other.spec.order);
    let left = waiting.length;
    const shown = [];
    for (const entry of waiting) {
      if (performance.now() - started > FRAME_BUDGET_MS) { entry.waited += 1; continue; }
      entry.dirty = false;
      entry.waited = 0;
      entry.drawnAt = started;
      left -= 1;
      if (entry.dirtySince !== null) shown.push(entry.dirtySince);
      entry.dirtySince = null;
      this.#updateEntry(entry, view);
    }
    const ended = performance.now();
    this.#keep(this.frameTimes, ended - started);
    for (const since of shown) this.#keep(this.paintDelays, ended - since);
    if (left > 0) this.#schedule();
  }

  // A panel of words rests between draws while events stream in; it stays dirty, so its last state is drawn when the rest is over.
  #isDue(entry, view, now) {
    const rest = view.live ? entry.spec.redraw_ms - (now - entry.drawnAt) : 0;
    if (!(rest > 0)) return true;
    this.alarm ??= setTimeout(() => { this.alarm = null; this.#schedule(); }, rest);
    return false;
  }

  #updateEntry(entry, view) {
    const started = performance.now();
    this.#guarded(entry, () => {
      entry.panel.update(view);
      this.#keep(entry.costs, performance.now() - started);
    });
    this.#describe(entry, view);
  }

  // What was drawn within a second of the last sentence is told when that second is over, so that the last state always is.
  #describe(entry, view) {
    const rest = SENTENCE_MS - (performance.now() - entry.describedAt);
    entry.untold = rest > 0;
    if (entry.untold) {
      this.teller ??= setTimeout(() => {
        this.teller = null;
        const now = this.store.view();
        for (const each of this.entries.values()) if (each.untold && each.panel) this.#describe(each, now);
      }, rest);
      return;
    }
    entry.describedAt = performance.now();
    this.#guarded(entry, () => {
      const sentence = entry.panel.describe?.(view) ?? '';
      const target = entry.card.querySelector('[data-describe]');
      if (target.textContent !== sentence) target.textContent = sentence;
    });
  }

  // One broken panel must not stop the others; it is reported once.
  #guarded(entry, work) {
    try { work(); } catch (error) {
      if (!entry.reported) { entry.reported = true; console.error(`panel ${entry.spec.name}`, error); }
    }
  }

  #keep(list, value) {
    list.push(value);
    if (list.length > 2000) list.splice(0, 1000);
  }

  #measureRate(message) {
    if (message.type !== 'step') return;
    const now = performance.now();
    if (this.lastStepAt !== null) {
      const gap = Math.max(1, now - this.lastStepAt);
      this.stepRate += (1000 / gap - this.stepRate) * Math.min(1, gap / 500);
    }
    this.lastStepAt = now;
  }

  // --- one request, highlighted everywhere -------------------------------------------------------------------------------

  // Any element with data-request takes part in hover and pin without code of its own.
  #delegate(host) {
    host.addEventListener('pointerover', (event) => {
      const target = event.target.closest?.('[data-request]');
      if (target) this.hover(target.dataset.request);
    });
    host.addEventListener('pointerout', (event) => {
      if (event.target.closest?.('[data-request]') && !event.relatedTarget?.closest?.('[data-request]')) this.hover(null);
    });
    host.addEventListener('click', (event) => {
      const target = event.target.closest?.('[data-request]');
      if (target) this.select(target.dataset.request === this.pinned ? null : target.dataset.request);
      const hide = event.target.closest?.('[data-hide]');
      const fold = event.target.closest?.('[data-fold]');
      if (fold) this.#fold(fold);
      if (hide) { this.layout.toggle(hide.dataset.hide, false); this.applyLayout(); }
    });
    host.addEventListener('keydown', (event) => {
      const target = event.target.closest?.('[data-request]');
      if (target && event.target === target && (event.key === 'Enter' || event.key === ' ')) {
        event.preventDefault();
        event.stopPropagation();
        this.select(target.dataset.request === this.pinned ? null : target.dataset.request);
      }
    });
  }

  #fold(button) {
    const card = button.closest('[data-panel]');
    const folded = card.dataset.folded === '1';
    card.dataset.folded = folded ? '' : '1';
    button.setAttribute('aria-expanded', String(folded));
    this.invalidate(button.dataset.fold);
  }

  hover(id) {
    if (id === this.hovered) return;
    this.hovered = id;
    this.#highlight();
  }

  select(id) {
    if (id === this.pinned) return;
    this.pinned = id;
    document.dispatchEvent(new CustomEvent('bs:select', { detail: { id } }));
    this.#highlight();
    this.invalidateAll();
  }

  #highlight() {
    const id = this.hovered ?? this.pinned;
    for (const host of Object.values(this.hosts)) host.dataset.highlight = id ?? '';
    for (const entry of this.entries.values()) entry.panel?.highlight?.(id);
  }

  // Colours changed (theme, projector) or texts did (language): every panel starts afresh from the same store.
  restyle() {
    for (const entry of this.entries.values()) entry.panel?.restyle?.();
    this.invalidateAll();
  }

  destroy() {
    this.stopped = true;
    cancelAnimationFrame(this.frame);
    clearTimeout(this.alarm);
    clearTimeout(this.teller);
    this.unsubscribe();
    this.visible.disconnect();
    this.resized.disconnect();
    for (const entry of this.entries.values()) { entry.panel?.destroy?.(); entry.card.remove(); }
    this.entries.clear();
  }
}

// Which panels a person shows; kept in the browser and in the share URL.
export class PanelLayout {
  constructor(key = 'batchscope.panels') {
    this.key = key;
    this.choices = {};
    try { this.choices = JSON.parse(localStorage.getItem(key) ?? '{}') ?? {}; } catch { /* storage may be blocked in a frame */ }
  }

  isShown(spec) { return this.choices[spec.name] ?? spec.shown; }

  toggle(name, shown) {
    this.choices[name] = shown;
    try { localStorage.setItem(this.key, JSON.stringify(this.choices)); } catch { /* as above */ }
  }

  // "name.1,other.0": only what differs from the default, for a URL.
  toText() { return Object.entries(this.choices).map(([name, shown]) => `${name}.${shown ? 1 : 0}`).join(','); }

  fromText(text) {
    this.choices = {};
    for (const part of text.split(',')) {
      const [name, shown] = part.split('.');
      if (name) this.choices[name] = shown === '1';
    }
  }
}
