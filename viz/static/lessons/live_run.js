// Runs a lesson's scenario on the engine, in a room of one's own: opens it paused, hands over the workload, obeys the script at its
// steps, and closes it again. One such room at a time: a visitor may have only a few.

import { RoomLink } from "../room_link.js";

const LOOK_EVERY_MS = 60;

export class LiveRun {
  // app: the page; form: {device, model, config, workload, script, max_steps}; title: the room's; pace: steps a second, 0 as fast as it goes.
  constructor(app, form, { title, pace = 0, changes = {} }) {
    Object.assign(this, { app, form, title, pace, changes });
    this.closed = false;
  }

  async open() {
    const { app, form } = this;
    const fields = { title: this.title.slice(0, 80), device: form.device, config: { ...form.config, ...this.changes }, paused: true };
    if (form.model) fields.model = form.model;
    const room = await app.socket.command("create_room", fields);
    this.link = new RoomLink(app, room.room, this.title);
    await this.link.open();
    await this.link.command("workload", { workload: form.workload });
    if (this.pace) await this.link.command("pace", { steps_per_second: this.pace });
    return this;
  }

  get store() { return this.link.store; }
  get step() { return this.store.head.step; }
  get idle() { return this.link.idle && this.store.head.counters.finished + this.store.head.counters.cancelled >= this.expected; }
  get expected() { return this.form.workload.items?.length ?? this.form.workload.num_requests ?? 0; }
  get over() { return this.closed || this.idle || this.step >= this.form.max_steps; }

  // Lets the run go until it is over. Resolves true when it is, false when it was paused or closed.
  async go() {
    this.running = true;
    for (const entry of this.form.script.filter((one) => one.at >= this.step)) {
      const ahead = entry.at - this.step;
      if (ahead > 0) {
        await this.link.command("step", { count: ahead });
        if (!await this.#until(() => this.step >= entry.at)) return false;
      }
      if (entry.configure) await this.link.command("configure", { changes: entry.configure });
      else {
        const target = Object.values(this.store.head.requests).find((request) => request.ordinal === entry.cancel);
        if (target) await this.link.command("cancel", { request: target.id });
      }
    }
    if (!this.running) return false;
    if (this.form.max_steps < 4000) await this.link.command("step", { count: Math.max(1, this.form.max_steps - this.step) });
    else await this.link.command("resume");
    return this.#until(() => this.over);
  }

  async pause() {
    this.running = false;
    await this.link.command("pause");
  }

  async one() {
    this.running = false;
    await this.link.command("step", { count: 1 });
  }

  #until(reached) {
    return new Promise((resolve) => {
      const timer = setInterval(() => {
        if (reached()) { clearInterval(timer); resolve(!this.closed); } else if (!this.running || this.closed) { clearInterval(timer); resolve(false); }
      }, LOOK_EVERY_MS);
    });
  }

  async close() {
    if (this.closed) return;
    this.closed = true;
    this.running = false;
    await this.link?.destroy().catch(() => {});
  }
}
