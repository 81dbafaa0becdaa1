/**
 * Converts the page's UTC times to the reader's. Pointing at one shows UTC. Recent ones read `3 min
 * ago` for a day. A script that adds a part to the page sends the event `part`.
 */
// @ts-check

const { lang } = document.documentElement;
const language = lang === 'en' ? 'en-GB' : lang || undefined;
const days = new Intl.DateTimeFormat(language, { dateStyle: 'medium' });
const minutes = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' });
const seconds = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' });
const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto', style: 'short' });
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** @param {number} pastMs less than a day */
function ago(pastMs) {
  if (pastMs >= HOUR_MS) return relative.format(-Math.floor(pastMs / HOUR_MS), 'hour');
  if (pastMs >= MINUTE_MS) return relative.format(-Math.floor(pastMs / MINUTE_MS), 'minute');
  return relative.format(-Math.floor(pastMs / 1000), 'second');
}

/** Elements that are updated every minute. @type {Map<HTMLElement, () => void>} */
const lately = new Map();

/** @param {HTMLElement} time */
function localize(time) {
  const instant = new Date(time.getAttribute('datetime') ?? '');
  if (Number.isNaN(instant.getTime())) return;
  const utc = time.textContent;
  const isDay = !utc.endsWith('UTC');
  const own = (/:\d\d:\d\d/.test(utc) ? seconds : minutes).format(instant);
  time.title = isDay ? own : utc;
  const isLately = time.hasAttribute('data-ago');
  if (isLately) time.title = `${own}\n${utc}`;
  const tell = () => {
    const pastMs = Date.now() - instant.getTime();
    time.textContent = isLately && pastMs >= 0 && pastMs < DAY_MS ? ago(pastMs) : own;
  };
  if (isDay) time.textContent = days.format(instant);
  else tell();
  if (isLately) lately.set(time, tell);
}

/** @param {ParentNode} part */
function localizeAll(part) {
  for (const time of part.querySelectorAll('time[datetime]')) {
    if (time instanceof HTMLElement) localize(time);
  }
}

localizeAll(document);
document.addEventListener('part', ({ target }) => {
  if (target instanceof HTMLElement) localizeAll(target);
});

setInterval(() => {
  for (const [time, tell] of lately) {
    if (time.isConnected) tell();
    else lately.delete(time);
  }
}, MINUTE_MS);
