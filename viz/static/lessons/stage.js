// The live screen beside the text: the panels of a lesson over a recorded run, with its transport, or over a run on the engine.

import { ReplayTransport } from "../replay_transport.js";
import { Screen } from "../screen.js";
import { Store } from "../store.js";
import { LiveRun } from "./live_run.js";
import { RunWatch } from "./run_watch.js";

const ALL_SHOWN = { isShown: () => true, toggle() {} };

export class Stage extends EventTarget {
  // root: empty element; app: the page; lesson; recording. Fires "change" when something happened in the shown run.
  constructor(root, app, lesson, recording) {
    super();
    Object.assign(this, { root, app, lesson, recording });
    this.own = {};                 // metrics of runs that the learner has run on the engine
    root.innerHTML = `<div class="bs-lesson-bar"><div class="bs-lesson-transport"></div>
      <div class="bs-lesson-livebar" role="toolbar" hidden>
        <button type="button" class="bs-button bs-primary" data-live="play"></button><button type="button" class="bs-button" data-live="step" data-t="lessons.step"></button>
        <button type="button" class="bs-button" data-live="back" data-t="lessons.back_to_recording"></button><span class="bs-step-read" data-live-step></span></div>
      <button type="button" class="bs-button" data-live="open" data-t="lessons.run_live" data-t-label="lessons.run_live_help"></button></div>
      <p class="bs-lesson-source"><span class="bs-badge" data-source></span><span class="bs-soft" data-device></span></p>
      <p class="bs-sentence" role="status" aria-live="polite" data-message></p>
      <div class="bs-area bs-area-main bs-lesson-panels"></div>`;
    this.panels = root.querySelector(".bs-lesson-panels");
    this.message = root.querySelector("[data-message]");
    root.addEventListener("click", (event) => this.#act(event.target.closest("[data-live]")?.dataset.live));
    app.t.apply(root);
  }

  get metrics() { return { ...this.recording.metrics, ...this.own }; }
  get live() { return this.run !== undefined && this.liveRun !== null && this.liveRun !== undefined; }

  // Shows a run from its recording, from its beginning or from where it stood.
  async show(name, { fresh = false } = {}) {
    if (!fresh && this.name === name) return;
    await this.#clear();
    this.name = name;
    const recorded = this.recording.runs[name];
    const store = new Store();
    store.maxEvents = Infinity;
    store.whole = true;
    this.watch = new RunWatch(this.lesson.limits);
    for (const message of [recorded.snapshot, ...recorded.events]) { store.receive(message); this.watch.take(message); }
    store.seekIndex(store.first);
    this.store = store;
    this.transport = new ReplayTransport(this.root.querySelector(".bs-lesson-transport"), { t: this.app.t, store, prefix: "lesson" });
    const pace = this.lesson.pace || 8;
    this.transport.speed.value = pace <= 2 ? "0.25" : pace <= 5 ? "0.5" : pace <= 12 ? "1" : pace <= 24 ? "2" : "4";
    await this.#mountScreen();
    this.#say("");
    this.#relabel();
  }

  async #mountScreen() {
    const { app, lesson } = this;
    const specs = Object.fromEntries(lesson.panels.filter((name) => app.data.panels[name]).map((name, index) => [name, {
      ...app.data.panels[name], area: "main", span: 12, order: index }]));
    this.screen = new Screen({
      store: this.store, specs, hosts: { main: this.panels }, layout: ALL_SHOWN,
      context: app.makeContext(this.store, (cmd, fields) => (this.liveRun ? this.liveRun.link.command(cmd, fields) : Promise.reject(new Error(app.t("replay.no_engine"))))),
    });
    await this.screen.mount();
    for (const card of this.panels.querySelectorAll("[aria-labelledby]")) {       // the live page has panels of these names too
      const title = card.querySelector("h3");
      title.id = `${title.id}-lesson`;
      card.setAttribute("aria-labelledby", title.id);
    }
    this.unsubscribe = this.store.subscribe(() => this.#changed());
    this.point(this.pointed);
  }

  // A prediction shows where the run begins; a run stops where its text has something to say, and goes on when played again.
  prepare(step) {
    if (!this.transport) return;
    this.pauseAt = step.kind === "run" && step.to_step ? step.to_step : null;
    if (step.kind === "prediction" && this.store.index === this.store.first) this.store.seekStep(step.to_step ?? 0);
    if (step.from_step !== undefined && this.store.state.step < step.from_step) this.store.seekStep(step.from_step);
  }

  #changed() {
    if (this.pauseAt && this.transport?.playing && this.store.state.step >= this.pauseAt) { this.transport.pause(); this.pauseAt = null; }
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const read = this.root.querySelector("[data-live-step]");
      if (this.liveRun) read.textContent = this.app.t("lessons.at_step", { step: this.store.head.step });
      this.dispatchEvent(new Event("change"));
    });
  }

  // --- on the engine -------------------------------------------------------------------------------------------------------------

  // Opens a room for the run; `changes` are laid over its config. Resolves with the metrics when the run is over.
  async runLive(name, { changes = {}, pace = this.lesson.pace, as = name } = {}) {
    await this.#clear();
    this.name = name;
    this.#say(this.app.t("lessons.opening"));
    const run = new LiveRun(this.app, this.lesson.runs[name], { title: this.lesson.title[this.app.t.language()], pace, changes });
    try { await run.open(); } catch (error) { await run.close(); await this.#backAfter(error, name); return null; }
    this.liveRun = run;
    this.store = run.store;
    this.watch = new RunWatch(this.lesson.limits);
    for (const message of this.store.events) this.watch.take(message);
    this.stopWatching = this.store.subscribe((what, message) => { if (what === "event") this.watch.take(message); });
    await this.#mountScreen();
    this.#say("");
    this.#relabel();
    return this.#play(as);
  }

  async #play(as) {
    const run = this.liveRun;
    this.playing = true;
    this.#relabel();
    let ended = false;
    try { ended = await run.go(); } catch (error) { if (!run.closed) this.#say(error.message, "error"); }
    if (this.liveRun !== run) return null;
    this.playing = false;
    this.#relabel();
    if (!ended) return null;
    this.over = true;
    this.own[as] = this.watch.metrics;
    this.#say(this.app.t("lessons.run_ended", { step: this.store.head.step }), "good");
    this.dispatchEvent(new Event("change"));
    this.dispatchEvent(new CustomEvent("ended", { detail: { as } }));
    return this.own[as];
  }

  async #backAfter(error, name) {
    const recorded = this.recording.runs[name] ? name : Object.keys(this.recording.runs)[0];
    this.name = null;
    await this.show(recorded);
    this.#say(error.message, "error");
  }

  async #act(action) {
    if (!action) return;
    try {
      if (action === "open") await this.runLive(this.name);
      else if (action === "back") await this.show(this.recording.runs[this.name] ? this.name : Object.keys(this.recording.runs)[0], { fresh: true });
      else if (action === "step") { this.playing = false; await this.liveRun.one(); this.#relabel(); } else if (this.playing) { await this.liveRun.pause(); this.playing = false; this.#relabel(); } else await this.#play(this.name);
    } catch (error) { this.#say(error.message, "error"); }
  }

  // --- the text's side -----------------------------------------------------------------------------------------------------------

  // Whether the run has got as far as the predicate says; in a recording, as far as one has looked.
  reached(predicate, learner) {
    if (!this.watch) return false;
    if (this.liveRun) return this.watch.firstHeld(predicate, learner, Boolean(this.over)) !== null;
    const key = `${this.name} ${predicate} ${JSON.stringify(learner)}`;
    if (this.heldKey !== key) { this.heldKey = key; this.held = this.watch.firstHeld(predicate, learner, true); }
    return this.held !== null && (this.store.view().seq >= this.held || this.store.index >= this.store.last);
  }

  point(panel) {
    this.pointed = panel;
    for (const card of this.panels.children) {
      const here = card.dataset.panel === panel;
      card.classList.toggle("bs-pointed", here);
      if (here) card.scrollIntoView({ block: "nearest" });
    }
  }

  async #clear() {
    this.transport?.destroy();
    this.transport = null;
    this.unsubscribe?.();
    this.stopWatching?.();
    this.stopWatching = null;
    this.screen?.destroy();
    this.screen = null;
    this.over = false;
    this.playing = false;
    this.heldKey = null;
    const run = this.liveRun;
    this.liveRun = null;
    await run?.close();
  }

  #say(text, kind = "") { this.message.textContent = text; this.message.dataset.kind = kind; }

  #relabel() {
    const { t } = this.app;
    const { root, liveRun } = this;
    t.apply(root);
    root.querySelector(".bs-lesson-livebar").hidden = !liveRun;
    root.querySelector(".bs-lesson-transport").hidden = Boolean(liveRun);
    root.querySelector("[data-live=open]").hidden = Boolean(liveRun);
    const play = root.querySelector("[data-live=play]");
    play.textContent = t(this.playing ? "lessons.pause" : "lessons.play");
    play.disabled = Boolean(this.over);
    root.querySelector("[data-live=step]").disabled = Boolean(this.over);
    const engine = this.store?.head.engine ?? {};
    const badge = root.querySelector("[data-source]");
    badge.textContent = t(liveRun ? "lessons.live" : "lessons.recorded");
    badge.dataset.kind = liveRun ? "" : "warn";
    root.querySelector("[data-device]").textContent = `${this.name ?? ""} · ${engine.model ?? ""} · ${engine.device ?? ""}`;
  }

  relabel() { this.transport?.relabel(); this.screen?.restyle(); this.#relabel(); }

  async destroy() { await this.#clear(); cancelAnimationFrame(this.frame); this.root.replaceChildren(); }
}
