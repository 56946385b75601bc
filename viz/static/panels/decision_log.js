// Every decision of the engine as a sentence, newest first.

import { arrange } from '../arrange.js';
import { concerns, decisionTrack, sentence, stepLabel } from '../decisions.js';

const SHOWN = 120;

// A list of rows whose elements are kept and only touched where they changed: a step adds a few rows to a hundred.
export class SentenceList {
  constructor(root, context, empty) {
    this.context = context;
    this.list = document.createElement('ol');
    this.list.className = 'bs-sentences';
    this.list.tabIndex = 0;
    this.empty = document.createElement('p');
    this.empty.className = 'bs-empty';
    this.emptyKey = empty;
    root.append(this.list, this.empty);
    this.elements = new WeakMap();
    this.shown = [];
  }

  // `rows`: newest first. `step`: the step that is being looked at.
  show(rows, step) {
    const { t, store, palette } = this.context;
    if (this.language !== t.language()) { this.language = t.language(); this.forget(); }
    this.empty.hidden = rows.length > 0;
    if (!rows.length) this.empty.textContent = t(this.emptyKey);
    for (const row of rows) {
      const until = row.until === null ? null : Math.min(row.until, step);
      const known = this.elements.get(row);
      if (known && known.until === until) continue;
      const element = known?.element ?? document.createElement('li');
      element.className = `bs-sentence-row bs-log-${row.key}`;
      const place = document.createElement('span');
      place.className = 'bs-sentence-step';
      place.textContent = stepLabel(row, t, step);
      const text = document.createElement('span');
      text.textContent = sentence(row, t, step);                      // text as text: prompts and names come from strangers
      element.replaceChildren(place, text);
      const request = row.id ? store.state.requests[row.id] ?? store.head.requests[row.id] : null;
      if (row.id) element.dataset.request = row.id;
      if (request) element.style.setProperty('--request', palette.color(request.ordinal));
      this.elements.set(row, { element, until });
    }
    if (rows.length === this.shown.length && rows.every((row, index) => row === this.shown[index])) return;
    this.shown = rows.slice();
    arrange(this.list, rows.map((row) => this.elements.get(row).element));
  }

  forget() { this.elements = new WeakMap(); this.shown = []; }

  highlight(id) {
    for (const element of this.list.children) element.classList.toggle('bs-lit', id !== null && element.dataset.request === id);
  }
}

// The newest `limit` rows that were known at `seq`, newest first. `id` keeps those of one request, its details included.
export function rowsAt(track, seq, limit, id = null) {
  const found = [];
  for (let at = track.rows.length - 1; at >= 0 && found.length < limit; at -= 1) {
    const row = track.rows[at];
    if (row.seq > seq) continue;
    if (id === null ? !row.detail : concerns(row, id)) found.push(row);
  }
  return found;
}

export default class DecisionLog {
  constructor(root, spec, context) {
    this.context = context;
    this.track = decisionTrack(context.store);
    this.list = new SentenceList(root, context, 'panel.decision_log.empty');
  }

  update(view) {
    const sign = `${this.track.version}|${view.seq}|${this.context.t.language()}`;
    if (sign === this.sign) return;
    this.sign = sign;
    this.list.show(rowsAt(this.track, view.seq, SHOWN), view.step);
  }

  highlight(id) { this.list.highlight(id); }

  restyle() { this.list.forget(); this.sign = null; }

  describe(view) {
    const [newest] = rowsAt(this.track, view.seq, 1);
    const { t } = this.context;
    return newest ? `${stepLabel(newest, t, view.step)}: ${sentence(newest, t, view.step)}` : t('panel.decision_log.empty');
  }
}
