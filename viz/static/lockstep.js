// Runs two rooms against each other: in lockstep (both do the same number of steps, then wait for each other) or freely.

const TICKS_PER_SECOND = 8;                // at most this often a command goes to each room; faster means several steps a command
const FREE_PACE = 0;

export class PairRun {
  // links: [RoomLink, RoomLink], both paused with their work queued. onChange(): something worth drawing happened. futures: for each
  // link what a forked run was still asked for after the fork, as journal entries in order; each comes at its step again.
  constructor(links, onChange = () => {}, futures = [[], []]) {
    Object.assign(this, { links, onChange });
    this.futures = new Map(links.map((link, side) => [link, futures[side].slice()]));
    this.mode = 'lockstep';
    this.stepsPerSecond = 4;
    this.running = false;                 // until both stand still again, the step under way included
    this.wanted = false;                  // whether it shall go on
    this.ending = null;                   // resolves when it has come to rest
    this.abandoned = false;
    this.failure = null;
  }

  get done() { return this.links.every((link) => this.#over(link)); }

  #over(link) { return link.idle && this.futures.get(link).length === 0; }

  // Asks for what is due at the room's step; with nothing to do no step would ever come, so then the next entry is due.
  async #feed(link) {
    const future = this.futures.get(link);
    while (future.length && (future[0].step <= link.store.head.step || link.idle)) {
      const entry = future.shift();
      if (entry.op === 'submit') await link.command('submit', { prompt_tokens: entry.tokens, params: entry.params });
      else if (entry.op === 'cancel') await link.command('cancel', { request: entry.id }).catch(() => {});       // it may have ended before
      else if (entry.op === 'configure') await link.command('configure', { changes: entry.changes });
      if (entry.op === 'submit') await this.#until(link, () => !link.idle);
    }
  }

  start(mode = this.mode) {
    if (!this.running) this.ending = this.#run(mode);
    return this.ending;
  }

  async #run(mode) {
    this.mode = mode;
    this.running = this.wanted = true;
    this.failure = null;
    this.onChange();
    try {
      if (mode === 'free') await this.#free();
      else await this.#lockstep();
    } catch (error) { this.failure = error; }
    this.running = this.wanted = false;
    this.onChange();
  }

  // Resolves when both rooms stand still: a step under way is waited for, so that the next one is asked for from the same place.
  async pause() {
    this.wanted = false;
    this.wake?.();
    if (this.mode === 'free') await Promise.all(this.links.map((link) => link.command('pause')));
    await this.ending;
  }

  // Ends without waiting, when the rooms are given back.
  abandon() {
    this.abandoned = true;
    this.wanted = this.running = false;
    this.wake?.();
  }

  // One step of both; resolves when both have done it (a room without work stands still).
  async step(count = 1) {
    const waiting = this.links.filter((link) => !this.#over(link));
    await Promise.all(waiting.map(async (link) => {
      await this.#feed(link);
      const before = link.store.head.counters.steps;
      await link.command('step', { count });
      await this.#until(link, () => link.idle || link.store.head.counters.steps >= before + count);
    }));
    this.onChange();
  }

  async #lockstep() {
    while (this.wanted && !this.done) {
      const started = performance.now();
      const wanted = Math.max(1, Math.round(this.stepsPerSecond / TICKS_PER_SECOND));
      // Never past a step at which something is asked for again.
      const next = Math.min(...this.links.map((link) => (this.futures.get(link)[0]?.step ?? Infinity) - link.store.head.step).filter((gap) => gap > 0));
      const count = Math.min(wanted, next);
      await this.step(count);
      const wait = (1000 * count) / this.stepsPerSecond - (performance.now() - started);
      if (wait > 0 && this.wanted) await this.#rest(wait);
    }
  }

  #rest(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => { clearTimeout(timer); resolve(); };
    });
  }

  async #free() {
    await Promise.all(this.links.map((link) => link.command('pace', { steps_per_second: FREE_PACE })));
    await Promise.all(this.links.map((link) => link.command('resume')));
    await Promise.all(this.links.map(async (link) => {
      while (this.wanted && !this.#over(link)) {
        await this.#feed(link);
        await this.#until(link, () => link.idle || this.futures.get(link)[0]?.step <= link.store.head.step || !this.wanted);
      }
    }));
  }

  // Resolves when `reached()`, looked at after every event; also when nothing has come for a while, so that a lost event or a
  // request that nobody can serve does not hold up the other room.
  #until(link, reached) {
    if (reached()) return Promise.resolve();
    return new Promise((resolve) => {
      const check = setInterval(() => { if (reached() || this.abandoned) end(); }, 200);
      const longest = this.mode === 'free' ? null : setTimeout(() => end(), 10000);
      const stop = link.store.subscribe(() => { if (reached()) end(); });
      const end = () => { clearInterval(check); clearTimeout(longest); stop(); resolve(); };
    });
  }
}
