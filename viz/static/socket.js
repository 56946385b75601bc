// One websocket to the page process at a relative address: the room's events in, commands out as promises. It reconnects by
// itself, waiting longer each time, and resumes from the last event it has.

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
const COMMAND_TIMEOUT_MS = 30000;

// A command that was refused: `code` for programs, `message` for people.
export class Refused extends Error {
  constructor(code, message) { super(message); this.code = code; }
}

export class Socket {
  // store: takes the events; room: its name; onStatus('connecting' | 'open' | 'lost'); onHello(result of hello).
  constructor({ url, store, room = 'main', token = null, onStatus = () => {}, onHello = () => {}, onOther = () => {} }) {
    Object.assign(this, { url, store, room, token, onStatus, onHello, onOther });
    this.nextId = 1;
    this.pending = new Map();
    this.wait = FIRST_WAIT_MS;
    this.healing = false;
    this.dropNext = 0;             // for tests of gap healing: how many coming messages to lose
    this.connect();
  }

  connect() {
    if (this.closed) return;
    this.onStatus('connecting');
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onopen = () => this.#opened();
    socket.onmessage = (frame) => this.#received(JSON.parse(frame.data));
    socket.onclose = () => this.#lost(socket);
  }

  async #opened() {
    try {
      const hello = await this.command('hello', { ...(this.token ? { token: this.token } : {}), ...(this.key ? { key: this.key } : {}) });
      this.key = hello.key;          // after a lost connection we are the same visitor, and our requests live on
      this.onHello(hello);
      await this.#subscribe();
      this.wait = FIRST_WAIT_MS;
      this.onStatus('open');
    } catch (error) {
      this.onStatus('refused', error);
      if (error.code !== 'connection_lost') this.socket.close();
    }
  }

  // `life` names one uninterrupted numbering of events: a restarted engine counts afresh, and its numbers must not be mixed with the
  // old ones. The answer comes before the events, so the old history is gone before the new snapshot arrives.
  async #subscribe() {
    this.healing = false;
    const fields = { room: this.room };
    if (this.store.started && this.life) Object.assign(fields, { from_seq: this.store.head.seq, life: this.life });
    const result = await this.command('subscribe', fields);
    if (this.store.started && this.life !== result.life) this.store.clear();
    this.life = result.life;
    return result;
  }

  // Watches another room; its history starts afresh.
  async watch(room) {
    if (room === this.room) return;
    await this.command('unsubscribe', { room: this.room }).catch(() => {});
    this.room = room;
    this.life = null;
    this.store.clear();
    await this.#subscribe();
  }

  #received(message) {
    if (message.type === 'ack' || message.type === 'error') { this.#answered(message); return; }
    if (message.room !== undefined && message.room !== this.room) { this.onOther(message); return; }
    if (message.seq === undefined) { this.onOther(message); return; }
    if (this.dropNext > 0 && message.type !== 'snapshot') { this.dropNext -= 1; return; }
    if (message.type === 'snapshot') { this.healing = false; this.life = message.life ?? this.life; }
    if (this.healing) return;
    if (!this.store.receive(message)) this.#heal();
  }

  // Events were lost: until the snapshot comes, deltas have nothing to stand on and are left out.
  #heal() {
    this.healing = true;
    this.command('snapshot', { room: this.room })
      .then((result) => { if (result?.type === 'snapshot') this.#received(result); })
      .catch(() => { this.healing = false; });
  }

  #answered(message) {
    const waiting = this.pending.get(message.id);
    if (!waiting) { this.onOther(message); return; }
    this.pending.delete(message.id);
    clearTimeout(waiting.timer);
    if (message.type === 'ack') waiting.resolve(message.result);
    else waiting.reject(new Refused(message.code, message.message));
  }

  // Sends a command; resolves with its result, rejects with Refused.
  command(cmd, fields = {}) {
    return new Promise((resolve, reject) => {
      if (this.socket?.readyState !== WebSocket.OPEN) {
        reject(new Refused('connection_lost', 'The page is not connected to the server right now; try again in a moment.'));
        return;
      }
      const id = this.nextId++;
      const timer = setTimeout(() => {
        this.pending.delete(id);
        reject(new Refused('no_answer', `The server did not answer "${cmd}" within ${COMMAND_TIMEOUT_MS / 1000} seconds.`));
      }, COMMAND_TIMEOUT_MS);
      this.pending.set(id, { resolve, reject, timer });
      this.socket.send(JSON.stringify({ id, cmd, ...fields }));
    });
  }

  #lost(socket) {
    if (socket !== this.socket) return;
    for (const { reject, timer } of this.pending.values()) {
      clearTimeout(timer);
      reject(new Refused('connection_lost', 'The connection to the server was lost before it answered; try again in a moment.'));
    }
    this.pending.clear();
    if (this.closed) return;
    this.onStatus('lost');
    this.retry = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(LONGEST_WAIT_MS, this.wait * 2);
  }

  close() {
    this.closed = true;
    clearTimeout(this.retry);
    this.socket.close();
  }
}

// "/ws" beside the page, whatever the page is mounted under.
export function socketUrl(path = 'ws') {
  const url = new URL(path, document.baseURI);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  url.search = '';
  url.hash = '';
  return url.href;
}
