// The header: the name, what runs (model, device, simulated or not), who is connected, and the page's own switches.

const LOGO = `<svg viewBox="0 0 24 24" aria-hidden="true"><rect x="2" y="4" width="9" height="4" rx="1.5" fill="#0b6bcb"/><rect x="12.5" y="4" width="5" height="4" rx="1.5" fill="#d9780f"/><rect x="5" y="10" width="12" height="4" rx="1.5" fill="#12876f"/><rect x="18.5" y="10" width="3.5" height="4" rx="1.5" fill="#b8336a"/><rect x="2" y="16" width="4" height="4" rx="1.5" fill="#6a4bc4"/><rect x="7.5" y="16" width="14.5" height="4" rx="1.5" fill="#0f8fb3"/></svg>`;
const drawing = (path) => `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${path}"/></svg>`;
const ICONS = {
  panels: drawing('M2 2.5h5v5H2zM9 2.5h5v5H9zM2 9.5h5v4H2zM9 9.5h5v4H9z'),
  projector: drawing('M2 6V2.5h3.5M10.5 2.5H14V6M14 10v3.5h-3.5M5.5 13.5H2V10'),
  dark: drawing('M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z'),
  help: drawing('M5.6 6a2.4 2.4 0 1 1 3.4 2.2c-.7.4-1 .8-1 1.6M8 12.4v.2'),
};
const SHAPES = ['pending', 'prefilling', 'decoding', 'offloaded', 'finished', 'failed', 'soft_reset'];

export class Header {
  constructor(root, app) {
    Object.assign(this, { root, app, status: 'connecting' });
    root.innerHTML = `<div class="bs-brand">${LOGO}<span>Batchscope</span></div><span class="bs-header-gap"></span>
      <span class="bs-badge bs-engine-badge" role="status"></span>
      <span class="bs-badge bs-wide" data-room></span>
      <button class="bs-icon" data-do="panels" data-t-label="header.panels" aria-haspopup="dialog">${ICONS.panels}</button>
      <button class="bs-icon" data-do="language" data-t-label="header.language"></button>
      <button class="bs-icon bs-wide" data-do="projector" data-t-label="header.projector" aria-pressed="false">${ICONS.projector}</button>
      <button class="bs-icon" data-do="dark" data-t-label="header.dark" aria-pressed="false">${ICONS.dark}</button>
      <button class="bs-icon" data-do="help" data-t-label="header.help" aria-haspopup="dialog">${ICONS.help}</button>`;
    this.badge = root.querySelector('.bs-engine-badge');
    this.room = root.querySelector('[data-room]');
    root.addEventListener('click', (event) => this.#act(event.target.closest('[data-do]')?.dataset.do));
    app.tooltip.attach(this.badge, () => this.#details());
    document.addEventListener('bs:status', (event) => { this.status = event.detail.status; this.error = event.detail.error; this.#draw(); });
    document.addEventListener('bs:hello', () => this.#draw());
    document.addEventListener('bs:language', () => this.#draw());
    document.addEventListener('bs:message', (event) => { if (event.detail.viewers !== undefined) { this.viewers = event.detail.viewers; this.#draw(); } });
    app.store.subscribe((what, message) => { if (what !== 'event' || message.engine || message.type === 'snapshot') this.#draw(); });
    this.#draw();
  }

  #act(action) {
    const { app } = this;
    if (action === 'language') {
      const languages = app.t.languages();
      app.setLanguage(languages[(languages.indexOf(app.t.language()) + 1) % languages.length]);
    } else if (action === 'dark') app.setDark(!document.body.classList.contains('dark'));
    else if (action === 'projector') app.setProjector(!document.body.classList.contains('bs-projector'));
    else if (action === 'help') this.help();
    else if (action === 'panels') this.panels();
    this.#draw();
  }

  #draw() {
    const { app, badge } = this;
    const { t } = app;
    const { engine } = app.store.head;
    let text;
    let kind = '';
    if (this.status === 'lost' || this.status === 'connecting') { text = t(`status.${this.status}`); kind = this.status === 'lost' ? 'bad' : ''; }
    else if (this.status === 'refused') { text = this.error?.message ?? t('status.lost'); kind = 'bad'; }
    else if (engine.status === 'failed') { text = engine.message || t('status.failed'); kind = 'bad'; }
    else if (engine.status === 'loading') { text = engine.message || t('status.loading'); kind = 'warn'; }
    else {
      text = [shortModel(engine.model), engine.simulated ? engine.device : `${engine.device ?? ''} ${engine.dtype ?? ''}`.trim()].filter(Boolean).join(' · ');
      if (engine.simulated) { text = `${t('status.simulated')} · ${text}`; kind = 'warn'; }
    }
    badge.textContent = text;
    badge.dataset.kind = kind;
    badge.dataset.tip ??= '';
    const watching = this.viewers === undefined ? '' : ` · ${t('header.watching', { count: t.number(this.viewers) })}`;
    this.room.textContent = `${t('header.room', { room: app.socket?.room ?? 'main' })}${watching}`;
    this.root.querySelector('[data-do=language]').textContent = t('header.other_language');
    this.root.querySelector('[data-do=dark]').setAttribute('aria-pressed', String(document.body.classList.contains('dark')));
    this.root.querySelector('[data-do=projector]').setAttribute('aria-pressed', String(document.body.classList.contains('bs-projector')));
  }

  #details() {
    const { t } = this.app;
    const { engine, layout } = this.app.store.head;
    const lines = [engine.model, [engine.device, engine.dtype].filter(Boolean).join(', '), engine.backend && t('header.backend', { name: engine.backend })];
    if (engine.simulated) lines.push(t('header.simulated_note'));
    if (layout) lines.push(t('header.cache', { blocks: t.number(layout.num_blocks), size: t.number(layout.block_size) }));
    if (layout?.prefix_cache && !layout.prefix_cache.on) lines.push(t('header.prefix_off', { why: layout.prefix_cache.why ?? '' }));
    for (const note of [engine.notes ?? []].flat()) lines.push(note);
    return lines.filter(Boolean).join('\n');
  }

  help() {
    const { t } = this.app;
    const keys = [[['␣'], 'help.space'], [['←', '→'], 'help.arrows'], [['⇧←', '⇧→'], 'help.shift'], [['['], 'help.jump', [']']], [['Home'], 'help.home'], [['End'], 'help.end'], [['?'], 'help.help']];
    this.#dialog(t('help.title'), `<p>${t('help.intro')}</p>
      <dl class="bs-keys">${keys.map(([names, text, more = []]) => `<dt>${[...names, ...more].map((name) => `<span class="bs-kbd">${name}</span>`).join('')}</dt><dd>${t(text)}</dd>`).join('')}</dl>
      <h3>${t('help.shapes')}</h3>
      <div class="bs-shapes">${SHAPES.map((shape) => `<span data-term="${shape}" tabindex="0"><i class="bs-shape" data-state="${shape}"></i>${t(`state.${shape}`)}</span>`).join('')}</div>
      <p class="bs-soft">${t('help.colors')}</p>`);
  }

  panels() {
    const { t, data, layout } = this.app;
    const rows = Object.values(data.panels).map((spec) => `<label><input type="checkbox" value="${spec.name}" ${layout.isShown(spec) ? 'checked' : ''}> ${t(`panel.${spec.name}.title`)}</label>`).join('');
    const dialog = this.#dialog(t('header.panels'), `<p class="bs-soft">${t('panels.intro')}</p><div class="bs-shapes">${rows}</div>
      <label><input type="checkbox" data-explain ${document.body.classList.contains('bs-explain') ? 'checked' : ''}> ${t('panels.explain')}</label>`);
    dialog.addEventListener('change', (event) => {
      if ('explain' in event.target.dataset) document.body.classList.toggle('bs-explain', event.target.checked);
      else { layout.toggle(event.target.value, event.target.checked); this.app.screen?.applyLayout(); }
    });
  }

  #dialog(title, body) {
    document.querySelector('dialog.bs-dialog')?.remove();
    const dialog = document.createElement('dialog');
    dialog.className = 'bs-dialog bs-root';
    dialog.setAttribute('aria-label', title);
    dialog.innerHTML = `<header><h2>${title}</h2><button class="bs-icon" data-close aria-label="${this.app.t('dialog.close')}">×</button></header><div class="bs-dialog-body">${body}</div>`;
    dialog.addEventListener('click', (event) => { if (event.target === dialog || event.target.closest('[data-close]')) dialog.close(); });
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
  }
}

// "HuggingFaceTB/SmolLM2-135M-Instruct" → "SmolLM2-135M-Instruct"; a folder shows its last part.
const shortModel = (name) => (name ? String(name).split('/').filter(Boolean).at(-1) : '');
