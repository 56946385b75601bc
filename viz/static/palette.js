// One colour, one mark and one number per request, the same in every panel. The twelve hues keep their distance for the common
// kinds of colour blindness because neighbours also differ in lightness; the mark changes with a period that shares no factor with
// twelve, so colour and mark together repeat only after 84 requests.

const LIGHT = ['#0b6bcb', '#d9780f', '#12876f', '#b8336a', '#6a4bc4', '#8a7a00', '#0f8fb3', '#a3461f', '#4f8a10', '#c2339b', '#41597a', '#b08968'];
const DARK = ['#5aa9f5', '#f5a04a', '#3ec9a7', '#f0709f', '#a78bfa', '#d6c432', '#4cc9e8', '#e08a64', '#93cf55', '#ee7fd0', '#93a9c9', '#d9b89a'];
const MARKS = ['●', '■', '▲', '◆', '★', '✚', '⬢'];

let dark = false;

export const palette = {
  get dark() { return dark; },
  setDark(value) { dark = value; },
  color(ordinal) { return (dark ? DARK : LIGHT)[((ordinal % 12) + 12) % 12]; },
  mark(ordinal) { return MARKS[((ordinal % 7) + 7) % 7]; },
  label(request) { return request.id.length <= 6 ? request.id : `r${request.ordinal}`; },
  of(request) { return { color: this.color(request.ordinal), mark: this.mark(request.ordinal), label: this.label(request) }; },
  size: 12,
};

// The tokens that figures need as plain values; read again after a change of theme.
export function themeColors() {
  const style = getComputedStyle(document.querySelector('.bs-root') ?? document.body);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    text: read('--bs-text'), soft: read('--bs-text-soft'), line: read('--bs-line'), surface: read('--bs-surface'),
    sunken: read('--bs-sunken'), accent: read('--bs-accent'), warn: read('--bs-warn'), bad: read('--bs-bad'), good: read('--bs-good'),
    free: read('--bs-block-free'), cached: read('--bs-block-cached'), padding: read('--bs-padding'), font: read('--bs-font') || 'sans-serif',
  };
}
