/** Lines of CSV as RFC 4180 has them, safe to be opened by a spreadsheet. */

/** What a spreadsheet takes for the beginning of a formula, as OWASP lists it. */
const FORMULA = /^[=+\-@\t\r]/;

/**
 * Numbers stay numbers. Text is quoted; where it begins like a formula, an apostrophe goes before
 * it (OWASP, CSV injection).
 */
export function csvLine(cells: readonly (string | number)[]): string {
  const text = cells.map(cell => {
    if (typeof cell === 'number') return String(cell);
    const safe = FORMULA.test(cell) ? `'${cell}` : cell;
    return `"${safe.replaceAll('"', '""')}"`;
  });
  return `${text.join(',')}\r\n`;
}
