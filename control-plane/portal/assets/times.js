/**
 * Moments stand in the page in UTC, and say so: here they become the reader's own, and pointing at
 * one tells UTC. Those of lists that say what happened lately are told as `3 min ago` for a day.
 */
// @ts-check

const { lang } = document.documentElement;
const language = lang === 'en' ? 'en-GB' : lang || undefined;
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

/** @type {(() => void)[]} */
const lists = [];

for (const time of document.querySelectorAll('time[datetime]')) {
  const instant = new Date(time.getAttribute('datetime') ?? '');
  if (!(time instanceof HTMLElement) || Number.isNaN(instant.getTime())) continue;
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
  if (!isDay) tell();
  if (isLately) lists.push(tell);
}

if (lists.length > 0) {
  setInterval(() => {
    for (const tell of lists) tell();
  }, MINUTE_MS);
}
