// A recording on screen: its banner, its transport and all panels over a store of its own. Used by the Recordings tab, by the
// example that greets a visitor, and by the offline file.

import { PanelLayout, Screen } from './screen.js';
import { ReplayTransport } from './replay_transport.js';
import { Store } from './store.js';
import { fillStore } from './recording.js';

export class Replay {
  // recording: {header, snapshot, events}. options: {specs, makeContext, t, prefix, banner: extra elements, layout, loadPanel}.
  // Throws RecordingRefused when an event does not continue the run.
  constructor(root, recording, options) {
    Object.assign(this, { root, recording, options, t: options.t });
    this.store = new Store();
    fillStore(this.store, recording);
    root.innerHTML = `<section class="bs-replay">
      <div class="bs-replay-banner"><strong class="bs-replay-mark"></strong><span class="bs-replay-what"></span><span class="bs-replay-actions"></span></div>
      <div class="bs-replay-bar"></div><div class="bs-replay-stage"></div></section>`;
    this.actions = root.querySelector('.bs-replay-actions');
    this.transport = new ReplayTransport(root.querySelector('.bs-replay-bar'), { t: this.t, store: this.store, prefix: options.prefix });
    this.mounted = false;
    this.relabel();
  }

  async mount() {
    const { specs, makeContext, prefix, loadPanel } = this.options;
    const stage = this.root.querySelector('.bs-replay-stage');
    const hosts = {};
    for (const area of ['main', 'side', 'more']) {
      hosts[area] = document.createElement('div');
      hosts[area].className = `bs-area bs-area-${area}`;
      stage.append(hosts[area]);
    }
    this.screen = new Screen({
      store: this.store, specs, hosts, loadPanel, layout: this.options.layout ?? new PanelLayout(),
      context: makeContext(this.store, () => Promise.reject(new Error(this.t('replay.no_engine')))),
    });
    await this.screen.mount();
    // Two screens may be on one page, and ids must stay unique.
    for (const card of stage.querySelectorAll('[aria-labelledby]')) {
      const title = card.querySelector('h3');
      title.id = `${title.id}-${prefix}`;
      card.setAttribute('aria-labelledby', title.id);
    }
    this.relabel();
    this.mounted = true;
    return this;
  }

  relabel() {
    const { t, recording: { header } } = this;
    t.apply(this.root);
    this.root.querySelector('.bs-replay-mark').textContent = t('replay.mark');
    this.root.querySelector('.bs-replay-what').textContent = describeCard(header, t);
    this.transport.relabel();
  }

  restyle() { this.relabel(); this.screen?.restyle(); }

  destroy() {
    this.transport.destroy();
    this.screen?.destroy();
    this.root.replaceChildren();
  }
}

// "SmolLM2-135M-Instruct on cpu (2 threads), float32, recorded 2026-11-29 — simulated" from a run card.
export function describeCard(header, t) {
  const started = header.started ? new Date(header.started) : null;
  const when = started && !Number.isNaN(started.getTime()) ? new Intl.DateTimeFormat(t.language(), { dateStyle: 'medium' }).format(started) : '';
  return [header.title, t('replay.what', { model: header.model || '?', device: header.device || '?', dtype: header.dtype || '?' }),
    when ? t('replay.when', { when }) : '', header.simulated ? t('replay.simulated') : t('replay.real')].filter(Boolean).join(' · ');
}
