// The page's place in the class: joins at every (re)connection, hears what the host leads, sends votes and scores. A viewer follows
// the host until it looks around by itself; "back to the host" snaps to where the class is.

import { showTab } from "../show_tab.js";

export class ClassLink extends EventTarget {
  constructor(app) {
    super();
    Object.assign(this, { app, host: false, following: true, state: { leading: false, lesson: null, step: null, version: 0 }, polls: new Map() });
    document.addEventListener("bs:message", (event) => this.#received(event.detail));
    document.addEventListener("bs:status", (event) => { if (event.detail.status === "open") this.join(); });
    if (app.hello) this.join();
  }

  get leading() { return this.host && this.state.leading; }
  get led() { return this.state.leading && !this.host && this.following; }

  async join() {
    try {
      const answer = await this.app.socket.command("class_join");
      this.host = answer.host;
      for (const poll of answer.polls) this.polls.set(`${poll.lesson} ${poll.step}`, poll);
      this.#moved(answer.state);
    } catch (error) { console.info("no class here", error.message); }
  }

  #received(message) {
    if (message.type === "class_state") this.#moved(message.state);
    else if (message.type === "class_poll") {
      this.polls.set(`${message.lesson} ${message.step}`, message);
      this.dispatchEvent(new CustomEvent("poll", { detail: message }));
    } else if (message.type === "class_board") this.dispatchEvent(new CustomEvent("board", { detail: message }));
  }

  #moved(state) {
    const began = state.leading && !this.state.leading;
    this.state = state;
    if (began) this.following = true;
    if (this.led) showTab("lessons");
    this.dispatchEvent(new Event("state"));
  }

  poll(lesson, step) { const poll = this.polls.get(`${lesson} ${step}`); return poll ? { ...poll, host: this.host } : null; }
  async lead(lesson, step) { await this.app.socket.command("class_lead", { lesson, step, leading: true }); }
  async stop() { await this.app.socket.command("class_lead", { leading: false }); }
  async vote(lesson, step, vote) { if (this.state.leading) await this.app.socket.command("class_vote", { lesson, step, vote }).catch((error) => console.info("vote", error.message)); }
  reveal(lesson, step) { return this.app.socket.command("class_reveal", { lesson, step }); }
  board(lesson) { return this.app.socket.command("class_board", { lesson }); }
  score(lesson, knobs, nickname) { return this.app.socket.command("class_score", { lesson, knobs, nickname }); }
  remove(lesson, nickname) { return this.app.socket.command("class_board_remove", { lesson, nickname }); }

  lookAround() { if (this.state.leading && !this.host && this.following) { this.following = false; this.dispatchEvent(new Event("state")); } }
  snapBack() { this.following = true; showTab("lessons"); this.dispatchEvent(new Event("state")); }
}

// One for the page; started with it, so that the host can bring everybody to the Lessons tab.
export function start(app) { return (app.classLink ??= new ClassLink(app)); }
