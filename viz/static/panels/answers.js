// Streaming answers. Only the last state of a text counts: however many tokens came since the last frame, a text is written once. It
// is written as text, never as markup, whatever the model says.

import { arrange } from '../arrange.js';

export default class Answers {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context });
    root.classList.add('bs-scroll');
    root.tabIndex = 0;
    this.list = document.createElement('div');
    this.list.className = 'bs-answers';
    this.empty = Object.assign(document.createElement('p'), { className: 'bs-empty' });
    this.empty.dataset.t = 'panel.answers.empty';
    context.t.apply(root);
    root.append(this.list, this.empty);
    this.cards = new Map();
    root.addEventListener('click', (event) => {
      const id = event.target.closest('[data-cancel]')?.dataset.cancel;
      if (!id) return;
      event.stopPropagation();
      context.command('cancel', { request: id }).catch((error) => context.note(error.message));
    }, true);
  }

  update({ state }) {
    const ids = [...state.active.filter((id) => state.requests[id].outputs > 0).reverse(), ...state.ended.slice(-this.options.most).reverse()]
      .filter((id, at, all) => all.indexOf(id) === at).slice(0, this.options.most);
    const selected = this.context.selected();
    if (selected && state.requests[selected] && !ids.includes(selected)) ids.unshift(selected);
    const wanted = new Set(ids);
    for (const id of this.cards.keys()) if (!wanted.has(id)) this.cards.delete(id);
    arrange(this.list, ids.map((id) => {
      let card = this.cards.get(id);
      if (!card) { card = this.#make(state.requests[id]); this.cards.set(id, card); }
      this.#draw(card, state.requests[id]);
      return card.element;
    }));
    this.empty.hidden = ids.length > 0;
    if (this.empty.textContent !== this.context.t('panel.answers.empty')) this.empty.textContent = this.context.t('panel.answers.empty');
  }

  #make(request) {
    const { color, mark, label } = this.context.palette.of(request);
    const element = document.createElement('article');
    element.className = 'bs-answer';
    element.tabIndex = 0;
    element.dataset.request = request.id;
    element.style.setProperty('--hue', color);
    element.innerHTML = '<header><b></b><span class="bs-answer-prompt"></span><span class="bs-answer-count"></span><button type="button" class="bs-icon"></button></header><p><span></span></p>';
    element.querySelector('b').append(Object.assign(document.createElement('i'), { textContent: mark }), ` ${label}`);
    element.querySelector('.bs-answer-prompt').textContent = request.prompt.replace(/\s+/g, ' ').trim();
    const button = element.querySelector('button');
    button.dataset.cancel = request.id;
    button.textContent = '×';
    button.dataset.tLabel = 'answers.cancel';
    this.context.t.apply(element);
    return { element, ordinal: request.ordinal, text: element.querySelector('p > span'), count: element.querySelector('.bs-answer-count'), button, length: -1 };
  }

  #draw(card, request) {
    if (card.state !== request.state) {
      card.state = request.state;
      card.element.dataset.state = request.state;
      card.button.hidden = ['finished', 'cancelled', 'failed'].includes(request.state);
      card.length = -1;
    }
    const length = request.text.length;
    if (card.length !== length) {
      card.length = length;
      card.text.textContent = request.state === 'failed' ? `${request.text}\n${request.reason ?? ''}` : request.text;
    }
    const count = this.context.t('answers.count', { out: request.outputs });
    if (card.countText !== count) { card.countText = count; card.count.textContent = count; }
  }

  highlight(id) {
    for (const [key, card] of this.cards) card.element.dataset.on = key === id ? '1' : '';
  }

  restyle() {
    for (const card of this.cards.values()) { card.element.style.setProperty('--hue', this.context.palette.color(card.ordinal)); card.countText = null; }
  }

  describe(view) {
    const running = view.state.active.map((id) => view.state.requests[id]).filter((request) => request.outputs > 0);
    if (!running.length) return this.context.t('panel.answers.empty');
    const latest = running.at(-1);
    return this.context.t('panel.answers.describe', { count: running.length, id: latest.id, text: latest.text.slice(-120) });
  }

  destroy() { this.root.replaceChildren(); }
}
