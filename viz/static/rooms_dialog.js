// The rooms of this server: watch another, close one's own, open a new one, on this machine or on a simulated device.

export async function openRoomsDialog(app) {
  document.querySelector('dialog.bs-rooms')?.remove();
  const dialog = new RoomsDialog(app);
  await dialog.load();
}

class RoomsDialog {
  constructor(app) {
    this.app = app;
    const { t } = app;
    const element = document.createElement('dialog');
    element.className = 'bs-dialog bs-root bs-rooms';
    element.setAttribute('aria-labelledby', 'bs-rooms-title');
    element.innerHTML = `<header><h2 id="bs-rooms-title" data-t="rooms.title"></h2><button type="button" class="bs-icon" data-close aria-label="${t('fork.cancel')}">×</button></header>
      <div class="bs-dialog-body"><ul class="bs-room-list"></ul>
      <h3 data-t="rooms.new"></h3><p class="bs-soft bs-small" data-t="rooms.new_help"></p>
      <div class="bs-room-form">
        <label class="bs-field"><span data-t="rooms.name"></span><input class="bs-input" data-title maxlength="80"></label>
        <label class="bs-field"><span data-t="compare.device"></span><select class="bs-select" data-device></select></label>
        <label class="bs-field" data-simulated><span data-t="compare.count"></span><select class="bs-select" data-count>${[1, 2, 4, 8].map((count) => `<option>${count}</option>`).join('')}</select></label>
        <label class="bs-field" data-simulated><span data-t="compare.model"></span><select class="bs-select" data-model></select></label>
      </div>
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>
      <div class="bs-button-row"><button type="button" class="bs-button bs-primary" data-create data-t="rooms.create"></button><button type="button" class="bs-button" data-big data-t="rooms.big"></button></div></div>`;
    this.element = element;
    t.apply(element);
    this.list = element.querySelector('.bs-room-list');
    this.message = element.querySelector('[data-message]');
    this.device = element.querySelector('[data-device]');
    element.addEventListener('click', (event) => this.#act(event));
    element.addEventListener('close', () => element.remove());
    this.device.addEventListener('change', () => this.#drawDevice());
    document.body.append(element);
    element.showModal();
  }

  async load() {
    const { app } = this;
    const { t } = app;
    try {
      app.catalog ??= await app.socket.command('catalog');
      const { rooms } = await app.socket.command('rooms');
      this.list.replaceChildren(...rooms.map((room) => this.#row(room)));
    } catch (error) { this.#say(error.message); }
    this.device.replaceChildren(new Option(t('compare.this_machine'), 'model'), ...(app.catalog?.devices ?? []).map((gpu) => new Option(t('compare.simulated_device', { name: gpu.name }), gpu.key)));
    this.element.querySelector('[data-model]').replaceChildren(...(app.catalog?.models ?? []).map((model) => new Option(model.name, model.key)));
    this.#drawDevice();
  }

  #row(room) {
    const { t } = this.app;
    const item = document.createElement('li');
    const here = room.room === this.app.socket.room;
    const name = document.createElement('strong');
    name.textContent = room.title || room.room;
    const facts = document.createElement('span');
    facts.className = 'bs-soft';
    facts.textContent = [room.simulated ? t('rooms.simulated', { model: room.model, device: room.device.replace('simulated:', '') }) : t('compare.this_machine'),
      t('rooms.watchers', { count: room.watchers })].join(' · ');
    const watch = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button', textContent: t(here ? 'rooms.here' : 'rooms.watch'), disabled: here });
    watch.dataset.watch = room.room;
    item.append(name, facts, watch);
    if (room.yours && room.room !== 'main') {
      const close = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-button', textContent: t('rooms.close') });
      close.dataset.closeRoom = room.room;
      item.append(close);
    }
    return item;
  }

  #drawDevice() {
    const simulated = this.device.value !== 'model';
    for (const field of this.element.querySelectorAll('[data-simulated]')) field.hidden = !simulated;
  }

  async #act(event) {
    const { app, element } = this;
    if (event.target === element || event.target.closest('[data-close]')) { element.close(); return; }
    const button = event.target.closest('button');
    if (!button) return;
    try {
      if (button.dataset.watch) { await app.watch(button.dataset.watch); element.close(); } else if (button.dataset.closeRoom) {
        if (app.socket.room === button.dataset.closeRoom) await app.watch('main');
        await app.socket.command('close_room', { room: button.dataset.closeRoom });
        await this.load();
      } else if ('create' in button.dataset) await this.#create(this.#chosen());
      else if ('big' in button.dataset) await this.#create({ title: app.t('rooms.big'), device: 'simulated:h100:8', model: 'llama-3.1-70b', config: BIG_CONFIG });
    } catch (error) { this.#say(error.message); }
  }

  #chosen() {
    const value = (name) => this.element.querySelector(`[data-${name}]`).value;
    const simulated = this.device.value !== 'model';
    return { title: value('title').trim(), device: simulated ? `simulated:${this.device.value}:${value('count')}` : 'model',
      ...(simulated ? { model: value('model'), config: {} } : { config: this.app.store.head.engine.simulated ? {} : this.app.store.head.config ?? {} }) };
  }

  async #create(fields) {
    const room = await this.app.socket.command('create_room', fields);
    await this.app.socket.command('pace', { room: room.room, steps_per_second: 8 });
    await this.app.watch(room.room);
    this.element.close();
  }

  #say(text) { this.message.textContent = text; this.message.dataset.kind = 'error'; }
}

const BIG_CONFIG = { block_size: 256, max_batch_tokens: 2048, max_requests_per_batch: 256, use_cuda_graph: true, use_async_batching: true };
