// "What if?": from the step that is being looked at, in a live room or a recording, run on with other settings and compare.

import { forkPair } from './compare_setup.js';
import { RoomLink } from './room_link.js';
import { showTab } from './show_tab.js';

// Opens the dialog. `source`: {room} of a live room, or {journal} of a recording; `state`: the state at the step to fork from.
export function openForkDialog(app, source, state) {
  document.querySelector('dialog.bs-fork')?.remove();
  new ForkDialog(app, source, state);
}

class ForkDialog {
  constructor(app, source, state) {
    Object.assign(this, { app, source, state, step: state.step });
    const { t } = app;
    const dialog = document.createElement('dialog');
    dialog.className = 'bs-dialog bs-root bs-fork';
    dialog.setAttribute('aria-labelledby', 'bs-fork-title');
    dialog.innerHTML = `<header><h2 id="bs-fork-title"></h2><button type="button" class="bs-icon" data-do="close" aria-label="${t('fork.cancel')}">×</button></header>
      <div class="bs-dialog-body"><p data-t="fork.intro"></p><div class="bs-fork-changes"></div>
      <div class="bs-button-row"><button type="button" class="bs-button" data-do="add" data-t="fork.add"></button></div>
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>
      <div class="bs-button-row"><button type="button" class="bs-button bs-primary" data-do="start" data-t="fork.start"></button><button type="button" class="bs-button" data-do="close" data-t="fork.cancel"></button></div></div>`;
    this.dialog = dialog;
    dialog.querySelector('h2').textContent = t('fork.title', { step: t.number(this.step) });
    this.list = dialog.querySelector('.bs-fork-changes');
    this.message = dialog.querySelector('[data-message]');
    t.apply(dialog);
    dialog.addEventListener('click', (event) => this.#act(event.target.closest('[data-do]')?.dataset.do));
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    this.#addRow('max_batch_tokens');
    dialog.showModal();
  }

  #act(action) {
    if (action === 'close') this.dialog.close();
    else if (action === 'add') this.#addRow('scheduler_type');
    else if (action === 'start') this.#start();
  }

  #addRow(name) {
    const { t, data } = this.app;
    const row = document.createElement('div');
    row.className = 'bs-fork-row';
    const knob = document.createElement('select');
    knob.className = 'bs-select';
    knob.setAttribute('aria-label', t('fork.change'));
    knob.append(...data.knobs.map((item) => new Option(item.name, item.name)));
    knob.value = name;
    const remove = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-icon', textContent: '×' });
    remove.setAttribute('aria-label', t('fork.cancel'));
    remove.addEventListener('click', () => row.remove());
    const draw = () => {
      const value = this.#input(data.knobs.find((item) => item.name === knob.value));
      row.replaceChildren(knob, value, remove);
    };
    knob.addEventListener('change', draw);
    draw();
    this.list.append(row);
  }

  #input(knob) {
    const { t } = this.app;
    const now = this.state.config?.[knob.name];
    const choices = knob.type === 'bool' ? ['true', 'false'] : knob.choices;
    const input = document.createElement(choices ? 'select' : 'input');
    input.className = choices ? 'bs-select' : 'bs-input';
    if (choices) input.append(...choices.map((choice) => new Option(choice, choice)));
    else { input.inputMode = 'decimal'; input.placeholder = t('compare.auto'); }
    input.value = now === null || now === undefined ? '' : String(now);
    input.setAttribute('aria-label', `${t('fork.value')}: ${knob.name}`);
    input.dataset.knob = knob.name;
    input.dataset.type = knob.type;
    return input;
  }

  // Only what differs from the state that is forked.
  #changes() {
    const changes = {};
    for (const input of this.list.querySelectorAll('[data-knob]')) {
      const { knob, type } = input.dataset;
      const text = input.value.trim();
      const value = type === 'bool' ? text === 'true' : input.tagName === 'SELECT' ? text : text === '' ? null : Number(text);
      if (value !== this.state.config?.[knob]) changes[knob] = value;
    }
    return changes;
  }

  async #start() {
    const { app } = this;
    const { t } = app;
    const changes = this.#changes();
    if (!Object.keys(changes).length) { this.#say(t('fork.none'), 'error'); return; }
    const button = this.dialog.querySelector('[data-do=start]');
    button.disabled = true;
    this.#say(t('fork.working', { step: t.number(this.step) }), '');
    try {
      const { links, futures } = await forkPair(app, this.source, this.step, changes, [t('fork.a'), t('fork.b')], RoomLink);
      const named = Object.entries(changes).map(([name, value]) => `${name} = ${value ?? 'auto'}`).join(', ');
      const request = { links, futures, summary: t('fork.summary', { step: t.number(this.step), changes: named }) };
      this.dialog.close();
      if (app.compare) document.dispatchEvent(new CustomEvent('bs:compare', { detail: request }));
      else app.compareRequest = request;
      showTab('compare');
    } catch (error) {
      this.#say(error.message, 'error');
      button.disabled = false;
    }
  }

  #say(text, kind) { this.message.textContent = text; this.message.dataset.kind = kind; }
}

// The journal of a recording: the one saved with it, else one made from its events when they reach back to an untouched room.
export function journalOf({ header, snapshot, events }) {
  if (header.journal) return header.journal;
  const { state } = snapshot;
  if (state.step !== 0 || Object.keys(state.requests).length > 0) return null;
  const entries = [];
  let turn = 0;
  for (const event of events) {
    const base = { turn, step: event.step };
    if (event.type === 'step') turn += 1;
    for (const record of event.requests ?? []) {
      if (record.parent) return null;               // siblings were submitted as one request; only the room's own journal knows it
      entries.push({ ...base, op: 'submit', tokens: record.prompt_tokens, params: record.params, prompt_text: record.prompt, visitor: record.visitor, request_id: record.id, seed_index: 0 });
    }
    if (event.type === 'cancel') for (const transition of event.transitions ?? []) if (transition.cause === 'cancelled') entries.push({ ...base, op: 'cancel', id: transition.id });
    if (event.type === 'config' && event.changed?.length) entries.push({ ...base, op: 'configure', changes: Object.fromEntries(event.changed.map((name) => [name, event.config[name]])) });
  }
  return { version: 1, device: header.simulated ? 'unknown' : 'model', model: null, config: state.config, entries };
}
