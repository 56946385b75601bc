// One tooltip for the page. Elements with `data-tip` (a text) or `data-term` (a term of the field, explained in one sentence) show it
// on hover and on keyboard focus; panels that draw on a canvas call `show` themselves.

export class Tooltip {
  constructor(t) {
    this.t = t;
    this.sources = new WeakMap();
    this.box = Object.assign(document.createElement('div'), { className: 'bs-tip', hidden: true, id: 'bs-tip' });
    this.box.setAttribute('role', 'tooltip');
    document.body.append(this.box);
    document.addEventListener('pointerover', (event) => this.#over(event.target));
    document.addEventListener('focusin', (event) => { if (event.target.matches?.(':focus-visible')) this.#over(event.target); });
    document.addEventListener('focusout', () => this.hide());
    document.addEventListener('pointerdown', () => this.hide());
    document.addEventListener('keydown', (event) => { if (event.key === 'Escape') this.hide(); });
    document.addEventListener('scroll', () => this.hide(), { capture: true, passive: true });
  }

  // text: a string, or a function that gives one when it is needed.
  attach(element, text) {
    this.sources.set(element, text);
    element.dataset.tip ??= '';
  }

  #over(target) {
    const element = target.closest?.('[data-tip], [data-term]');
    if (!element) { if (this.owner) this.hide(); return; }
    if (element === this.owner) return;
    const source = this.sources.get(element);
    const text = source ? (typeof source === 'function' ? source() : source)
      : element.dataset.term ? this.t(`term.${element.dataset.term}`) : element.dataset.tip;
    if (!text) { this.hide(); return; }
    const box = element.getBoundingClientRect();
    this.show(box.left + box.width / 2, box.bottom + 6, text, box);
    this.owner = element;
  }

  // At a point of the viewport, kept inside it; `around` is the box not to be covered.
  show(x, y, text, around = null) {
    this.owner = null;
    if (this.box.textContent !== text) this.box.textContent = text;
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const left = Math.max(8, Math.min(innerWidth - width - 8, x - (around ? width / 2 : -12)));
    const below = y + (around ? 0 : 14);
    const top = below + height > innerHeight - 8 ? (around ? around.top - height - 6 : y - height - 10) : below;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${Math.max(8, top)}px`;
  }

  hide() {
    this.owner = null;
    this.box.hidden = true;
  }
}
