// Traffic: ready-made rooms (a configuration and the workload that shows it off) and a generator with a few numbers of one's own.

const ARRIVALS = { at_once: [], poisson: ['rate'], bursts: ['size', 'interval'], closed: ['users'] };
const ARRIVAL_DEFAULTS = { rate: 2, size: 4, interval: 2, users: 4 };

export class WorkloadForm {
  constructor(root, app) {
    Object.assign(this, { root, app, presets: [] });
    root.innerHTML = `
      <label class="bs-field"><span data-t="workload.preset"></span><select class="bs-select" id="bs-preset"></select></label>
      <p class="bs-soft bs-small" data-help></p>
      <div class="bs-field-row">
        <label class="bs-field"><span data-t="workload.requests"></span><input class="bs-input" id="bs-workload-requests" inputmode="numeric" value="16"></label>
        <label class="bs-field"><span data-t="workload.arrivals"></span><select class="bs-select" id="bs-workload-arrivals">${Object.keys(ARRIVALS).map((kind) => `<option value="${kind}" data-t="arrivals.${kind}"></option>`).join('')}</select></label>
      </div>
      <div class="bs-field-row" data-arrival-fields></div>
      <div class="bs-field-row">
        <label class="bs-field"><span data-t="workload.prompt"></span><input class="bs-input" id="bs-workload-prompt" value="8–64"></label>
        <label class="bs-field"><span data-t="workload.output"></span><input class="bs-input" id="bs-workload-output" value="16–64"></label>
      </div>
      <div class="bs-button-row"><button type="button" class="bs-button bs-primary" data-do="start" data-t="workload.start"></button><button type="button" class="bs-button" data-do="stop" data-t="workload.stop"></button>
      <button type="button" class="bs-button" data-do="reset" data-t="workload.reset" data-term="reset"></button></div>
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>`;
    this.preset = root.querySelector('#bs-preset');
    this.kind = root.querySelector('#bs-workload-arrivals');
    this.message = root.querySelector('[data-message]');
    this.help = root.querySelector('[data-help]');
    root.addEventListener('click', (event) => this.#act(event.target.closest('[data-do]')?.dataset.do));
    this.preset.addEventListener('change', () => this.#choose());
    this.kind.addEventListener('change', () => this.#arrivalFields());
    document.addEventListener('bs:status', (event) => { if (event.detail.status === 'open') this.#load(); });
    document.addEventListener('bs:language', () => this.#fillPresets());
    if (app.socket?.socket?.readyState === WebSocket.OPEN) this.#load();
    this.#arrivalFields();
    this.#fillPresets();
  }

  async #load() {
    try {
      this.catalog = await this.app.command('catalog');
      this.app.catalog = this.catalog;
      this.presets = this.catalog.presets;
      this.#fillPresets();
      document.dispatchEvent(new CustomEvent('bs:catalog', { detail: this.catalog }));
    } catch (error) { this.#say(error.message, 'error'); }
  }

  #fillPresets() {
    const { t } = this.app;
    const chosen = this.preset.value;
    this.preset.replaceChildren(new Option(t('workload.own'), ''), ...this.presets.map((preset) => new Option(this.#title(preset), preset.key)));
    this.preset.value = chosen;
    this.#help();
  }

  #title(preset) { return this.app.t.has(`preset.${preset.key}.title`) ? this.app.t(`preset.${preset.key}.title`) : preset.title; }

  #help() {
    const preset = this.#chosen();
    const { t } = this.app;
    this.help.textContent = !preset ? t('workload.own_help') : t.has(`preset.${preset.key}.help`) ? t(`preset.${preset.key}.help`) : preset.help;
  }

  #chosen() { return this.presets.find((preset) => preset.key === this.preset.value); }

  // Choosing a ready-made room turns the knobs at once; its traffic starts with the button.
  async #choose() {
    this.#help();
    const preset = this.#chosen();
    if (!preset) return;
    this.#fillFrom(preset.workload);
    if (preset.device !== 'model') { this.#say(this.app.t('workload.simulated', { device: preset.device.replace('simulated:', '') }), ''); return; }
    const changes = {};
    for (const knob of this.app.data.knobs) {
      const wanted = knob.name in preset.config ? preset.config[knob.name] : knob.default;
      if (this.app.store.head.config?.[knob.name] !== wanted) changes[knob.name] = wanted;
    }
    const taken = await this.app.controls.config.apply(changes);
    this.#say(taken ? this.app.t('workload.configured', { name: this.#title(preset) }) : '', 'good');
  }

  #fillFrom(workload) {
    const put = (id, value) => { this.root.querySelector(`#${id}`).value = value; };
    put('bs-workload-requests', workload.num_requests ?? 32);
    put('bs-workload-prompt', lengthText(workload.prompt_length));
    put('bs-workload-output', lengthText(workload.output_length));
    this.kind.value = workload.arrivals?.kind ?? 'at_once';
    this.#arrivalFields(workload.arrivals);
  }

  #arrivalFields(values = {}) {
    const host = this.root.querySelector('[data-arrival-fields]');
    host.innerHTML = ARRIVALS[this.kind.value].map((name) => `<label class="bs-field"><span data-t="arrivals.field.${name}"></span><input class="bs-input" data-arrival="${name}" value="${values[name] ?? ARRIVAL_DEFAULTS[name]}"></label>`).join('');
    this.app.t.apply(host);
  }

  #read() {
    const value = (id) => this.root.querySelector(`#${id}`).value.trim();
    const preset = this.#chosen();
    const arrivals = { kind: this.kind.value };
    for (const input of this.root.querySelectorAll('[data-arrival]')) arrivals[input.dataset.arrival] = Number(input.value);
    const workload = { ...(preset?.workload ?? { name: 'own', content: 'auto' }), num_requests: Number(value('bs-workload-requests')), arrivals };
    for (const [name, text] of [['prompt_length', value('bs-workload-prompt')], ['output_length', value('bs-workload-output')]]) {
      if (text !== '' && (!preset || text !== lengthText(preset.workload[name]))) workload[name] = lengthValue(text);
    }
    return workload;
  }

  async #act(action) {
    const { app } = this;
    const { t } = app;
    if (!action) return;
    try {
      if (action === 'stop') { await app.command('workload_stop'); this.#say(t('workload.stopped'), ''); return; }
      if (action === 'reset') { await app.command('cancel_all'); await app.command('reset'); this.#say(t('workload.reset_done'), ''); return; }
      const preset = this.#chosen();
      if (preset && preset.device !== 'model') await this.#openSimulated(preset);
      const result = await app.command('workload', { workload: this.#read() });
      if (!app.store.live) app.store.goLive();
      this.#say(t('workload.started', { count: result?.requests ?? '' }), 'good');
    } catch (error) { this.#say(error.message, 'error'); }
  }

  // A simulated device cannot be had by turning knobs: it is a room of its own, and this page moves there.
  async #openSimulated(preset) {
    const { app } = this;
    const room = await app.socket.command('create_room', {
      title: preset.title, config: preset.config, device: preset.device, ...(preset.model ? { model: preset.model } : {}),
    });
    await app.watch(room.room ?? room.name);
  }

  #say(text, kind) {
    this.message.textContent = text;
    this.message.dataset.kind = kind;
  }
}

// {kind: "uniform", low: 8, high: 64} ↔ "8–64"; a fixed length is one number; other kinds are shown by name and kept as they are.
function lengthText(length) {
  if (length === undefined || length === null) return '';
  if (typeof length === 'number') return String(length);
  if (length.kind === 'fixed') return String(length.value);
  if (length.kind === 'uniform') return `${length.low}–${length.high}`;
  return `~${length.mean}`;
}

function lengthValue(text) {
  const [low, high] = text.split(/[–-]/).map((part) => Number(part));
  return high === undefined ? { kind: 'fixed', value: low } : { kind: 'uniform', low, high };
}
