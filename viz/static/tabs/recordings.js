// The Recordings tab: save the live run, open a file (picker or drag and drop), replay it with all controls and no engine, export it.

import { openForkDialog, journalOf } from '../fork.js';
import { addPictureMenus } from '../panel_image.js';
import { RecordingRefused, download, fileName, packRecording, parseRecording, recordingOf } from '../recording.js';
import { Replay } from '../replay.js';
import { runCardText, shareLink, tooLong } from '../share.js';

const EXAMPLE = 'viz/examples/smollm2.jsonl.gz';
const EXPORTS = [['html', 'html'], ['perfetto', 'json'], ['csv', 'zip']];
const HIDEABLE = ['forms', 'transport', 'tabs'];                // parts of the page that a shared link may leave out
const MAX_WORKING_MS = 90000;

export async function mount(root, app) {
  app.recordings = new RecordingsTab(root, app);
  // An empty tab teaches nothing: the example is there at once, and says that it is a recording.
  const example = await fetchBlob(EXAMPLE).catch(() => null);
  if (example && !app.recordings.replay) await app.recordings.open(example, { focus: false });
}

class RecordingsTab {
  constructor(root, app) {
    Object.assign(this, { root, app, replay: null });
    const exports = EXPORTS.map(([kind]) => `<button type="button" class="bs-button" data-export="${kind}" data-t="recordings.export.${kind}" data-t-label="recordings.export.${kind}.help"></button>`).join('');
    root.innerHTML = `<div class="bs-recordings"><div class="bs-recordings-actions">
        <section class="bs-card" data-source="live"><h2 data-t="recordings.live"></h2><p class="bs-soft" data-live-facts></p>
          <div class="bs-button-row"><button type="button" class="bs-button bs-primary" data-do="save" data-t="recordings.save"></button>${exports}</div></section>
        <section class="bs-card"><h2 data-t="recordings.open"></h2>
          <div class="bs-drop" data-drop><p data-t="recordings.drop"></p><button type="button" class="bs-button" data-do="pick" data-t="recordings.pick"></button></div>
          <input type="file" hidden accept=".gz,.jsonl" data-file aria-hidden="true" tabindex="-1">
          <div class="bs-button-row"><button type="button" class="bs-button" data-do="example" data-t="recordings.example"></button></div></section>
        <section class="bs-card"><h2 data-t="recordings.share"></h2><p class="bs-soft" data-t="recordings.share.help"></p>
          <fieldset class="bs-hide-choices"><legend data-t="share.hide"></legend>${HIDEABLE.map((name) => `<label><input type="checkbox" data-hide-control="${name}"> <span data-t="share.hide.${name}"></span></label>`).join('')}</fieldset>
          <div class="bs-button-row"><button type="button" class="bs-button" data-do="link" data-t="recordings.link"></button><button type="button" class="bs-button" data-do="card" data-t="recordings.card"></button></div>
          <input class="bs-input" readonly hidden data-link data-t-label="recordings.link"></section></div>
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>
      <details data-facts hidden class="bs-card"><summary data-t="recordings.run_card"></summary><dl class="bs-card-facts"></dl></details>
      <div data-replay></div></div>`;
    this.message = root.querySelector('[data-message]');
    this.file = root.querySelector('[data-file]');
    this.drop = root.querySelector('[data-drop]');
    this.facts = root.querySelector('[data-facts]');
    root.addEventListener('click', (event) => this.#act(event.target.closest('[data-do], [data-export]')));
    this.file.addEventListener('change', () => { if (this.file.files[0]) this.open(this.file.files[0]); this.file.value = ''; });
    for (const name of ['dragenter', 'dragover', 'dragleave', 'drop']) this.drop.addEventListener(name, (event) => this.#dragged(event));
    document.addEventListener('bs:language', () => { app.t.apply(root); this.#liveFacts(); this.replay?.restyle(); if (this.replay) this.#cardFacts(); });
    new MutationObserver(() => this.replay?.restyle()).observe(document.body, { attributes: true, attributeFilter: ['class'] });
    app.store.subscribe(() => this.#later());
    app.t.apply(root);
    this.#liveFacts();
  }

  #later() { this.timer ??= setTimeout(() => { this.timer = null; if (this.root.offsetParent) this.#liveFacts(); }, 1000); }

  #liveFacts() {
    const { t, store } = this.app;
    const facts = this.root.querySelector('[data-live-facts]');
    const text = store.head.counters.steps ? t('recordings.live_facts', { steps: t.number(store.head.counters.steps), requests: t.number(Object.keys(store.head.requests).length), room: this.app.socket?.room ?? '' }) : t('recordings.live_none');
    if (facts.textContent !== text) facts.textContent = text;
  }

  #dragged(event) {
    event.preventDefault();
    this.drop.dataset.over = String(event.type === 'dragenter' || event.type === 'dragover');
    if (event.type === 'drop' && event.dataTransfer.files[0]) this.open(event.dataTransfer.files[0]);
  }

  async #act(button) {
    if (!button) return;
    const { t } = this.app;
    const fromReplay = Boolean(button.closest('.bs-replay'));
    try {
      if (button.dataset.export) await this.#export(button.dataset.export, fromReplay);
      else if (button.dataset.do === 'save') await this.#save(fromReplay);
      else if (button.dataset.do === 'pick') this.file.click();
      else if (button.dataset.do === 'example') await this.open(await fetchBlob(EXAMPLE));
      else if (button.dataset.do === 'close') this.#close();
      else if (button.dataset.do === 'fork') this.#fork();
      else if (button.dataset.do === 'link') await this.#link();
      else if (button.dataset.do === 'card') await this.#copy(this.#cardText(), t('recordings.card_copied'));
    } catch (error) { this.#say(error instanceof RecordingRefused ? error.sentence(t) : error.message, 'error'); }
  }

  // --- the live run --------------------------------------------------------------------------------------------------------

  // Everything the server still knows of the room (it keeps more than this page has seen), else what this page has seen.
  async #liveRecording() {
    const { app } = this;
    const { room } = app.socket;
    const seen = recordingOf(app.store, { workload: app.workload ?? null });
    if (!seen) throw new Error(app.t('recordings.live_none'));
    const journal = await app.socket.command('journal', { room }).catch(() => null);
    if (journal) seen.header.journal = journal;
    try {
      const answer = await fetch(new URL(`api/rooms/${encodeURIComponent(room)}/history?from=0`, document.baseURI));
      if (!answer.ok) return seen;
      const [snapshot, ...events] = (await answer.text()).trim().split('\n').map((line) => JSON.parse(line));
      const start = events.findLastIndex((event) => event.type === 'snapshot');
      return snapshot?.state ? { header: seen.header, snapshot: start < 0 ? snapshot : events[start], events: events.slice(start + 1) } : seen;
    } catch { return seen; }
  }

  async #save(fromReplay) {
    const recording = fromReplay ? this.replay.recording : await this.#liveRecording();
    download(await packRecording(recording), fileName(recording.header, 'jsonl.gz'));
    this.#say(this.app.t('recordings.saved', { events: this.app.t.number(recording.events.length) }), 'good');
  }

  // HTML, Perfetto and CSV are written by the server, from the same code as `python -m viz.export`.
  async #export(kind, fromReplay) {
    const { t } = this.app;
    this.#say(t('recordings.exporting'), '');
    const recording = fromReplay ? this.replay.recording : await this.#liveRecording();
    const answer = await fetch(new URL(`api/export/${kind}`, document.baseURI), { method: 'POST', body: await packRecording(recording), signal: AbortSignal.timeout?.(MAX_WORKING_MS) });
    if (!answer.ok) throw new Error((await answer.text()).trim() || t('recordings.export_failed'));
    download(await answer.blob(), fileName(recording.header, EXPORTS.find(([name]) => name === kind)[1]));
    this.#say(t('recordings.exported'), 'good');
  }

  // --- a recording -----------------------------------------------------------------------------------------------------------

  async open(blob, { focus = true } = {}) {
    const { app } = this;
    const { t } = app;
    this.#say(t('recordings.reading'), '');
    try {
      const recording = await parseRecording(blob);
      this.#close();
      const stage = this.root.querySelector('[data-replay]');
      this.replay = new Replay(stage, recording, { specs: app.data.panels, makeContext: app.makeContext, t, prefix: 'replay', layout: app.layout });
      await this.replay.mount();
      addPictureMenus(this.replay.screen, t);
      this.#replayActions();
      this.#cardFacts();
      this.#say('', '');
      if (focus) { this.replay.transport.playButton.focus({ preventScroll: true }); stage.scrollIntoView({ block: 'start' }); }
    } catch (error) {
      this.#close();
      this.#say(error instanceof RecordingRefused ? error.sentence(t) : error.message, 'error');
    }
  }

  #replayActions() {
    const buttons = [['do', 'fork', 'fork.button'], ['do', 'save', 'recordings.save_again'], ...EXPORTS.map(([kind]) => ['export', kind, `recordings.export.${kind}`]), ['do', 'close', 'recordings.close']];
    this.replay.actions.replaceChildren(...buttons.map(([attribute, value, key]) => {
      const button = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button' });
      button.dataset[attribute] = value;
      button.dataset.t = key;
      return button;
    }));
    this.app.t.apply(this.replay.actions);
  }

  #cardFacts() {
    const { t, data } = this.app;
    const { header, events } = this.replay.recording;
    const { head } = this.replay.store;
    const facts = [['title', header.title], ['model', header.model], ['device', header.device], ['dtype', header.dtype], ['started', header.started], ['room', header.room],
      ['versions', Object.entries(header.versions ?? {}).map(([name, version]) => `${name} ${version}`).join(', ')], ['steps', t.number(head.counters.steps)], ['events', t.number(events.length)],
      ['settings', data.knobs.filter((knob) => knob.name in (header.config ?? {}) && header.config[knob.name] !== knob.default).map((knob) => `${knob.name} = ${header.config[knob.name]}`).join(', ')],
      ['seed', header.seed], ['workload', header.workload ? JSON.stringify(header.workload) : '']];
    this.facts.hidden = false;
    this.facts.querySelector('dl').replaceChildren(...facts.filter(([, value]) => value !== '' && value !== null && value !== undefined).flatMap(([name, value]) => [
      Object.assign(document.createElement('dt'), { textContent: t(`recordings.fact.${name}`) }), Object.assign(document.createElement('dd'), { textContent: String(value).slice(0, 600) })]));
  }

  #fork() {
    const journal = journalOf(this.replay.recording);
    if (!journal) { this.#say(this.app.t('fork.no_journal'), 'error'); return; }
    openForkDialog(this.app, { journal }, this.replay.store.state);
  }

  #close() {
    this.replay?.destroy();
    this.replay = null;
    this.facts.hidden = true;
  }

  // --- sharing ---------------------------------------------------------------------------------------------------------------

  #cardText() {
    const { app, replay } = this;
    const header = replay?.recording.header ?? {};
    return runCardText(replay ? replay.store.head : app.store.head, { knobs: app.data.knobs, header, workload: replay ? header.workload : app.workload });
  }

  async #link() {
    const { t } = this.app;
    const hidden = [...this.root.querySelectorAll('[data-hide-control]:checked')].map((box) => box.dataset.hideControl).join(' ');
    const link = await shareLink(this.app, { hidden });
    const field = this.root.querySelector('[data-link]');
    field.hidden = false;
    field.value = link;
    await this.#copy(link, t(tooLong(link) ? 'recordings.link_long' : 'recordings.link_copied'));
  }

  async #copy(text, said) {
    try { await navigator.clipboard.writeText(text); } catch {
      const area = Object.assign(document.createElement('textarea'), { value: text });       // no clipboard in an insecure context
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    this.copied = text;
    this.#say(said, 'good');
  }

  #say(text, kind) { this.message.textContent = text; this.message.dataset.kind = kind; }
}

async function fetchBlob(path) {
  const answer = await fetch(new URL(path, document.baseURI));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.blob();
}
