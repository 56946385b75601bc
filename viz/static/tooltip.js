// One tooltip for the page. Elements with `data-tip` (a text) or `data-term` (a term of the field, explained in one sentence) show it
// on hover and on keyboard focus; panels that draw on a canvas call `show` themselves. A term that a lesson explains carries a link
// to it: the box can be entered with the pointer, and Enter on the focused term opens the lesson.

import { LESSON_OF, lessonNumber } from './term_lessons.js';

const LINGER = 250;      // ms in which the pointer may travel from a term to its box

export class Tooltip {
  // openLesson(name): how the page opens a lesson; without it, as in an offline recording, there are no links.
  constructor(t, openLesson = null) {
    this.t = t;
    this.openLesson = openLesson;
    this.sources = new WeakMap();
    this.box = Object.assign(document.createElement('div'), { className: 'bs-tip', hidden: true, id: 'bs-tip' });
    this.box.setAttribute('role', 'tooltip');
    this.words = document.createElement('span');
    this.link = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-tip-link', tabIndex: -1 });
    this.link.addEventListener('click', () => this.#follow());
    this.box.append(this.words, this.link);
    document.body.append(this.box);
    document.addEventListener('pointerover', (event) => this.#over(event.target));
    document.addEventListener('focusin', (event) => { if (event.target.matches?.(':focus-visible')) this.#over(event.target); });
    document.addEventListener('focusout', () => this.hide());
    document.addEventListener('pointerdown', (event) => { if (!this.box.contains(event.target)) this.hide(); });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.hide();
      if (event.key === 'Enter' && this.lesson && this.owner === event.target && !event.target.matches('button, a, input, select')) this.#follow();
    });
    document.addEventListener('scroll', () => this.hide(), { capture: true, passive: true });
  }

  // text: a string, or a function that gives one when it is needed.
  attach(element, text) {
    this.sources.set(element, text);
    element.dataset.tip ??= '';
  }

  #over(target) {
    const element = target.closest?.('[data-tip], [data-term]');
    clearTimeout(this.leaving);
    if (this.box.contains(target)) return;
    if (!element) {
      if (this.owner && this.lesson) this.leaving = setTimeout(() => this.hide(), LINGER);
      else if (this.owner) this.hide();
      return;
    }
    if (element === this.owner) return;
    const source = this.sources.get(element);
    const text = source ? (typeof source === 'function' ? source() : source)
      : element.dataset.term ? this.t(`term.${element.dataset.term}`) : element.dataset.tip;
    if (!text) { this.hide(); return; }
    const box = element.getBoundingClientRect();
    this.show(box.left + box.width / 2, box.bottom + 6, text, box, this.openLesson ? LESSON_OF[element.dataset.term] : null);
    this.owner = element;
  }

  // At a point of the viewport, kept inside it; `around` is the box not to be covered, `lesson` the one that explains it.
  show(x, y, text, around = null, lesson = null) {
    clearTimeout(this.leaving);
    this.owner = null;
    this.lesson = lesson ?? null;
    if (this.words.textContent !== text) this.words.textContent = text;
    this.link.hidden = !this.lesson;
    if (this.lesson) this.link.textContent = this.t('tip.lesson', { number: lessonNumber(this.lesson) });
    this.box.classList.toggle('bs-tip-entered', Boolean(this.lesson));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const left = Math.max(8, Math.min(innerWidth - width - 8, x - (around ? width / 2 : -12)));
    const below = y + (around ? 0 : 14);
    const top = below + height > innerHeight - 8 ? (around ? around.top - height - 6 : y - height - 10) : below;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${Math.max(8, top)}px`;
  }

  #follow() {
    const { lesson } = this;
    this.hide();
    this.openLesson(lesson);
  }

  hide() {
    clearTimeout(this.leaving);
    this.owner = null;
    this.lesson = null;
    this.box.hidden = true;
  }
}
