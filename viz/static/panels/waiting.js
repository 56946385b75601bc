// Why waiting: the reason recorded by the branch of the scheduler that said no, with its numbers; never a guess made here.

export default class Waiting {
  constructor(root, spec, context) {
    Object.assign(this, { root, options: spec.options, context });
    root.classList.add('bs-scroll');
    root.tabIndex = 0;
    this.list = document.createElement('ol');
    this.list.className = 'bs-waiting';
    root.append(this.list);
    this.shown = '';
  }

  update(view) {
    const { state } = view;
    const { refused, behind, behindCount } = this.#stillWaiting(state);
    const key = JSON.stringify([refused, behind, behindCount, this.context.t.language()]);
    if (key === this.shown) return;
    this.shown = key;
    this.context.note(refused.length + behindCount > 0 ? this.context.number(refused.length + behindCount) : '');
    const rows = refused.slice(0, this.options.most).map((item) => this.#row(item, state));
    if (behindCount > 0) rows.push(this.#line(this.context.t('panel.waiting.behind', {
      count: this.context.number(behindCount), id: state.requests[behind] ? this.context.palette.label(state.requests[behind]) : '',
    }), 'head_of_line'));
    if (!rows.length) {
      const empty = document.createElement('li');
      empty.className = 'bs-empty';
      empty.textContent = this.context.t('panel.waiting.empty');
      rows.push(empty);
    }
    this.list.replaceChildren(...rows);
    this.highlight(this.context.highlighted());
  }

  // The list is the scheduler's at its last step; who was cancelled since then waits no more.
  #stillWaiting(state) {
    const waits = (id) => state.requests[id]?.finished === null;
    const { refused, behind, behind_count: behindCount } = state.waiting;
    return { refused: refused.filter((item) => waits(item.id)), behind, behindCount: behind && waits(behind) ? behindCount : 0 };
  }

  #row(item, state) {
    const request = state.requests[item.id];
    const { color, mark, label } = this.context.palette.of(request);
    const row = document.createElement('li');
    row.dataset.request = item.id;
    row.tabIndex = 0;
    row.style.setProperty('--hue', color);
    const name = Object.assign(document.createElement('span'), { className: 'bs-name' });
    name.append(Object.assign(document.createElement('i'), { textContent: mark }), ` ${label}`);
    const reason = Object.assign(document.createElement('span'), { className: 'bs-term', textContent: this.context.t(`reason.${item.reason}`) });
    reason.dataset.term = `reason.${item.reason}`;
    row.append(name, reason);
    const numbers = this.#numbers(item);
    if (numbers) row.append(Object.assign(document.createElement('small'), { textContent: numbers }));
    return row;
  }

  // "needs 4 blocks, 14 free, 12 held back": the scheduler's own numbers, in the unit of the reason.
  #numbers({ reason, need, have, limit }) {
    const { t, number } = this.context;
    return t.has(`waiting.${reason}`) ? t(`waiting.${reason}`, { need: number(need), have: number(have), limit: number(limit) }) : '';
  }

  #line(text, reason) {
    const row = Object.assign(document.createElement('li'), { className: 'bs-behind' });
    const term = Object.assign(document.createElement('span'), { className: 'bs-term', textContent: text });
    term.dataset.term = `reason.${reason}`;
    row.append(term);
    return row;
  }

  highlight(id) {
    for (const row of this.list.children) row.dataset.on = row.dataset.request && row.dataset.request === id ? '1' : '';
  }

  restyle() { this.shown = ''; }

  describe(view) {
    const { refused, behindCount } = this.#stillWaiting(view.state);
    if (!refused.length) return this.context.t('panel.waiting.empty');
    const first = refused[0];
    return this.context.t('panel.waiting.describe', {
      count: refused.length + behindCount, id: first.id, reason: this.context.t(`reason.${first.reason}`),
    });
  }

  destroy() { this.root.replaceChildren(); }
}
