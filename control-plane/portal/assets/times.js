/** Times are written in UTC; pointing at one tells the reader's own. */
// @ts-check

const local = new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
  dateStyle: 'medium',
  timeStyle: 'long',
});

for (const time of document.querySelectorAll('time[datetime]')) {
  const instant = new Date(time.getAttribute('datetime') ?? '');
  if (time instanceof HTMLElement && !Number.isNaN(instant.getTime())) {
    time.title = local.format(instant);
  }
}
