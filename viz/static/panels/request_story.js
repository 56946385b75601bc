// The whole life of one request in sentences, oldest first, under a head of its figures.

import { decisionTrack, duration } from '../decisions.js';
import { SentenceList, rowsAt } from './decision_log.js';

const SHOWN = 400;

export default class RequestStory {
  constructor(root, spec, context) {
    this.context = context;
    this.track = decisionTrack(context.store);
    this.head = document.createElement('div');
    this.head.className = 'bs-story-head';
    root.append(this.head);
    this.list = new SentenceList(root, context, 'panel.request_story.empty');
  }

  // The pinned request, else the one that the story told last, else nothing.
  #chosen(view) {
    const id = this.context.selected();
    if (id !== null) this.last = id;
    return this.last && (view.state.requests[this.last] || this.#known(this.last)) ? this.last : null;
  }

  #known(id) { return this.track.rows.some((row) => row.id === id); }

  update(view) {
    const id = this.#chosen(view);
    const request = id && view.state.requests[id];
    const sign = `${this.track.version}|${view.seq}|${id}|${this.context.t.language()}`;
    if (sign === this.sign) return;
    this.sign = sign;
    this.context.note?.(id ?? '');
    this.head.hidden = !request;
    if (request) this.#drawHead(request);
    this.list.show(id ? rowsAt(this.track, view.seq, SHOWN, id).reverse() : [], view.step);
  }

  #drawHead(request) {
    const { t, palette } = this.context;
    const { color, mark, label } = palette.of(request);
    const name = document.createElement('strong');
    name.textContent = `${mark} ${label}`;
    name.style.color = color;
    const state = document.createElement('span');
    state.textContent = t(request.offloaded ? 'story.state.offloaded' : `story.state.${request.state}`);
    const prompt = document.createElement('q');
    prompt.textContent = request.prompt.length > 160 ? `${request.prompt.slice(0, 160)}…` : request.prompt;
    const figures = document.createElement('span');
    figures.className = 'bs-story-figures';
    figures.textContent = storyFigures(request, t).join(' · ');
    this.head.replaceChildren(name, state, prompt, figures);
  }

  describe(view) {
    const id = this.#chosen(view);
    const request = id && view.state.requests[id];
    const { t } = this.context;
    if (!request) return t('panel.request_story.empty');
    return `${id}: ${t(`story.state.${request.state}`)}. ${storyFigures(request, t).join(', ')}`;
  }

  restyle() { this.list.forget(); this.sign = null; }
}

export function storyFigures(request, t) {
  const figures = [t('story.tokens', { prompt: request.prompt_len, output: request.outputs })];
  if (request.admitted !== null) figures.push(t('story.queued', { ms: duration(1000 * (request.admitted - request.arrival), t) }));
  if (request.first_token !== null) figures.push(t('story.ttft', { ms: duration(1000 * (request.first_token - request.arrival), t) }));
  const times = request.token_times;
  if (times.length > 1) figures.push(t('story.itl', { ms: duration((1000 * (times.at(-1) - times[0])) / (times.length - 1), t) }));
  if (request.prefix_hit_tokens) figures.push(t('story.hits', { tokens: request.prefix_hit_tokens }));
  if (request.offloads) figures.push(t('story.offloads', { count: request.offloads }));
  if (request.soft_resets) figures.push(t('story.resets', { count: request.soft_resets }));
  return figures;
}
