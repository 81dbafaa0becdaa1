/** Dates in headers (RFC 9110 section 5.6.7): written in one form, read in all three. Pure. */

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const MONTH = `(?<month>${MONTHS.join('|')})`;
const TIME = '(?<hour>\\d\\d):(?<minute>\\d\\d):(?<second>\\d\\d)';

/** IMF-fixdate, RFC 850 and asctime; the day of the week is not checked. */
const FORMS = [
  new RegExp(`^[A-Z][a-z]{2}, (?<day>\\d\\d) ${MONTH} (?<year>\\d{4}) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, (?<day>\\d\\d)-${MONTH}-(?<year>\\d\\d) ${TIME} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} ${MONTH} (?<day>[ \\d]\\d) ${TIME} (?<year>\\d{4})$`),
];

/** A year of two digits that would be further ahead than this is in the century before. */
const AHEAD_YEARS_MAX = 50;

/** UTC milliseconds; undefined for text that is not a date. */
export function parseHttpDate(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const groups = FORMS.map(form => form.exec(text)?.groups).find(found => found !== undefined);
  if (groups === undefined) return undefined;
  const { month: monthName = '', year = '', ...rest } = groups;
  const month = MONTHS.indexOf(monthName);
  const [day, hour] = [Number(rest.day), Number(rest.hour)];
  const [minute, second] = [Number(rest.minute), Number(rest.second)];
  if (hour > 23 || minute > 59 || second > 60) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(fullYear(year), month, day);
  // The 31st of February would run over into March; a leap second is the second after.
  if (date.getUTCMonth() !== month || date.getUTCDate() !== day) return undefined;
  return date.setUTCHours(hour, minute, second);
}

/** IMF-fixdate of the second that `timeMs` is in. */
export function formatHttpDate(timeMs: number): string {
  return new Date(timeMs).toUTCString();
}

function fullYear(text: string): number {
  if (text.length === 4) return Number(text);
  const thisYear = new Date().getUTCFullYear();
  const year = thisYear - (thisYear % 100) + Number(text);
  return year > thisYear + AHEAD_YEARS_MAX ? year - 100 : year;
}
