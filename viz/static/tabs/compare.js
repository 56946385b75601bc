// The Compare tab: two rooms with their own configurations on one workload, side by side, in lockstep or running freely, with the
// difference between them as a table.

import { compareRows, compareTrack } from '../compare_metrics.js';
import { PAIRS, openPair } from '../compare_setup.js';
import { CompareForm } from '../compare_form.js';
import { PairRun } from '../lockstep.js';
import { RoomLink } from '../room_link.js';
import { Screen } from '../screen.js';

const PANELS = ['lanes', 'composition', 'blocks', 'timeline'];
const SPEEDS = [1, 2, 4, 8, 16, 32];
const DRAW_EVERY_MS = 150;
const HEADLINE = ['steps', 'idle_cells', 'throughput', 'ttft_steps_p50', 'ttft_p50'];      // those of them that the mode has, as large figures

export async function mount(root, app) {
  app.compare = new CompareTab(root, app);
  const asked = app.compareRequest;
  app.compareRequest = null;
  if (asked) await app.compare.take(asked);
}

class CompareTab {
  constructor(root, app) {
    Object.assign(this, { root, app, links: [], screens: [] });
    root.innerHTML = `<div class="bs-compare">
      <section class="bs-card bs-compare-setup" aria-labelledby="bs-compare-title">
        <h2 id="bs-compare-title" data-t="compare.title"></h2><p class="bs-soft" data-t="compare.intro"></p>
        <div class="bs-compare-quick" role="group" data-t-label="compare.quick">${PAIRS.map((pair) => `<button type="button" class="bs-button" data-pair="${pair.key}"><strong data-t="compare.pair.${pair.key}"></strong><span class="bs-soft" data-t="compare.pair.${pair.key}.help"></span></button>`).join('')}</div>
        <details class="bs-compare-own"><summary data-t="compare.own"></summary><div data-form></div></details>
        <p class="bs-sentence" role="status" aria-live="polite" data-message></p>
      </section>
      <section class="bs-compare-run" hidden>
        <div class="bs-compare-bar" role="toolbar" data-t-label="compare.controls">
          <button type="button" class="bs-button bs-primary" data-do="play"></button>
          <button type="button" class="bs-button" data-do="step" data-t="compare.step"></button>
          <label for="bs-compare-mode" data-t="compare.mode"></label>
          <select class="bs-select" id="bs-compare-mode"><option value="lockstep" data-t="compare.lockstep"></option><option value="free" data-t="compare.free"></option></select>
          <label for="bs-compare-speed" data-t="compare.speed"></label>
          <select class="bs-select" id="bs-compare-speed">${SPEEDS.map((speed) => `<option value="${speed}">${speed}</option>`).join('')}</select>
          <button type="button" class="bs-button" data-do="again" data-t="compare.again"></button>
          <button type="button" class="bs-button" data-do="close" data-t="compare.close"></button>
          <span class="bs-soft" role="status" aria-live="polite" data-run-state></span>
        </div>
        <dl class="bs-compare-headline"></dl>
        <div class="bs-compare-columns"></div>
        <div class="bs-card bs-compare-table"><h3 data-t="compare.table"></h3><table class="bs-compare-figures"><caption class="bs-sr" data-t="compare.table"></caption><thead></thead><tbody></tbody></table><p class="bs-soft bs-small" data-note></p></div>
      </section></div>`;
    this.message = root.querySelector('[data-message]');
    this.mode = root.querySelector('#bs-compare-mode');
    this.speed = root.querySelector('#bs-compare-speed');
    this.speed.value = '4';
    this.form = new CompareForm(root.querySelector('[data-form]'), app, (setup) => this.open(setup));
    root.addEventListener('click', (event) => this.#act(event.target.closest('[data-do], [data-pair]')?.dataset));
    this.mode.addEventListener('change', () => this.#draw());
    this.speed.addEventListener('change', () => { if (this.run) this.run.stepsPerSecond = Number(this.speed.value); });
    document.addEventListener('bs:language', () => { app.t.apply(root); this.form.relabel(); this.shape = null; this.#draw(); for (const screen of this.screens) screen.restyle(); });
    document.addEventListener('bs:compare', (event) => this.take(event.detail));
    app.t.apply(root);
  }

  // What another part of the page asks for: {setup} to open, or {links, summary} of rooms that are open already (a fork).
  async take(asked) {
    if (asked.setup) { this.form.fill(asked.setup); await this.open(asked.setup); } else await this.show(asked.links, asked.summary, asked.futures);
  }

  async #act(data) {
    if (!data) return;
    if (data.pair) {
      const pair = PAIRS.find((item) => item.key === data.pair);
      const setup = { configs: pair.configs, workload: pair.workload, device: 'model', model: null };
      this.form.fill(setup);
      await this.open(setup);
    } else if (data.do === 'play') {
      if (this.run.running) await this.run.pause();
      else this.run.start(this.mode.value);
    } else if (data.do === 'step') await this.run.step().catch((error) => this.#say(error.message, 'error'));
    else if (data.do === 'again') await this.open(this.setup);
    else if (data.do === 'close') await this.close();
  }

  async open(setup) {
    const { t } = this.app;
    await this.close();
    this.setup = setup;
    this.#say(t('compare.opening'), '');
    try {
      const links = await openPair(this.app, setup, [t('compare.room', { letter: 'A' }), t('compare.room', { letter: 'B' })], RoomLink);
      this.#say('', '');
      await this.show(links, null);
      this.run.start(this.mode.value);
    } catch (error) { this.#say(error.message, 'error'); }
  }

  // Puts two open rooms on screen. `summary`: a sentence about where they come from.
  async show(links, summary, futures) {
    if (this.links.length) await this.close();
    this.links = links;
    this.summary = summary;
    this.tracks = links.map((link) => compareTrack(link.store));
    this.run = new PairRun(links, () => this.#draw(), futures);
    this.run.stepsPerSecond = Number(this.speed.value);
    this.root.querySelector('.bs-compare-run').hidden = false;
    this.root.querySelector('[data-do=again]').hidden = !this.setup || summary !== null;
    await this.#mountScreens();
    this.unsubscribe = links.map((link) => link.store.subscribe(() => this.#schedule()));
    this.#draw();
    this.root.querySelector('.bs-compare-run').scrollIntoView({ block: 'nearest' });
  }

  async #mountScreens() {
    const columns = this.root.querySelector('.bs-compare-columns');
    columns.replaceChildren();
    for (const [index, link] of this.links.entries()) {
      const letter = 'AB'[index];
      const column = document.createElement('section');
      column.className = 'bs-compare-column';
      column.dataset.side = letter;
      column.innerHTML = `<header class="bs-compare-head"><h3></h3><p class="bs-soft bs-small"></p></header><div class="bs-area bs-area-main"></div>`;
      columns.append(column);
      const specs = Object.fromEntries(PANELS.filter((name) => this.app.data.panels[name])
        .map((name) => [name, { ...this.app.data.panels[name], area: 'main', span: 12 }]));
      const screen = new Screen({
        store: link.store, specs, hosts: { main: column.querySelector('.bs-area') }, context: this.app.makeContext(link.store, link.command),
        layout: { isShown: () => true, toggle() {} },
      });
      this.screens.push(screen);
      await screen.mount();
      for (const card of column.querySelectorAll('[aria-labelledby]')) {            // ids must stay unique on the page
        const title = card.querySelector('h3');
        title.id = `${title.id}-compare-${letter}`;
        card.setAttribute('aria-labelledby', title.id);
        card.querySelector('.bs-panel-hide')?.remove();
      }
    }
    this.shape = null;
  }

  #schedule() {
    this.timer ??= setTimeout(() => { this.timer = null; this.#draw(); }, DRAW_EVERY_MS);
  }

  #draw() {
    if (!this.links.length) return;
    const { t } = this.app;
    const { run } = this;
    const states = this.links.map((link) => link.store.head);
    const simulated = states.every((state) => state.engine.simulated);
    const free = run.mode === 'free' && !this.summary;
    this.#drawTable(compareRows(states.map((state, index) => ({ state, track: this.tracks[index] })), { clock: free || simulated }));
    this.root.querySelector('[data-do=play]').textContent = t(run.running ? 'compare.pause' : run.done ? 'compare.done' : 'compare.play');
    this.root.querySelector('[data-do=play]').disabled = run.done && !run.running;
    this.root.querySelector('[data-do=step]').disabled = run.done || run.running;
    this.speed.disabled = this.mode.value === 'free';
    this.mode.disabled = run.running;
    this.root.querySelector('[data-run-state]').textContent = run.failure ? run.failure.message
      : t(run.done ? 'compare.finished' : 'compare.at', { a: states[0].counters.steps, b: states[1].counters.steps });
    this.root.querySelector('[data-note]').textContent = [this.summary, t(simulated ? 'compare.note_simulated' : free ? 'compare.note_free' : 'compare.note_lockstep')].filter(Boolean).join(' ');
    this.#drawHeads(states);
  }

  #drawHeads(states) {
    const { t, data } = this.app;
    const differs = data.knobs.filter((knob) => states[0].config && states[1].config && states[0].config[knob.name] !== states[1].config[knob.name]);
    this.root.querySelectorAll('.bs-compare-head').forEach((head, index) => {
      const config = states[index].config ?? {};
      const parts = differs.map((knob) => `${knob.name} = ${config[knob.name] ?? 'auto'}`);
      head.querySelector('h3').textContent = `${'AB'[index]} · ${parts[0] ?? t('compare.same')}`;
      head.querySelector('p').textContent = [...parts.slice(1), states[index].engine.simulated ? `${states[index].engine.model}, ${states[index].engine.device}` : ''].filter(Boolean).join(' · ');
    });
  }

  #drawTable(rows) {
    const { t } = this.app;
    this.#drawHeadline(rows);
    const shape = `${t.language()}|${rows.map((row) => row.key).join()}`;
    const table = this.root.querySelector('.bs-compare-figures');
    if (shape !== this.shape) {
      this.shape = shape;
      table.tHead.replaceChildren(line('th', [t('compare.figure'), 'A', 'B', t('compare.ratio')]));
      table.tBodies[0].replaceChildren(...rows.map((row) => { const item = line('td', [t(`compare.row.${row.key}`), '', '', '']); item.dataset.row = row.key; return item; }));
    }
    rows.forEach((row, index) => {
      const { cells } = table.tBodies[0].rows[index];
      row.values.forEach((value, side) => {
        const text = value === null ? '–' : `${t.number(value, row.digits)}${row.unit ? ` ${row.unit}` : ''}${row.better === side ? ' ✓' : ''}`;
        const cell = cells[1 + side];
        if (cell.textContent !== text) cell.textContent = text;
        cell.classList.toggle('bs-better', row.better === side);
      });
      cells[3].textContent = row.ratio === null ? '' : `×${t.number(row.ratio, 2)}`;
    });
  }

  #drawHeadline(rows) {
    const { t } = this.app;
    const line = this.root.querySelector('.bs-compare-headline');
    const shown = rows.filter((row) => HEADLINE.includes(row.key));
    if (line.children.length !== shown.length) line.replaceChildren(...shown.map(() => { const item = document.createElement('div'); item.innerHTML = '<dt></dt><dd></dd><dd></dd>'; return item; }));
    shown.forEach((row, index) => {
      const [name, ...cells] = line.children[index].children;
      name.textContent = t(`compare.row.${row.key}`);
      cells.forEach((cell, side) => {
        const value = row.values[side];
        const text = `${'AB'[side]} ${value === null ? '–' : t.number(value, row.digits)}${row.unit ? ` ${row.unit}` : ''}${row.better === side ? ' ✓' : ''}`;
        if (cell.textContent !== text) cell.textContent = text;
        cell.classList.toggle('bs-better', row.better === side);
      });
    });
  }

  // Ends the comparison and gives the rooms back.
  async close() {
    const { links } = this;
    if (!links.length) return;
    this.run.abandon();
    clearTimeout(this.timer);
    this.timer = null;
    for (const stop of this.unsubscribe ?? []) stop();
    for (const screen of this.screens.splice(0)) screen.destroy();
    this.links = [];
    this.root.querySelector('.bs-compare-run').hidden = true;
    this.root.querySelector('.bs-compare-columns').replaceChildren();
    await Promise.all(links.map((link) => link.destroy()));
  }

  #say(text, kind) { this.message.textContent = text; this.message.dataset.kind = kind; }
}

function line(kind, texts) {
  const row = document.createElement('tr');
  texts.forEach((text, index) => {
    const cell = document.createElement(index === 0 || kind === 'th' ? 'th' : kind);
    cell.scope = kind === 'th' ? 'col' : index === 0 ? 'row' : '';
    if (!cell.scope) cell.removeAttribute('scope');
    cell.textContent = text;
    row.append(cell);
  });
  return row;
}
