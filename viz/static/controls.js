// The left column below the prompt: ready-made rooms and traffic, and the configuration form.

import { ConfigForm } from './config_form.js';
import { WorkloadForm } from './workload_form.js';

export class Controls {
  constructor(root, app) {
    root.innerHTML = `
      <details class="bs-form-card" data-card="workload" open><summary><span data-t="workload.title"></span></summary><div class="bs-form-card-body" data-slot="workload"></div></details>
      <details class="bs-form-card" data-card="config" open><summary><span data-t="config.title"></span><small data-diff></small></summary><div class="bs-form-card-body" data-slot="config"></div></details>`;
    this.config = new ConfigForm(root.querySelector('[data-slot=config]'), app, root.querySelector('[data-diff]'));
    this.workload = new WorkloadForm(root.querySelector('[data-slot=workload]'), app);
    app.t.apply(root);
  }
}
