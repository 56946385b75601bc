// The form behind "set up your own": knobs of A and B in two columns, one workload, and the device (this machine or a simulated one).

import { MAIN_KNOBS, PAIRS, TEXTBOOK, cleanSetup } from './compare_setup.js';

export class CompareForm {
  // onStart(setup) opens the pair.
  constructor(root, app, onStart) {
    Object.assign(this, { root, app, onStart });
    root.innerHTML = `<div class="bs-compare-grid">
        <table class="bs-compare-knobs"><thead><tr><th scope="col" data-t="compare.knob"></th><th scope="col">A</th><th scope="col">B</th></tr></thead><tbody></tbody></table>
        <div class="bs-compare-more">
          <label class="bs-field"><span data-t="compare.more_knob"></span><select class="bs-select" data-more></select></label>
          <label class="bs-field"><span data-t="compare.workload"></span><select class="bs-select" data-workload></select></label>
          <label class="bs-field"><span data-t="compare.seed"></span><input class="bs-input" data-seed inputmode="numeric" value="0"></label>
          <label class="bs-field"><span data-t="compare.device"></span><select class="bs-select" data-device></select></label>
          <label class="bs-field" data-model-field hidden><span data-t="compare.model"></span><select class="bs-select" data-model></select></label>
          <label class="bs-field" data-count-field hidden><span data-t="compare.count"></span><select class="bs-select" data-count>${[1, 2, 4, 8].map((count) => `<option>${count}</option>`).join('')}</select></label>
          <button type="button" class="bs-button bs-primary" data-start data-t="compare.start"></button>
        </div></div>`;
    this.body = root.querySelector('tbody');
    this.shown = [...MAIN_KNOBS];
    this.custom = null;              // a workload that came from elsewhere (a link, a quick comparison)
    const find = (name) => root.querySelector(`[data-${name}]`);
    this.device = find('device');
    this.model = find('model');
    this.count = find('count');
    this.workload = find('workload');
    this.seed = find('seed');
    this.moreKnob = find('more');
    this.moreKnob.addEventListener('change', () => { if (this.moreKnob.value) { this.shown.push(this.moreKnob.value); this.#drawKnobs(this.#configs()); } });
    this.device.addEventListener('change', () => this.#drawDevice());
    find('start').addEventListener('click', () => this.onStart(this.setup()));
    document.addEventListener('bs:catalog', () => this.relabel());
    const now = app.store.head.config ?? {};
    const live = Object.fromEntries(MAIN_KNOBS.filter((name) => name in now).map((name) => [name, now[name]]));
    this.#drawKnobs([{ ...live, scheduler_type: 'static' }, live]);
    this.relabel();
    if (!app.catalog) app.command('catalog').then((catalog) => { app.catalog = catalog; this.relabel(); }).catch(() => {});
  }

  relabel() {
    const { t, catalog } = this.app;
    const keep = [this.workload, this.device, this.model].map((select) => select.value);
    t.apply(this.root);
    const options = [new Option(t('compare.pair.textbook'), 'textbook'), ...PAIRS.slice(1).map((pair) => new Option(t(`compare.workload.${pair.key}`), `pair:${pair.key}`)),
      ...(catalog?.presets ?? []).map((preset) => new Option(t.has(`preset.${preset.key}.title`) ? t(`preset.${preset.key}.title`) : preset.title, `preset:${preset.key}`))];
    if (this.custom) options.unshift(new Option(t('compare.workload_given'), 'custom'));
    this.workload.replaceChildren(...options);
    this.device.replaceChildren(new Option(t('compare.this_machine'), 'model'), ...(catalog?.devices ?? []).map((gpu) => new Option(t('compare.simulated_device', { name: gpu.name }), gpu.key)));
    this.model.replaceChildren(...(catalog?.models ?? []).map((model) => new Option(model.name, model.key)));
    [this.workload, this.device, this.model].forEach((select, index) => { if ([...select.options].some((option) => option.value === keep[index])) select.value = keep[index]; });
    this.#drawMore();
    this.#drawDevice();
  }

  // Shows a setup in the form.
  fill(value) {
    const setup = cleanSetup(value, this.app.data.knobs);
    this.custom = setup.workload;
    this.seed.value = String(setup.workload.seed ?? 0);
    for (const config of setup.configs) for (const name of Object.keys(config)) if (!this.shown.includes(name)) this.shown.push(name);
    this.#drawKnobs(setup.configs);
    this.relabel();
    this.workload.value = 'custom';
    const [gpu, count] = setup.device.replace('simulated:', '').split(':');
    this.device.value = gpu;
    if (count) this.count.value = count;
    if (setup.model) this.model.value = setup.model;
    this.#drawDevice();
  }

  // {configs, workload, device, model} as chosen.
  setup() {
    const simulated = this.device.value !== 'model';
    const { value } = this.workload;
    const workload = value === 'custom' ? this.custom : value === 'textbook' ? TEXTBOOK
      : value.startsWith('pair:') ? PAIRS.find((pair) => pair.key === value.slice(5)).workload
        : this.app.catalog.presets.find((preset) => preset.key === value.slice(7)).workload;
    return {
      configs: this.#configs(), workload: { ...workload, seed: Number(this.seed.value) || 0 },
      device: simulated ? `simulated:${this.device.value}:${this.count.value}` : 'model', model: simulated ? this.model.value : null,
    };
  }

  #configs() {
    return ['a', 'b'].map((side) => Object.fromEntries([...this.body.querySelectorAll(`[data-side=${side}]`)]
      .map((input) => [input.dataset.knob, read(input)]).filter(([, value]) => value !== undefined)));
  }

  #drawKnobs(configs) {
    const { knobs } = this.app.data;
    this.body.replaceChildren(...this.shown.map((name) => {
      const knob = knobs.find((item) => item.name === name);
      const row = document.createElement('tr');
      const head = document.createElement('th');
      head.scope = 'row';
      head.textContent = name;
      this.app.tooltip.attach(head, () => (this.app.t.has(`knob.${name}`) ? this.app.t(`knob.${name}`) : knob.help));
      row.append(head, ...['a', 'b'].map((side, index) => {
        const cell = document.createElement('td');
        cell.append(control(knob, side, configs[index][name], this.app.t));
        return cell;
      }));
      const mark = () => row.classList.toggle('bs-differs', read(row.querySelector('[data-side=a]')) !== read(row.querySelector('[data-side=b]')));
      row.addEventListener('change', mark);
      mark();
      return row;
    }));
    this.#drawMore();
  }

  #drawMore() {
    const rest = this.app.data.knobs.filter((knob) => !this.shown.includes(knob.name));
    this.moreKnob.replaceChildren(new Option('…', ''), ...rest.map((knob) => new Option(knob.name, knob.name)));
  }

  #drawDevice() {
    const simulated = this.device.value !== 'model' && this.device.value !== '';
    this.root.querySelector('[data-model-field]').hidden = !simulated;
    this.root.querySelector('[data-count-field]').hidden = !simulated;
  }
}

// An input for one knob; an empty number means "as the engine decides".
function control(knob, side, value, t) {
  let input;
  if (knob.type === 'bool' || knob.choices) {
    input = document.createElement('select');
    input.className = 'bs-select';
    const choices = knob.choices ?? ['true', 'false'];
    input.append(...choices.map((choice) => new Option(choice, choice)));
    input.value = String(value ?? knob.default);
  } else {
    input = document.createElement('input');
    input.className = 'bs-input';
    input.inputMode = 'decimal';
    input.placeholder = knob.default === null ? t('compare.auto') : String(knob.default);
    input.value = value === undefined || value === null ? '' : String(value);
  }
  input.dataset.side = side;
  input.dataset.knob = knob.name;
  input.dataset.type = knob.type;
  input.setAttribute('aria-label', `${knob.name}, ${side.toUpperCase()}`);
  return input;
}

// The value of a control; undefined stands for the default.
function read(input) {
  if (input.dataset.type === 'bool') return input.value === 'true';
  if (input.tagName === 'SELECT') return input.value;
  const text = input.value.trim();
  return text === '' ? undefined : Number(text);
}
