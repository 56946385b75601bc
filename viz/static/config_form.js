// The configuration form, generated from the knobs' own metadata. It shows what the engine runs with, not what was typed: every value
// comes back through the event stream, and a refused one returns to the old value with the engine's sentence beside the knob.

const GROUPS = ['scheduling', 'cache', 'graphs', 'model'];
// Knobs that are turned during a lecture get a slider; the ends are what makes sense on screen, the number box takes all values.
const SLIDERS = { max_batch_tokens: [1, 1024], max_requests_per_batch: [1, 64], safety_margin: [0, 0.9], block_size: [4, 256], num_blocks: [8, 4096] };

export class ConfigForm {
  constructor(root, app, diffLabel) {
    Object.assign(this, { root, app, diffLabel, rows: new Map() });
    root.innerHTML = `<p class="bs-config-legend"><span data-term="live_knob" tabindex="0"><i data-live="true"></i><b data-t="config.live"></b></span><span data-term="rebuild_knob" tabindex="0"><i data-live="false"></i><b data-t="config.rebuild"></b></span>
      <button type="button" class="bs-link" data-reset-all data-t="config.reset"></button></p>
      ${GROUPS.map((group) => `<details class="bs-knobs" ${group === 'scheduling' || group === 'cache' ? 'open' : ''}><summary data-t="config.group.${group}"></summary><div data-group="${group}"></div></details>`).join('')}
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>`;
    for (const knob of app.data.knobs) this.#addRow(knob);
    this.message = root.querySelector('[data-message]');
    root.querySelector('[data-reset-all]').addEventListener('click', () => this.#resetAll());
    app.store.subscribe((what, message) => {
      if (what === 'clear' || what === 'seek' || message?.config || message?.type === 'snapshot' || message?.layout) this.show();
    });
    document.addEventListener('bs:hello', () => this.show());
    document.addEventListener('bs:language', () => this.show());
    app.tooltip.attach(diffLabel, () => this.#differences().map(([name, value, standard]) => `${name}: ${value} (${app.t('config.default')} ${standard})`).join('\n'));
    this.show();
  }

  #addRow(knob) {
    const { app } = this;
    const row = document.createElement('div');
    row.className = 'bs-knob';
    row.dataset.knob = knob.name;
    const slider = SLIDERS[knob.name];
    row.innerHTML = `<label for="bs-knob-${knob.name}"><i data-live="${knob.live}"></i><span></span></label>
      ${control(knob)}
      ${slider ? `<input type="range" min="0" max="200" step="1" tabindex="-1" aria-hidden="true" data-slider>` : ''}
      <p class="bs-sentence" role="alert"></p>`;
    const label = row.querySelector('label span');
    label.textContent = knob.name;
    const input = row.querySelector('.bs-input, .bs-select, input[type=checkbox]');
    this.root.querySelector(`[data-group="${knob.group}"]`).append(row);
    const item = { knob, row, input, slider: row.querySelector('[data-slider]'), sentence: row.querySelector('.bs-sentence'), range: slider };
    this.rows.set(knob.name, item);
    app.tooltip.attach(row.querySelector('label'), () => this.#help(knob));
    input.addEventListener('change', () => this.#send(item, readInput(item)));
    input.addEventListener('keydown', (event) => { if (event.key === 'Escape') { this.#fill(item, this.#current(knob)); input.blur(); } });
    if (item.slider) {
      item.slider.addEventListener('input', () => { input.value = String(fromSlider(item)); });
      item.slider.addEventListener('change', () => this.#send(item, readInput(item)));
    }
  }

  #help(knob) {
    const { t } = this.app;
    const help = t.has(`knob.${knob.name}`) ? t(`knob.${knob.name}`) : knob.help;
    const lines = [help, t(knob.live ? 'term.live_knob' : 'term.rebuild_knob')];
    if (knob.auto) lines.push(t('config.auto', { what: t.has(`auto.${knob.name}`) ? t(`auto.${knob.name}`) : knob.auto }));
    if (knob.alias) lines.push(t('config.alias', { alias: knob.alias }));
    lines.push(t('config.default_is', { value: shown(knob.default, t) }));
    return lines.join('\n');
  }

  #current(knob) { return this.app.store.head.config?.[knob.name]; }

  async #send(item, value) {
    const { knob } = item;
    if (value === this.#current(knob)) { this.#say(item, ''); return; }
    item.row.dataset.busy = '1';
    try {
      const result = await this.app.command('configure', { changes: { [knob.name]: value } });
      this.#say(item, '');
      this.app.announce(this.app.t(result?.rebuilt ? 'config.rebuilt' : 'config.changed', { name: knob.name, value: shown(value, this.app.t) }));
    } catch (error) {
      this.#say(item, error.message);
      this.#fill(item, this.#current(knob));
    }
    delete item.row.dataset.busy;
  }

  // Sends several knobs at once; resolves to whether the engine took them.
  async apply(changes) {
    try {
      await this.app.command('configure', { changes });
      this.message.textContent = '';
      return true;
    } catch (error) {
      this.message.textContent = error.message;
      this.message.dataset.kind = 'error';
      return false;
    }
  }

  #resetAll() {
    const changes = Object.fromEntries(this.#differences().map(([name]) => [name, this.rows.get(name).knob.default]));
    if (Object.keys(changes).length) this.apply(changes);
  }

  #differences() {
    const { t, store } = this.app;
    const config = store.head.config ?? {};
    return this.app.data.knobs.filter((knob) => knob.name in config && config[knob.name] !== knob.default)
      .map((knob) => [knob.name, shown(config[knob.name], t), shown(knob.default, t)]);
  }

  // Draws what the engine runs with. A knob under the cursor is left alone, so nobody's typing is overwritten.
  show() {
    const { t } = this.app;
    for (const item of this.rows.values()) {
      if (document.activeElement !== item.input) this.#fill(item, this.#current(item.knob));
      item.row.dataset.changed = String(this.#current(item.knob) !== undefined && this.#current(item.knob) !== item.knob.default);
    }
    const count = this.#differences().length;
    this.diffLabel.textContent = count ? t('config.differ', { count }) : '';
    const auto = this.app.store.head.layout?.num_blocks;
    const blocks = this.rows.get('num_blocks')?.input;
    if (blocks && auto) blocks.placeholder = `${t('config.auto_short')} (${auto})`;
    const viewer = this.app.role && this.app.role !== 'host' && (this.app.socket?.room ?? 'main') === 'main';
    for (const item of this.rows.values()) { item.input.disabled = viewer; if (item.slider) item.slider.disabled = viewer; }
    if (viewer) { this.message.textContent = t('config.host_only'); this.message.dataset.kind = ''; }
  }

  #fill(item, value) {
    const { input, knob } = item;
    if (value === undefined) return;
    if (knob.type === 'bool') input.checked = value;
    else input.value = value === null ? '' : String(value);
    if (value === null) input.placeholder = this.app.t('config.auto_short');
    if (item.slider) item.slider.value = String(toSlider(item, value ?? this.app.store.head.layout?.[knob.name] ?? item.range[0]));
  }

  #say(item, text) {
    item.sentence.textContent = text;
    item.sentence.dataset.kind = text ? 'error' : '';
    item.input.setAttribute('aria-invalid', String(Boolean(text)));
  }
}

function control(knob) {
  const id = `id="bs-knob-${knob.name}"`;
  if (knob.choices) return `<select class="bs-select" ${id}>${knob.choices.map((choice) => `<option>${choice}</option>`).join('')}</select>`;
  if (knob.type === 'bool') return `<input type="checkbox" role="switch" ${id}>`;
  return `<input class="bs-input" ${id} inputmode="${knob.type === 'int' ? 'numeric' : 'decimal'}" autocomplete="off" spellcheck="false">`;
}

// What was typed, as a value for the engine; text that is no number is sent as it stands, so that the engine's sentence answers it.
function readInput({ knob, input }) {
  if (knob.type === 'bool') return input.checked;
  if (knob.choices) return input.value;
  const text = input.value.trim();
  if (text === '') return knob.auto ? null : '';
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

// Sliders of whole numbers are logarithmic, because 8 → 16 matters as much as 256 → 512.
function toSlider({ range: [low, high], knob }, value) {
  if (knob.type !== 'int') return Math.round(((value - low) / (high - low)) * 200);
  return Math.round((Math.log(Math.max(low, value) / low) / Math.log(high / low)) * 200);
}

function fromSlider({ range: [low, high], knob, slider }) {
  const share = Number(slider.value) / 200;
  if (knob.type !== 'int') return Math.round((low + share * (high - low)) * 100) / 100;
  const exact = low * (high / low) ** share;
  const unit = exact >= 64 ? 2 ** Math.max(0, Math.floor(Math.log2(exact)) - 3) : 1;
  return Math.max(low, Math.round(exact / unit) * unit);
}

const shown = (value, t) => (value === null || value === undefined ? t('config.auto_short') : String(value));
