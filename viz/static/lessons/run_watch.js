// Follows one run, recorded or live, through a reducer and a Measure of its own, and tells when a predicate first held.

import { apply, clone, emptyState, isSnapshot } from "../reduce.js";
import { evaluate } from "./expression.js";
import { Measure } from "./measure.js";

// What a predicate says of a run: true, false, or false while something it needs has not been measured yet.
export function holds(predicate, names) {
  try { return evaluate(predicate, names) === true; } catch { return false; }
}

export class RunWatch {
  constructor(limits) {
    this.limits = limits;
    this.messages = [];
    this.#restart();
  }

  #restart() {
    this.measure = new Measure(this.limits);
    this.state = emptyState();
    this.cached = null;
  }

  take(message) {
    if (isSnapshot(message)) {
      if (this.messages.length) return;                  // a fresh snapshot after a gap: what was measured so far stays
      this.state = clone(message.state);
    } else {
      if (message.seq <= this.state.seq) return;
      this.state = apply(this.state, message);
      this.measure.take(message, this.state);
      this.cached = null;
    }
    this.messages.push(message);
  }

  get metrics() { return (this.cached ??= this.measure.record()); }

  // The seq of the first step event after which the predicate holds; `learner` are the names that are not the run's. Null: not yet.
  firstHeld(predicate, learner, isDone) {
    const watch = new RunWatch(this.limits);
    const last = this.messages.at(-1);
    for (const message of this.messages) {
      watch.take(message);
      const done = isDone && message === last;
      if ((message.type === "step" || done) && watch.metrics && holds(predicate, { ...watch.metrics, ...learner, done })) return message.seq;
    }
    return null;
  }
}
