// A second room on the page's one websocket: its events go into a store of its own, gaps are healed, and after a lost connection it
// is subscribed again. The live page's own room is the socket's business; this is for compared rooms.

import { Store } from './store.js';

export class RoomLink {
  // app: the page; room: its name; title: how the page calls it.
  constructor(app, room, title = room) {
    Object.assign(this, { app, room, title });
    this.store = new Store();
    this.healing = false;
    this.command = (cmd, fields = {}) => app.socket.command(cmd, { room, ...fields });
    this.onMessage = (event) => { if (event.detail.room === room && event.detail.seq !== undefined) this.#received(event.detail); };
    this.onStatus = (event) => { if (event.detail.status === 'open') this.open().catch(() => {}); };
    document.addEventListener('bs:message', this.onMessage);
    document.addEventListener('bs:status', this.onStatus);
  }

  async open() {
    this.healing = false;
    const fields = this.store.started && this.life ? { from_seq: this.store.head.seq, life: this.life } : {};
    const result = await this.command('subscribe', fields);
    this.life = result?.life;
    await this.#started();
    return this;
  }

  // The snapshot comes after the answer to subscribe.
  #started() {
    if (this.store.started) return Promise.resolve();
    return new Promise((resolve) => {
      const stop = this.store.subscribe(() => { if (this.store.started) { stop(); resolve(); } });
    });
  }

  #received(message) {
    if (message.type === 'snapshot') this.healing = false;
    if (this.healing) return;
    if (this.store.receive(message)) return;
    this.healing = true;
    this.command('snapshot').then((snapshot) => this.#received(snapshot)).catch(() => { this.healing = false; });
  }

  // The events from before we came, where the server still has them: then figures and timeline reach back to the room's beginning.
  async fetchPast() {
    try {
      const answer = await fetch(new URL(`api/rooms/${encodeURIComponent(this.room)}/history`, document.baseURI));
      if (answer.ok) this.store.prepend((await answer.text()).split('\n').filter(Boolean).map((line) => JSON.parse(line)));
    } catch { /* what we have seen ourselves is shown */ }
  }

  // Whether everything that was asked of the room has ended.
  get idle() {
    const { head } = this.store;
    return head.queue.length === 0 && head.active.length === 0 && head.counters.finished + head.counters.cancelled + head.counters.failed > 0;
  }

  // Stops watching; `close` also gives the room back to the server.
  async destroy({ close = true } = {}) {
    document.removeEventListener('bs:message', this.onMessage);
    document.removeEventListener('bs:status', this.onStatus);
    await this.command('unsubscribe').catch(() => {});
    if (close) await this.command('close_room').catch(() => {});
  }
}
