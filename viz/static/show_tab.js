// Brings one of the page's tabs to the front, as a click on it would.

export function showTab(name) {
  const panel = document.getElementById(`bs-tab-${name}`);
  const label = panel?.getAttribute('aria-labelledby');
  const button = document.querySelector(`#bs-tabs [role=tab][aria-controls="bs-tab-${name}"]`) ?? (label ? document.getElementById(label) : null);
  button?.click();
  return Boolean(button);
}
